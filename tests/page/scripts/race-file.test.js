// The shown race as a file, as a link and as a file's name.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

globalThis.location = { origin: "http://page", pathname: "/race" };
const { raceFile, raceLink, raceName } = load(
  "shared/elements.js",
  "shared/runs.js",
  "masthead/screens.js",
  "race/race-file.js",
).raceFile;

const TRACE = { prompt: "Once & again", depth: 4, width: 3, nodes: 8, temperature: 0.8, max_new_tokens: 64, seed: 7 };
const DRAWN = { t: 0.5, has_bonus: true };

function system(name, trace = TRACE) {
  return { name, title: `the ${name}`, idea: "", guarantee: "tokens", costs: { verify_ms: { 1: 2 } }, trace };
}

function race(recorded, result = null) {
  const lanes = [{ steps: [{ index: 0, path: [1], ...DRAWN }] }, { steps: [] }];
  return { systems: [system("vanilla"), system("tree")], lanes, recorded, result };
}

test("a file holds systems and steps without what the page adds to them", () => {
  const file = JSON.parse(raceFile(race("2025-02-03")));
  assert.equal(file.recorded, "2025-02-03");
  assert.deepEqual(file.lanes[0].trace, { ...TRACE, steps: [{ index: 0, path: [1] }] });
  assert.deepEqual(file.lanes[1].trace.steps, []);
  assert.deepEqual(Object.keys(file.lanes[1]), ["title", "idea", "guarantee", "costs", "trace"]);
});

test("a file holds the seconds of all runs, where there were several", () => {
  const told = (/** @type {object | null} */ result) => {
    const { runs, busy } = JSON.parse(raceFile(race("", result)));
    return [runs, busy];
  };
  const several = [
    [2, 1],
    [2.2, 1],
  ];
  assert.deepEqual(told(null), [[], false]);
  assert.deepEqual(told({ runs: [[2, 1]], busy: true }), [[], true]);
  assert.deepEqual(told({ runs: several, busy: false }), [several, false]);
});

test("a live race is dated today", () => {
  for (const none of [null, ""]) assert.match(JSON.parse(raceFile(race(none))).recorded, /^\d{4}-\d{2}-\d{2}$/);
});

test("a link holds every setting of the right lane", () => {
  const link = new URL(raceLink(race(null)));
  assert.equal(link.origin + link.pathname, "http://page/race");
  const { max_new_tokens: tokens, ...settings } = TRACE;
  const expected = { left: "vanilla", right: "tree", tokens, ...settings };
  assert.deepEqual(
    Object.fromEntries(link.searchParams),
    Object.fromEntries(Object.entries(expected).map(([name, value]) => [name, String(value)])),
  );
});

test("a link names the pair where visitors choose one", () => {
  assert.equal(new URL(raceLink(race(null), "small")).searchParams.get("pair"), "small");
});

test("a prompt that is too long makes no link", () => {
  const long = system("tree", { ...TRACE, prompt: "é".repeat(1400) });
  assert.equal(raceLink({ systems: [system("vanilla"), long] }), "");
  const short = system("tree", { ...TRACE, prompt: "é".repeat(1200) });
  assert.notEqual(raceLink({ systems: [system("vanilla"), short] }), "");
});

test("a name is made of letters and digits, and does not end in a dash", () => {
  assert.equal(raceName(race(null)), "treerace-tree-once-again");
  const wordy = system("tree", { ...TRACE, prompt: "a ".repeat(40) });
  const name = raceName({ systems: [system("vanilla"), wordy] });
  assert.ok(name.length <= 48 && /^[a-z0-9-]+[a-z0-9]$/.test(name), name);
  assert.equal(raceName({ systems: [system("vanilla"), system("x/y", { ...TRACE, prompt: "…" })] }), "treerace-x-y");
});
