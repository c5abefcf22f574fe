// Where the nodes of a tree stand and how the story of a step is cut into scenes.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const page = load(
  "shared/elements.js",
  "shared/numbers.js",
  "plots/tree-layout.js",
  "shared/steps.js",
  "story/step-words.js",
  "story/story-script.js",
);
const { edgePath, nodesOf, thickness, treeLayout } = page.treeLayout;
const { scriptOf, tellingOf } = page.storyScript;

const measure = (text, size) => 0.6 * size * text.length;
const ROOM = { width: 700, height: 260, largest: 20, measure };

// A step whose nodes hang as `parents` say; the path is the chain of first children.
function stepOf(parents, changes = {}) {
  const texts = parents.map((_, at) => ` word${at}`);
  const q = parents.map((_, at) => (at ? 0.5 : 1));
  const verdicts = parents.map((_, at) => (at ? "unreached" : "root"));
  const base = {
    texts,
    q,
    p: q,
    verdicts,
    path: [],
    has_bonus: false,
    draft_forwards: 1,
    burst: [1],
  };
  return { parents, ...base, ...changes };
}

test("a node lies on the row of its first child, and every leaf owns a row", () => {
  const places = (changes) => nodesOf(stepOf([-1, 0, 0, 1, 1, 2], changes)).map(({ column, row }) => [column, row]);
  const tree = [[0, 0], [1, 0], [1, 2], [2, 0], [2, 1], [2, 2]]; // biome-ignore format: a place each
  assert.deepEqual(places(), tree);
  assert.deepEqual(nodesOf(stepOf([])), []);
  assert.deepEqual(places({ path: [1, 4], has_bonus: true }), [...tree, [3, 1]]);
});

test("where rows are too low for all labels, the accepted path keeps its own, whole", () => {
  const parents = [-1, ...Array.from({ length: 60 }, (_, at) => (at < 4 ? at : at % 5))];
  const step = stepOf(parents, { path: [1, 2, 3] });
  const { nodes, shrink } = treeLayout(nodesOf(step), ROOM);
  for (const at of [0, 1, 2, 3]) assert.equal(nodes[at].label, step.texts[at]);
  assert.ok(nodes.some((node) => !node.label));
  assert.equal(shrink, 1);
});

test("labels become a little smaller where all words are whole then, and stay large where they are not", () => {
  const short = stepOf([-1, 0, 1, 2, 3, 3, 0], { path: [1, 2] });
  const long = { ...short, texts: short.texts.with(6, " word".repeat(9)) };
  const sized = (step, width) => {
    const { nodes, size } = treeLayout(nodesOf(step), { ...ROOM, width });
    return [size, nodes.every((node) => node.label === step.texts[node.index])];
  };
  assert.deepEqual(sized(short, 900), [20, true]);
  assert.deepEqual(sized(short, 560), [17, true]);
  assert.deepEqual(sized(long, 560), [20, false]);
});

test("a tree goes down like stairs where all its words are much larger then", () => {
  const parents = [-1, ...Array(10).keys()];
  const chain = stepOf(parents, { path: parents.slice(1).map((parent) => parent + 1) });
  const sized = (height) => {
    const { nodes, size } = treeLayout(nodesOf(chain), { width: 1000, height, largest: 30, measure });
    assert.ok(nodes.every((node) => node.label === node.text && node.labelEnd <= 1000));
    return [size, new Set(nodes.map((node) => node.y)).size];
  };
  assert.deepEqual(sized(240), [13, 1]); // stairs would have 16
  assert.deepEqual(sized(400), [28, 11]);
  const losers = Array.from({ length: 27 }, (_, at) => at % 7); // whose words would go for it
  const bushy = stepOf([...parents, ...losers], { path: chain.path });
  const { nodes, size } = treeLayout(nodesOf(bushy), { width: 1000, height: 460, largest: 30, measure });
  assert.deepEqual([size, nodes.every((node) => node.label === node.text)], [11, true]);
});

