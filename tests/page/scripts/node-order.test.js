// Node orders of the mask and the blocks that they need, against counts that are made the slow way.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { ORDERS, blockFor, maskBlocks } = load(
  "shared/elements.js",
  "shared/numbers.js",
  "plots/plot-base.js",
  "plots/mask-plot.js",
).maskPlot;

//        0
//      /   \
//     1     2
//    / \     \
//   3   5     4
//   |
//   6
const PARENTS = [-1, 0, 0, 1, 2, 1, 3];

function everyEntry(parents, order, block) {
  const blocks = new Set();
  for (const [row, node] of order.entries()) {
    for (const [column, other] of order.entries()) {
      let at = node;
      while (at >= 0 && at !== other) at = parents[at];
      if (at === other) blocks.add(`${Math.floor(row / block)} ${Math.floor(column / block)}`);
    }
  }
  return blocks;
}

test("insertion keeps the nodes as they were added", () => {
  assert.deepEqual(ORDERS.insertion(PARENTS), [0, 1, 2, 3, 4, 5, 6]);
});

test("depth first goes down before it goes on, siblings as they were added", () => {
  assert.deepEqual(ORDERS.dfs(PARENTS), [0, 1, 3, 6, 5, 2, 4]);
});

test("the heavy path goes to the largest subtree first", () => {
  assert.deepEqual(ORDERS["heavy path"]([-1, 0, 0, 2, 3]), [0, 2, 3, 4, 1]);
  assert.deepEqual(ORDERS["heavy path"]([-1, 0, 0, 1, 2]), [0, 1, 3, 2, 4]); // equals stay as they were added
});

test("a root alone has one order", () => {
  for (const order of Object.values(ORDERS)) assert.deepEqual(order([-1]), [0]);
});

test("blocks are those that hold an allowed entry, each once", () => {
  for (const block of [1, 2, 3, 4, 8]) {
    for (const order of Object.values(ORDERS)) {
      const nodes = order(PARENTS);
      const found = maskBlocks(PARENTS, nodes, block).map(([row, column]) => `${row} ${column}`);
      assert.deepEqual(new Set(found), everyEntry(PARENTS, nodes, block));
      assert.equal(found.length, new Set(found).size);
    }
  }
});

test("blocks grow with the tree", () => {
  assert.deepEqual([1, 12, 13, 48, 49, 64].map(blockFor), [2, 2, 4, 4, 8, 8]);
});
