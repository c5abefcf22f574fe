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

// ---- where the page finds its server

// What a page at that address does: where it goes, what it says, and where Gradio looks for its server.
function settled(address, origin = new URL(address).origin, root = "http://inside:7860") {
  const loaded = load("masthead/own-address.js");
  const said = [];
  const went = [];
  const { pathname, search, hash } = new URL(address);
  globalThis.location = { origin: new URL(address).origin, pathname, search, hash, replace: (to) => went.push(to) };
  globalThis.window = { origin, gradio_config: { root } };
  globalThis.document = { createElement: () => ({}), body: { prepend: (words) => said.push(words.textContent) } };
  const { FRAMED, settle } = loaded.ownAddress;
  settle();
  delete globalThis.location;
  return { FRAMED, said, went, root: globalThis.window.gradio_config.root };
}

test("Gradio's server is where the document came from, also under a sub-path that the server knows nothing of", () => {
  assert.equal(settled("https://example.org/").root, "https://example.org");
  assert.equal(settled("https://example.org/deep/race/?prompt=a#lab").root, "https://example.org/deep/race");
});

test("a sub-path without its slash is asked for with one, and nothing of the address is lost", () => {
  const { went, said } = settled("https://example.org/race?prompt=a#lab");
  assert.deepEqual(went, ["https://example.org/race/?prompt=a#lab"]);
  assert.deepEqual(said, []);
});

test("in a frame that keeps the page from its server the page says what the frame needs", () => {
  const { FRAMED, said, went, root } = settled("https://example.org/race", "null");
  assert.deepEqual(said, [FRAMED]);
  assert.deepEqual([went, root], [[], "http://inside:7860"]);
  assert.match(FRAMED, /allow-same-origin/);
});
