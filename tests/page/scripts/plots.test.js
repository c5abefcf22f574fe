// Plots: how a forward's time grows with its tokens, letters on colours, a mask's brackets, a curve's axis, and a dial's next value.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { timesOne } = load(
  "shared/elements.js",
  "shared/numbers.js",
  "shared/steps.js",
  "shared/round-costs.js",
  "plots/curve-plot.js",
).curvePlot;

test("a forward is compared with one over a single token, between what was measured too", () => {
  const measured = { 1: 2, 4: 2.5, 8: 4 };
  assert.equal(timesOne(measured, 1), 1);
  assert.equal(timesOne(measured, 8), 2);
  assert.equal(timesOne(measured, 6), 1.625);
});

test("what a busy moment added to a small forward is left out", () => {
  assert.equal(timesOne({ 1: 9, 4: 2, 8: 3 }, 8), 1.5);
});

const { channels, readable } = load("shared/elements.js", "plots/plot-base.js").plotBase;

const linear = (each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
const light = (colour) => {
  const [red, green, blue] = colour.map((each) => linear(each / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};

test("letters can be read on every colour", () => {
  const steps = Array.from({ length: 18 }, (_, at) => 15 * at);
  for (const red of steps) {
    for (const green of steps) {
      for (const blue of steps) {
        const ground = [red, green, blue];
        const [low, high] = [light(ground), light(channels(readable(ground)))].sort((a, b) => a - b);
        assert.ok((high + 0.05) / (low + 0.05) >= 4.5, `${readable(ground)} on ${ground}`);
      }
    }
  }
});

const { branchesOf } = load(
  "shared/elements.js",
  "shared/numbers.js",
  "plots/plot-base.js",
  "plots/mask-plot.js",
).maskPlot;

test("a branch is what hangs on the first node with several children", () => {
  assert.deepEqual(branchesOf([-1, 0, 0, 1, 2, 4]), [
    [1, 3],
    [2, 4, 5],
  ]);
  assert.deepEqual(branchesOf([-1, 0, 1, 1, 2]), [[2, 4], [3]]);
});

test("a chain has no branch", () => {
  assert.deepEqual(branchesOf([-1, 0, 1, 2]), []);
  assert.deepEqual(branchesOf([-1]), []);
});

const { curvePlot, stage } = load(
  "shared/elements.js",
  "shared/numbers.js",
  "shared/steps.js",
  "shared/round-costs.js",
  "masthead/screens.js",
  "shared/keys.js",
  "plots/curve-plot.js",
  "shared/form.js",
  "masthead/stage.js",
);

test("the axis goes in round numbers from 0 to beyond the highest value", () => {
  assert.deepEqual(curvePlot.levelsOf(7.3), [0, 2, 4, 6, 8]);
  assert.deepEqual(curvePlot.levelsOf(2.6), [0, 1, 2, 3]);
  assert.equal(curvePlot.levelsOf(430).at(-1) >= 430, true);
});

test("a dial goes to the next of its values, also from one between them, and stops at its ends", () => {
  const values = [2, 4, 8];
  assert.equal(stage.nextOf(values, 4, 1), 8);
  assert.equal(stage.nextOf(values, 5, -1), 4);
  assert.equal(stage.nextOf(values, 8, 1), 8);
  assert.equal(stage.nextOf([0, 0.2, 0.4], 0.2, -1), 0);
});
