// The verdict on a prediction, and what a round takes.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { priceOf, verdictOf } = load(
  "shared/elements.js",
  "shared/numbers.js",
  "shared/text.js",
  "shared/runs.js",
  "plots/plot-base.js",
  "plots/tree-layout.js",
  "plots/zooming.js",
  "plots/tree-plot.js",
  "plots/mask-plot.js",
  "race/pointing.js",
  "lab/predict-view.js",
).predictView;
const FOUND = {
  small: { tau: 2, price: 1.25, speedup: 1.6 },
  medium: { tau: 2.5, price: 1.8, speedup: 1.39 },
  large: { tau: 3, price: 4, speedup: 0.75 },
};

test("a round's price is its time without prefill, in steps of plain decoding", () => {
  const plain = { seconds: 1.2, prefill_share: 1 / 6, forwards: 100 };
  assert.equal(priceOf({ seconds: 1, prefill_share: 0.2, forwards: 40 }, plain).toFixed(6), "2.000000");
});

test("the verdict says who was right, and sets tau against the price", () => {
  const right = verdictOf("small", "small", FOUND);
  assert.ok(right.startsWith("You were right: the small tree wins with 1.60× plain decoding’s speed."));
  assert.ok(right.includes("The large tree writes 3.00, but its round takes 4.00"));
  assert.ok(verdictOf("large", "small", FOUND).startsWith("You said large: the small tree wins"));
  const most = { ...FOUND, large: { tau: 3, price: 1.5, speedup: 2 } };
  assert.ok(verdictOf("large", "large", most).endsWith("No other tree writes more a round."));
});
