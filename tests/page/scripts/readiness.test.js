// Readiness: asked again until all is ready, also while the server starts anew, and not where nobody answers the question. Presence: a
// server that falls silent is noticed.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const page = load("shared/presence.js");
const { followReadiness, watch } = page.presence;
const answer = (status) => ({ ok: true, json: async () => status });
const half = { words: "Making ready 2 of 18: draft tree", live: true, ready: false };
const whole = { words: "", live: true, ready: true };

async function heard(...answers) {
  const told = [];
  globalThis.setTimeout = (then) => queueMicrotask(then); // nothing here waits for a clock
  globalThis.fetch = async () => {
    const next = answers.shift();
    if (next instanceof Error) throw next;
    return next;
  };
  await followReadiness((status) => told.push(status));
  assert.equal(answers.length, 0);
  return told;
}

test("a server that is silent twice is lost, and told of once until it is back", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const heard = [];
  let answers = false;
  globalThis.fetch = async () => {
    if (!answers) throw new TypeError("no connection");
    return { ok: true, json: async () => ({ here: false }) };
  };
  watch((there) => heard.push(there));
  const pass = async () => {
    context.mock.timers.tick(8000);
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  };
  await pass();
  assert.deepEqual(heard, []);
  await pass();
  await pass();
  assert.deepEqual(heard, [false]);
  answers = true;
  await pass();
  await pass();
  assert.deepEqual(heard, [false, true]);
});

test("every answer is told until all is ready", async () => {
  assert.deepEqual(await heard(answer(half), answer(half), answer(whole)), [half, half, whole]);
});

test("a server that does not answer is asked again", async () => {
  assert.deepEqual(await heard(new TypeError("no connection"), answer(whole)), [whole]);
});

test("a server that knows no such question has nothing to make ready", async () => {
  assert.deepEqual(await heard({ ok: false }), [whole]);
});

test("the question says when the page is about to ask for the live one", async () => {
  const asked = [];
  const answers = [answer(half), answer(half), answer(whole)];
  globalThis.setTimeout = (then) => queueMicrotask(then);
  globalThis.fetch = async (address) => {
    asked.push(address);
    return answers.shift();
  };
  const told = [];
  await followReadiness(
    (status) => told.push(status),
    () => told.length === 1,
  );
  assert.deepEqual(asked, ["readiness", "readiness?coming", "readiness"]);
});
