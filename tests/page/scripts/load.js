// The page's scripts without a browser, for the unit tests. Knows the manifest's order; stands in for the little of a browser that
// scripts touch when they are loaded.
"use strict";

const { readFileSync } = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const PAGE = path.join(__dirname, "..", "..", "..", "assets", "page");
const MANIFEST = JSON.parse(readFileSync(path.join(PAGE, "manifest.json"), "utf8"));

const source = (file) => readFileSync(path.join(PAGE, file), "utf8");

// What the scripts of a browser are given.
function standIn() {
  globalThis.window = { addEventListener: () => {}, matchMedia: () => ({ matches: false }) };
  globalThis.document = {
    addEventListener: () => {},
    createElement: () => ({ getContext: () => ({}) }),
    querySelectorAll: () => [],
  };
}

// Runs these scripts in the manifest's order, after the one that makes TreeRace and makes all that it is joined with strict, and gives
// TreeRace.
function load(...files) {
  standIn();
  const wanted = ["shared/treerace.js", ...files];
  for (const file of wanted) if (!(file in MANIFEST.scripts)) throw new Error(`The manifest has no script ${file}.`);
  for (const file of Object.keys(MANIFEST.scripts)) {
    if (wanted.includes(file)) vm.runInThisContext(`"use strict"; ${source(file)}`, { filename: file });
  }
  return globalThis.TreeRace;
}

module.exports = { MANIFEST, PAGE, load, source };
