// A curve's axis, a dial's next value, and the brackets of a mask's branches.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { curvePlot, stageDials } = load(
  "shared/elements.js",
  "shared/numbers.js",
  "masthead/address.js",
  "masthead/screens.js",
  "shared/keys.js",
  "plots/curve-plot.js",
  "masthead/stage-dials.js",
);

test("the axis goes in round numbers from 0 to beyond the highest value", () => {
  assert.deepEqual(curvePlot.levelsOf(7.3), [0, 2, 4, 6, 8]);
  assert.deepEqual(curvePlot.levelsOf(2.6), [0, 1, 2, 3]);
  assert.equal(curvePlot.levelsOf(430).at(-1) >= 430, true);
});

test("a dial goes to the next of its values, also from one between them, and stops at its ends", () => {
  const values = [2, 4, 8];
  assert.equal(stageDials.nextOf(values, 4, 1), 8);
  assert.equal(stageDials.nextOf(values, 5, -1), 4);
  assert.equal(stageDials.nextOf(values, 8, 1), 8);
  assert.equal(stageDials.nextOf([0, 0.2, 0.4], 0.2, -1), 0);
});
