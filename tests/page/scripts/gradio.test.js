// What Gradio mounts: each part in a task of its own, after the one in which Gradio builds all.
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

test("each part is filled in a task of its own, after the one that builds all", () => {
  const filled = [];
  const tasks = [];
  globalThis.setTimeout = (task) => tasks.push(task);
  const page = load();
  for (const [part, mount] of Object.entries(PARTS)) {
    page[part] = { [mount]: (element, value) => filled.push([element, value.words]) };
  }
  page.form = {};
  vm.runInThisContext(source("shared/gradio.js"));
  const mounts = Object.values(PARTS);
  for (const mount of mounts) page.mount(mount, mount, { value: '{"words": "…"}' }, {});
  assert.equal(tasks.length, mounts.length);
  for (const [at, mount] of mounts.entries()) {
    assert.deepEqual(filled.splice(0), []);
    tasks[at]();
    assert.deepEqual(filled.splice(0), [[mount, "…"]]);
  }
});
