// Presence: a page gives signs until its run has ended or the server is lost. A sign whose answer is cut off had none.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { keep } = load("shared/presence.js").presence;
const answer = (here) => ({ ok: true, json: async () => ({ here }) });
const late = new DOMException("signal timed out", "TimeoutError");
const cut = () => ({ ok: true, json: () => Promise.reject(late) });

// How many signs a run gets, when they are answered so.
async function signs(...answers) {
  let given = 0;
  globalThis.setTimeout = (then) => queueMicrotask(then); // nothing here waits for a clock
  globalThis.fetch = async () => {
    const next = answers[given++];
    if (next instanceof Error) throw next;
    return next;
  };
  await keep("a-run");
  return given;
}

test("signs are given until the run has ended", async () => {
  assert.equal(await signs(answer(true), answer(true), answer(false)), 3);
});

test("a server that twice in a row gives no answer, or no whole one, is lost", async () => {
  assert.equal(await signs(late, answer(true), cut(), answer(true), cut(), late), 6);
});
