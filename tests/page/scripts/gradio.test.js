// What Gradio mounts: parts of the first screen at once, those of screens that nobody sees at first in tasks of their own.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const vm = require("node:vm");
const { load, source } = require("./load.js");

const PARTS = {
  runs: "mountWire",
  masthead: "mountHeader",
  raceView: "mountRace",
  prixView: "mountPrix",
  labViews: "mountLab",
  walkView: "mountWalk",
};

test("screens that nobody sees at first are filled in a task each, after the one that fills the others", () => {
  const filled = [];
  const tasks = [];
  globalThis.setTimeout = (task) => tasks.push(task);
  const page = load();
  for (const [part, mount] of Object.entries(PARTS)) {
    page[part] = { [mount]: (element, value) => filled.push([element, value.words]) };
  }
  page.form = {};
  vm.runInThisContext(source("shared/gradio.js"));
  for (const mount of Object.values(PARTS)) page.mount(mount, mount, { value: '{"words": "…"}' }, {});
  const first = ["mountWire", "mountHeader", "mountRace"].map((mount) => [mount, "…"]);
  assert.deepEqual(filled.splice(0), first);
  assert.equal(tasks.length, 3);
  for (const [at, mount] of ["mountPrix", "mountLab", "mountWalk"].entries()) {
    tasks[at]();
    assert.deepEqual(filled.splice(0), [[mount, "…"]]);
  }
});
