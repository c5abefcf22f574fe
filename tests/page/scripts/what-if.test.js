// The what-if's formula by hand. tests/page/browser/lab/test_page_pays.py holds it against Python's.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { roundCosts, whatIfFormula } = load(
  "shared/numbers.js",
  "shared/steps.js",
  "shared/round-costs.js",
  "lab/what-if-formula.js",
);
const { acceptanceOf, price, rowsOf, speedup, tokensARound } = whatIfFormula;
const COSTS = new roundCosts.Costs({ verify_ms: { 1: 1, 4: 1.4, 16: 3.6 }, first_ms: 0, level_ms: 0 });
const POINT = { acceptance: 0.5, depth: 3, width: 1, draft: 0.2, batch: 1 };

test("a burst's mean length is the sum of a geometric row", () => {
  assert.equal(tokensARound(0.5, 3), 1.875);
  assert.equal(tokensARound(1, 4), 5);
  assert.equal(tokensARound(0, 4), 1);
});

test("an acceptance length gives the acceptance back, and 1 where no round yields so many tokens", () => {
  for (const [acceptance, depth] of [
    [0.35, 1],
    [0.5, 3],
    [0.9, 2.5],
  ])
    assert.equal(acceptanceOf(tokensARound(acceptance, depth), depth).toFixed(9), acceptance.toFixed(9));
  assert.equal(acceptanceOf(1, 3) < 1e-12, true);
  assert.equal(acceptanceOf(4.5, 3), 1);
});

test("a speedup is the tokens of a round over its price", () => {
  assert.equal(rowsOf(POINT), 4);
  assert.equal(price(COSTS, POINT).toFixed(9), "2.000000000");
  assert.equal(speedup(COSTS, POINT).toFixed(6), "0.937500");
  assert.equal(speedup(COSTS, { ...POINT, depth: 0 }), 1);
});

test("a batch multiplies the rows, and nothing is said beyond what was measured", () => {
  const four = { ...POINT, batch: 4 };
  assert.equal(price(COSTS, four).toFixed(6), (3.6 / 1.4 + 0.6).toFixed(6));
  assert.equal(speedup(COSTS, { ...POINT, batch: 5 }), null);
});
