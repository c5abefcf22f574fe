// What a round costs, and what the page says of it.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { Costs, costWords, roundOf } = load("shared/numbers.js", "shared/steps.js", "shared/round-costs.js").roundCosts;

const MEASURED = { verify_ms: { 1: 2, 4: 5, 8: 7 }, first_ms: 0.5, level_ms: 0.25 };

test("between two measured sizes the cost is on a straight line, and behind them it goes on", () => {
  const costs = new Costs(MEASURED);
  assert.deepEqual(
    [1, 2, 4, 6, 8, 12].map((nodes) => costs.verifyAt(nodes)),
    [2, 3, 5, 6, 7, 9],
  );
});

test("one measured size is the cost of all", () => {
  const costs = new Costs({ ...MEASURED, verify_ms: { 1: 3 } });
  assert.deepEqual(
    [1, 2, 64].map((nodes) => costs.verifyAt(nodes)),
    [3, 3, 3],
  );
});

test("the first level of a draft costs more than the next ones", () => {
  const costs = new Costs(MEASURED);
  assert.deepEqual(
    [0, 1, 2, 4].map((levels) => costs.roundMs(4, levels)),
    [5, 5.5, 5.75, 6.25],
  );
  assert.equal(costs.breakEven(4, 4), 6.25 / 2);
  assert.equal(costs.breakEven(1, 0), 1);
});

test("a round has its size, its price, and tau up to it", () => {
  const steps = [
    { parents: [-1], burst: [1] },
    { parents: [-1, 0, 0, 1], burst: [1, 2, 3] },
    { parents: [-1, 0], burst: [1, 2, 3, 4, 5] },
  ];
  const round = roundOf(steps, 1, new Costs(MEASURED));
  assert.deepEqual(round, { index: 1, nodes: 4, levels: 2, price: 5.75 / 2, tau: 2 });
});

test("the words say whether it pays", () => {
  const words = (tau, price) => costWords({ nodes: 4, levels: 1, price, tau });
  assert.equal(
    words(3, 1.5),
    "This step: 4 nodes in 1 level cost 1.50 tokens’ time; 3.00 tokens a pass so far (tau), so it pays 2.0×.",
  );
  assert.match(words(1, 2), /so it loses: 0\.5×\.$/);
  assert.match(words(1.52, 1.5), /so it breaks even\.$/);
  assert.match(costWords({ nodes: 9, levels: 3, price: 1, tau: 2 }), /9 nodes in 3 levels/);
});

test("a one-node tree is the baseline", () => {
  const words = costWords({ nodes: 1, levels: 0, price: 1, tau: 1 });
  assert.equal(words, "No draft: a one-node tree is the baseline itself; 1.00 tokens a pass so far (tau).");
});
