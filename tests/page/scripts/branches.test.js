// Which rows of the mask a bracket holds: the branches of a tree.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { branchesOf } = load(
  "shared/elements.js",
  "shared/numbers.js",
  "shared/text.js",
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
