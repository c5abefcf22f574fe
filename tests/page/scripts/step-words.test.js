// The sentences about a step: what was guessed, what was accepted, what the target wanted.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { estimate, quoted, sentence } = load("shared/numbers.js", "shared/steps.js", "story/step-words.js").stepWords;

// A tree of six nodes with 1 and 4 accepted, then a bonus. No branch guessed the bonus, because 4 has none.
const made = (changes = {}) => ({
  tokens: [10, 11, 12, 13, 14, 15],
  parents: [-1, 0, 0, 1, 1, 2],
  texts: [" was", " a", " the", " big", " little", " end"],
  score: [1, 0.6, 0.3, 0.2, 0.3, 0.2],
  favourites: [1, 4],
  q: [1, 0.6, 0.3, 0.4, 0.5, 0.7],
  p: [1, 0.7, 0.2, 0.1, 0.8, 0.1],
  verdicts: ["root", "accepted", "rejected", "rejected", "accepted", "unreached"],
  path: [1, 4],
  bonus: 99,
  bonus_text: " fox",
  burst: [11, 14, 99],
  pieces: [" a", " little", " fox"],
  end: "",
  seconds: { draft: 0.002, verify: 0.003 },
  replayed: 0,
  has_bonus: true,
  ...changes,
});
const alone = (changes = {}) =>
  made({ tokens: [10], parents: [-1], texts: [" was"], verdicts: ["root"], path: [], burst: [99], ...changes });
const piece = (text, changes = {}) =>
  made({
    tokens: [],
    parents: [],
    verdicts: [],
    path: [],
    pieces: [text],
    bonus_text: "",
    has_bonus: false,
    ...changes,
  });

test("a path that used up its branch", () => {
  const words =
    "5 guesses, 2 accepted: “a little”, then the target's own “fox”. The path reached the tree's last level. " +
    "A chain of as many guesses could have gone deeper.";
  assert.equal(sentence(made()), words);
  const short = made({ path: [2], burst: [12, 99], parents: [-1, 0, 0, 1, 1, 3], favourites: [2] });
  assert.match(sentence(short), /The path reached the end of its branch\./);
});

test("a bonus that no branch had, and one that a rule turned down and drew from the residual of a twin", () => {
  const words =
    /then the target's own “fox”\. The target wanted “fox” and no branch had it\. A chain keeps 1 here too\.$/;
  assert.match(sentence(made({ path: [1], burst: [11, 99] })), words);
  assert.match(sentence(made({ path: [1], burst: [11, 14], bonus: 14 })), /The rule turned down every branch/);
});

test("nothing accepted, and one guess", () => {
  const begin = /^5 guesses, none accepted, then the target's own “fox”\./;
  assert.match(sentence(made({ path: [], burst: [99] })), begin);
  const pair = made({ tokens: [10, 11], parents: [-1, 0], path: [1], burst: [11, 99] });
  assert.match(sentence(pair), /^1 guess, 1 accepted: “a”,/);
});

test("the baseline has words of its own", () => {
  assert.equal(sentence(alone()), "No guesses: one forward of the target, one token, “fox”.");
});

test("how the text ended", () => {
  for (const [end, words] of [
    ["stop", "The stop token ended the text."],
    ["length", "The length limit ended the text."],
    ["context", "The context window was full."],
    ["another way", "It ended here: another way."],
  ]) {
    assert.ok(sentence(made({ end })).endsWith(` ${words}`));
    assert.ok(sentence(alone({ end })).endsWith(` ${words}`));
  }
});

test("what was replayed is told", () => {
  const words = " 3 tokens were replayed, because the target's state stood behind other guesses.";
  assert.ok(sentence(made({ replayed: 3 })).endsWith(words));
  assert.match(sentence(made({ path: [], burst: [99], replayed: 1, end: "stop" })), / 1 token was replayed/);
  assert.doesNotMatch(sentence(made()), /replayed/);
});

test("a cut burst has no bonus", () => {
  const cut = made({ burst: [11], pieces: [" a"], end: "length", has_bonus: false });
  assert.equal(sentence(cut), "5 guesses, 2 accepted, 1 kept: “a”. The length limit ended the text.");
});

test("another server's step says what came, after how long, and what went wrong", () => {
  assert.equal(sentence(piece(" a fox")), "The server sent “a fox” after 5 ms.");
  const failed = { end: "failed", bonus_text: "It broke." };
  assert.equal(sentence(piece(" a fox", failed)), "The server sent “a fox” after 5 ms. It broke.");
  assert.equal(sentence(piece("", failed)), "No more text came. It broke.");
});

test("white space does not vanish in quotes", () => {
  for (const [text, shown] of [
    [" fox", "“fox”"],
    ["\n\n", "“⏎⏎”"],
    ["  ", "“␣␣”"],
    ["", "“…”"],
    ["\tx", "“⇥x”"],
    ["<b>", "“<b>”"],
  ]) {
    assert.equal(quoted(text), shown);
  }
});

test("the estimate names the guess that drafter and target saw most differently, of those that the target came to judge", () => {
  assert.equal(estimate(made()), "The drafter gave “big” 40 %, the target 10 %.");
  const unreached = made({ verdicts: ["root", ...Array(5).fill("unreached")] });
  for (const each of [alone(), piece(" a fox"), unreached]) {
    assert.equal(estimate(each), "Nothing was guessed in this step.");
  }
});

test("rounding claims no certainty", () => {
  for (const [share, words] of [
    [1, "100 %"],
    [0.9999, "over 99 %"],
    [0.995, "over 99 %"],
    [0.0001, "under 1 %"],
    [0, "0 %"],
  ]) {
    const step = made({ q: [1, share, 0.3, 0.4, 0.5, 0.7], p: [1, 0.5, 0.3, 0.4, 0.5, 0.7] });
    assert.equal(estimate(step), `The drafter gave “a” ${words}, the target 50 %.`);
  }
});
