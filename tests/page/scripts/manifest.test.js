// The house of the page's scripts: the manifest has every file once, needs stand before those who need them, one global, all strict when they are joined.
"use strict";

const assert = require("node:assert/strict");
const { readdirSync } = require("node:fs");
const path = require("node:path");
const test = require("node:test");
const vm = require("node:vm");
const { MANIFEST, PAGE, source } = require("./load.js");

const SCRIPTS = Object.entries(MANIFEST.scripts);
const TAKERS = ["page", "replay", "opening"];
const BEGIN = ["replay/replay.js", "opening/opening.js"]; // they mount what the others offer
const LONGEST = 350; // lines
const nameOf = (file) => path.basename(file, ".js").replace(/-(\w)/g, (_, letter) => letter.toUpperCase());

function files(kind) {
  const all = readdirSync(PAGE, { recursive: true }).map((each) => each.replaceAll(path.sep, "/"));
  return all.filter((each) => each.endsWith(kind)).sort();
}

test("the manifest names every file of the page, and no other", () => {
  assert.deepEqual(Object.keys(MANIFEST.scripts).sort(), files(".js"));
  assert.deepEqual(Object.keys(MANIFEST.styles).sort(), files(".css"));
  assert.deepEqual(Object.values(MANIFEST.markup).sort(), files(".html"));
});

test("every file is taken by the page, the replay or the opening page", () => {
  for (const [file, takers] of [...SCRIPTS, ...Object.entries(MANIFEST.styles)]) {
    assert.ok(takers.length && takers.every((taker) => TAKERS.includes(taker)), file);
  }
});

test("no style looks for what is inside of an element, for the browser would look again in every frame of a race", () => {
  for (const file of Object.keys(MANIFEST.styles)) assert.ok(!source(file).includes(":has("), file);
});

test("a script begins with its owner-sentence and offers one name", () => {
  for (const [file] of SCRIPTS.slice(1)) {
    assert.match(source(file), /^(\/\/.*\n)+\nTreeRace\.\w+ = /, file);
    assert.ok(
      source(file).includes(`TreeRace.${nameOf(file)} = (() => {`),
      `${file} does not offer TreeRace.${nameOf(file)}`,
    );
  }
});

test("what a script needs when it is loaded stands before it and is taken by all who take it", () => {
  const before = new Map();
  for (const [file, takers] of SCRIPTS) {
    const needs = [...source(file).matchAll(/^ {2}const \{[^}]*\} = TreeRace\.(\w+);$/gm)].map(([, name]) => name);
    for (const name of needs) {
      assert.ok(before.has(name), `${file} needs ${name}, which does not stand before it`);
      for (const taker of takers) assert.ok(before.get(name).includes(taker), `${file} needs ${name} in the ${taker}`);
    }
    before.set(nameOf(file), takers);
  }
});

test("the scripts of a page leave one global, and are strict when they stand in one script element", () => {
  for (const taker of TAKERS) {
    const taken = SCRIPTS.filter(([file, takers]) => takers.includes(taker) && !BEGIN.includes(file));
    const listens = { addEventListener() {}, matchMedia: () => ({ matches: false }) };
    const document = { ...listens, createElement: () => ({ getContext: () => ({}) }) };
    const browser = vm.createContext({
      document,
      window: listens,
      EventTarget,
      location: { origin: "", pathname: "/" },
    });
    const known = new Set(Object.keys(browser));
    const text = taken.map(([file]) => source(file)).join("\n");
    vm.runInContext(`${text}\n;TreeRace.isStrict = (function () { return this === undefined; })();`, browser);
    assert.deepEqual(
      Object.keys(browser).filter((name) => !known.has(name)),
      ["TreeRace"],
    );
    const lexical = [...text.matchAll(/^(?:const|let|class|function) (\w+)/gm)].map(([, name]) => name);
    assert.deepEqual(lexical, []);
    assert.equal(browser.TreeRace.isStrict, true);
  }
});

test("no script is too long to read", () => {
  for (const [file] of SCRIPTS) {
    const lines = source(file).split("\n").length - 1;
    assert.ok(lines <= LONGEST, `${file} has ${lines} lines`);
  }
});
