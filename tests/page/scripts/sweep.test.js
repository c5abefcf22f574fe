// A sweep as it arrives, and what its charts say.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const page = load("shared/numbers.js", "lab/sweep-record.js");
const { CHARTS, SweepRecord } = page.sweepRecord;

const cell = (x, y, speedup, refused) => ({
  x,
  y,
  depth: x,
  width: y,
  nodes: 16,
  temperature: 0,
  speedup,
  tau: 2,
  disturbed: "",
  refused,
});

function swept(...cells) {
  const axes = { x: { name: "depth", values: [1, 2] }, y: { name: "width", values: [1, 2] } };
  const settings = { grid: "shape", fixed: { nodes: 16, temperature: 0 }, prompts: ["a"], max_new_tokens: 32, seed: 0 };
  const costs = { verify_ms: { 1: 2, 8: 3 }, first_ms: 0, level_ms: 0 };
  const record = new SweepRecord({ run: "r", cells: 4, system: { name: "tree" }, costs, ...axes, ...settings });
  for (const [index, each] of cells.entries()) record.add({ cell: each, done: index + 1, left: 3 });
  return record;
}

test("cells gather, and the end's cells take their place", () => {
  const record = swept(cell(1, 1, 1.5), cell(2, 1, 0, "too large"));
  assert.deepEqual([record.total, record.cells.length, record.raced.length, record.done, record.left], [4, 2, 1, 2, 3]);
  assert.equal(record.cell(2, 1).refused, "too large");
  assert.equal(record.cell(2, 2), undefined);
  const summary = { best: [cell(2, 2, 3)], sentence: "Best.", by_depth: [], by_rank: [], verify_ms: { 1: 2.5 } };
  record.add({ cells: [cell(2, 2, 3)], summary, done: 4 });
  assert.deepEqual(
    [record.cells.length, record.summary.sentence, record.summary.verify_ms, record.left],
    [1, "Best.", { 1: 2.5 }, undefined],
  );
});

test("a chart says its range, and that there is none yet", () => {
  const { note, label } = CHARTS.speedup(swept(cell(1, 1, 1.5), cell(2, 1, 0.5)));
  assert.equal(note, "≤ 16 nodes · T = 0 · 32 tokens");
  assert.match(label, /by depth and width: 0\.50× to 1\.50×\./);
  assert.match(CHARTS.tau(swept()).label, /nothing yet/);
  assert.match(CHARTS.cost(swept(cell(1, 1, 1.5), cell(2, 1, 0.5))).label, /1 of 2 cells were faster/);
});

test("the table behind a chart has its head first", () => {
  const record = swept(cell(1, 1, 1.5));
  record.summary.by_depth = [{ depth: 1, reached: 8, accepted: 6, levels: 7 }];
  record.summary.verify_ms = { 8: 3.5 };
  assert.deepEqual(CHARTS.depth(record).rows, [
    ["depth", "reached", "accepted", "rounds"],
    [1, 8, 6, 7],
  ]);
  assert.deepEqual(CHARTS.cost(record).rows.slice(1), [
    ["1", 2, "timed alone"],
    ["8", 3, "timed alone"],
    ["8", 3.5, "median in the races"],
  ]);
  const [head, row] = CHARTS.speedup(record).rows;
  assert.deepEqual(
    [head.slice(0, 6), row.slice(0, 6)],
    [
      ["system", "depth", "width", "nodes", "temperature", "speedup"],
      ["tree", 1, 1, 16, 0, 1.5],
    ],
  );
});

test("a disturbed cell says so where the pointer is and in the table", () => {
  const words = "Disturbed: one of 9 steps of tree stalled.";
  const record = swept({ ...cell(1, 1, 5.08), disturbed: words }, cell(2, 1, 1.5));
  assert.ok(record.cellWords(record.cell(1, 1)).endsWith(`<br>${words}`));
  assert.ok(!record.cellWords(record.cell(2, 1)).includes("isturbed"));
  const [head, first, second] = CHARTS.speedup(record).rows;
  const at = head.indexOf("disturbed");
  assert.deepEqual([first[at], second[at]], [words, ""]);
});
