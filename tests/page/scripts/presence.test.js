// Whether the server is there, as the page finds out by itself.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { watch } = load("shared/presence.js").presence;

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
