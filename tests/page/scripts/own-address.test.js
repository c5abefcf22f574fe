// The page's own address, as a proxy, a sub-path or a frame gives it.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { FRAMED, settle } = load("shared/own-address.js").ownAddress;

// What a page at that address does: where it goes, what it says, and where Gradio looks for its server.
function settled(address, origin = new URL(address).origin, root = "http://inside:7860") {
  const said = [];
  const went = [];
  const { pathname, search, hash } = new URL(address);
  globalThis.location = { origin: new URL(address).origin, pathname, search, hash, replace: (to) => went.push(to) };
  globalThis.window = { origin, gradio_config: { root } };
  globalThis.document = { createElement: () => ({}), body: { prepend: (words) => said.push(words.textContent) } };
  settle();
  delete globalThis.location;
  return { said, went, root: globalThis.window.gradio_config.root };
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
  const { said, went, root } = settled("https://example.org/race", "null");
  assert.deepEqual(said, [FRAMED]);
  assert.deepEqual([went, root], [[], "http://inside:7860"]);
  assert.match(FRAMED, /allow-same-origin/);
});
