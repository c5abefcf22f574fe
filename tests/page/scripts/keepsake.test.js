// The keepsake where the browser keeps nothing, and where a race is too long for its store.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const page = load("shared/runs.js", "masthead/keepsake.js");
const { Keepsake, kept } = page.keepsake;
globalThis.window.addEventListener = () => {};
page.view = { addEventListener: () => {} };
page.pairs = { name: "small" };
globalThis.document.querySelector = () => ({ value: "Once" });

// A store that takes so many characters. Without a number every use throws, as where a frame of another site may keep nothing.
function store(most) {
  const values = new Map();
  const made = {
    getItem: (name) => values.get(name) ?? null,
    removeItem: (name) => values.delete(name),
    setItem: (name, value) => {
      if (value.length > most) throw new Error("QuotaExceededError");
      values.set(name, value);
    },
  };
  Object.defineProperty(globalThis, "sessionStorage", {
    configurable: true,
    get() {
      if (most === undefined) throw new Error("SecurityError");
      return made;
    },
  });
  globalThis.performance.getEntriesByType = () => [{ type: "reload" }];
}

test("a browser that keeps nothing loses nothing else", () => {
  store(undefined);
  new Keepsake().keep();
  assert.equal(kept(), null);
});

test("what was kept comes back once", () => {
  store(1000);
  const made = new Keepsake();
  made.messages = [{ seq: 1 }];
  made.keep();
  assert.deepEqual(kept(), { query: "pair=small&prompt=Once", messages: [{ seq: 1 }] });
  assert.equal(kept(), null);
});

test("a race that is too long is left out, and the settings stay", () => {
  store(200);
  const made = new Keepsake();
  made.messages = [{ text: "x".repeat(300) }];
  made.keep();
  assert.deepEqual(kept(), { query: "pair=small&prompt=Once", messages: [] });
});
