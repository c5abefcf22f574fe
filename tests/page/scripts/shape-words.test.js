// What a card says of a system's shape: in every case the numbers that were measured, and which of them is the paper's own.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { shapesOf, shapeWords } = load("shared/numbers.js", "shared/steps.js", "shared/round-costs.js").roundCosts;

const SHAPES = { "7x10x60": { tau: 4, cost: 3 }, "5x4x12": { tau: 3, cost: 1.5 }, "2x3x4": { tau: 2, cost: 1.25 } };

test("the best shape wins the most tokens for its cost, and of equals the first", () => {
  assert.deepEqual(shapesOf(SHAPES), { own: "7x10x60", best: "5x4x12" });
  assert.deepEqual(shapesOf({ "4x4x8": { tau: 2, cost: 1 }, "2x3x4": { tau: 4, cost: 2 } }), {
    own: "4x4x8",
    best: "4x4x8",
  });
  assert.equal(shapesOf({}), null);
});

test("a card says in which shape its system races, of how many that is the best, and the paper's own", () => {
  const raced = "Raced in 5 x 4 x 12, the best of 3 on this machine; the paper’s own: 7 x 10 x 60.";
  assert.equal(shapeWords(SHAPES, "5x4x12"), raced);
  assert.equal(shapeWords(SHAPES), raced.replace("Raced", "Races"));
  const other = "Raced in 7 x 10 x 60; the best of 3 on this machine: 5 x 4 x 12; the paper’s own: 7 x 10 x 60.";
  assert.equal(shapeWords(SHAPES, "7x10x60"), other);
  assert.equal(shapeWords({}), "");
});

test("where the paper's own is the best, that is said once", () => {
  const shapes = { "4x4x8": { tau: 3, cost: 1.5 }, "2x3x4": { tau: 1.5, cost: 1 } };
  assert.equal(shapeWords(shapes, "4x4x8"), "Raced in 4 x 4 x 8, the best of 2 on this machine and the paper’s own.");
  const other = "Raced in 2 x 3 x 4; the best of 2 on this machine: 4 x 4 x 8, which is the paper’s own.";
  assert.equal(shapeWords(shapes, "2x3x4"), other);
});

test("a system whose best shape loses to plain decoding says so with the numbers", () => {
  const lost = "At its best shape a round costs 2.40 plain rounds and yields 2.10 tokens, so plain decoding is faster.";
  const shapes = { "4x4x8": { tau: 2.1, cost: 2.4 }, "2x3x4": { tau: 1.2, cost: 2 } };
  assert.ok(shapeWords(shapes).endsWith(`and the paper’s own. ${lost}`));
  assert.ok(!shapeWords(SHAPES).includes("plain"));
});