test("where the path's words have no room side by side it goes down like stairs, each word whole in a row of its own", () => {
  const chain = [-1, ...Array(9).keys()];
  const room = { ...ROOM, width: 340 };
  const path = [...chain.keys()].slice(1);
  for (const [losers, worded] of [
    [4, true],
    [30, false],
  ]) {
    const step = stepOf([...chain, ...Array.from({ length: losers }, (_, at) => at % 7)], { path });
    const { nodes, size, shrink } = treeLayout(nodesOf(step), room);
    assert.ok(size * shrink >= 10);
    for (const node of nodes) assert.equal(node.label, node.onPath || worded ? node.text : "");
    for (const node of nodes.slice(1, 10)) {
      const parent = nodes[node.parent];
      assert.ok(node.x > parent.x && node.y > parent.y && shrink * node.labelEnd <= room.width);
      assert.match(edgePath(parent, node), new RegExp(`^M${Math.round(10 * parent.x) / 10} [\\d.]+V.*H[\\d.]+$`));
    }
    const rows = new Set(nodes.slice(0, 10).map((node) => node.row));
    assert.ok(rows.size === 10 && nodes.slice(10).every((node) => !rows.has(node.row)));
  }
  assert.ok(
    treeLayout(nodesOf(stepOf(chain, { path })), { ...room, width: 900 }).nodes.every((node) => node.row === 0),
  );
});

test("lines bend behind the widest label of their column, and end at the child's mark", () => {
  const { nodes } = treeLayout(nodesOf(stepOf([-1, 0, 0, 1, 2])), ROOM);
  for (const node of nodes.slice(1)) {
    const [, start, bend, end] = edgePath(nodes[node.parent], node).match(/^M([\d.]+) .*H([\d.]+)C.* ([\d.]+) [\d.]+$/);
    assert.ok(Number(start) <= Number(bend) && Number(bend) <= Number(end));
    const column = nodes.filter((each) => each.column === node.column - 1);
    for (const each of column) assert.ok(Number(bend) >= each.labelX + measure(each.label, 11));
    assert.ok(Math.abs(Number(end) - (node.x - node.mark)) < 0.1);
  }
});

test("a line is as thick as q", () => {
  const widths = [0, 0.25, 0.5, 1].map((q) => thickness(q, 20));
  assert.deepEqual(widths, [1, 2.25, 3.5, 6]);
});

test("levels grow one by one, those of one forward together", () => {
  const parents = [-1, 0, 0, 1, 3, 4];
  const starts = (draft_forwards) =>
    new Set(scriptOf(stepOf(parents, { draft_forwards }), "tokens").sprouts.slice(1)).size;
  assert.deepEqual([0, 1, 2, 4, 9].map(starts), [1, 1, 2, 4, 4]);
});

test("six scenes follow each other, and the last says what is promised of the text", () => {
  for (const [guarantee, words] of [
    ["tokens", /Nothing changes in the text/],
    ["law", /just as likely/],
    ["lossy", /lossy/],
  ]) {
    const { scenes, length } = scriptOf(stepOf([-1, 0, 0]), guarantee);
    assert.deepEqual(
      scenes.map(({ name }) => name),
      ["guess", "check", "choose", "drop", "join", "same"],
    );
    for (const [at, scene] of scenes.slice(1).entries()) assert.equal(scene.from, scenes[at].to);
    assert.ok(length > 5 && length < 8);
    assert.match(scenes[5].words, words);
  }
});

test("a race tells the step that shows most, and none that guesses nothing", () => {
  const plain = stepOf([-1]);
  const wrong = stepOf([-1, 0, 0]);
  const right = stepOf([-1, 0, 0, 1], { path: [1], has_bonus: true });
  assert.equal(tellingOf([plain, wrong, right, wrong]), 2);
  assert.equal(tellingOf([plain, plain]), -1);
});
