// How a forward's time grows with its tokens, in times of one token.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { timesOne } = load(
  "shared/elements.js",
  "shared/numbers.js",
  "shared/steps.js",
  "shared/round-costs.js",
  "plots/growth-plot.js",
).growthPlot;

test("a forward is compared with one over a single token, between what was measured too", () => {
  const measured = { 1: 2, 4: 2.5, 8: 4 };
  assert.equal(timesOne(measured, 1), 1);
  assert.equal(timesOne(measured, 8), 2);
  assert.equal(timesOne(measured, 6), 1.625);
});

test("what a busy moment added to a small forward is left out", () => {
  assert.equal(timesOne({ 1: 9, 4: 2, 8: 3 }, 8), 1.5);
});
