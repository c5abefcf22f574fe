// What a step's branches won, against the drafter's favourites alone.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const page = load("shared/numbers.js", "shared/steps.js", "story/step-words.js");
const { branchTokens, branchWords, couldGoDeeper, favouritesKept, rescueIn, rescueOf } = page.stepWords;
const { sentence } = page.stepWords;

// The favourites are 1 and 4; node 2 is the root's second branch.
const made = (changes = {}) => ({
  tokens: [10, 11, 12, 13, 14, 15],
  parents: [-1, 0, 0, 1, 1, 2],
  texts: [" was", " and", ".", " big", " little", " They"],
  score: [1, 0.6, 0.3, 0.2, 0.3, 0.2],
  favourites: [1, 4],
  path: [1, 4],
  bonus: 99,
  bonus_text: " fox",
  burst: [11, 14, 99],
  end: "",
  silence: "",
  unused: "",
  replayed: 0,
  has_bonus: true,
  ...changes,
});
const rescued = (changes = {}) => made({ path: [2, 5], burst: [12, 15, 99], ...changes });
const chain = () => made({ parents: [-1, 0], favourites: [1], path: [1], burst: [11, 99] });

test("a branch won what the favourites and their bonus would not have had", () => {
  assert.deepEqual([favouritesKept(made()), branchTokens(made())], [2, 0]);
  assert.deepEqual([favouritesKept(rescued()), branchTokens(rescued())], [0, 2]);
  assert.equal(branchTokens(rescued({ burst: [12] })), 0); // a chain's bonus is that token too
  assert.deepEqual(rescueIn(rescued()), { favourite: " and", kept: 0, branch: "second", won: 2 });
  assert.equal(rescueIn(made()), null);
  const piece = made({ parents: [], favourites: [], path: [], burst: [7, 7, 7] }); // of a server's text
  assert.deepEqual([branchTokens(piece), rescueIn(piece), rescueOf([piece])], [0, null, -1]);
  const deeper = made({ path: [1, 3], burst: [11, 13, 99] });
  assert.deepEqual(rescueIn(deeper), { favourite: " little", kept: 1, branch: "second", won: 2 });
});

test("the best rescue is the step in which branches won most", () => {
  const little = made({ path: [1, 3], burst: [11, 13, 99] });
  assert.equal(rescueOf([made(), little, rescued(), rescued()]), 2);
  assert.equal(rescueOf([made(), chain()]), -1);
});

test("the caption of a rescue says what a chain keeps and which branch kept more", () => {
  const words =
    "Favourite “and” was wrong. A chain keeps 0 here, the second branch 2: “. They”, then the target's own “fox”.";
  assert.equal(sentence(rescued()), words);
  assert.match(sentence(made()), /A chain of as many guesses could have gone deeper\.$/);
  const short = made({ path: [1], burst: [11, 99] });
  assert.match(sentence(short), /no branch had it\. A chain keeps 1 here too\.$/);
  assert.doesNotMatch(sentence(chain()), /[Cc]hain/);
});

test("a chain could have gone deeper where all favourites were right and the text went on", () => {
  assert.deepEqual([made(), made({ end: "stop" }), rescued(), chain()].map(couldGoDeeper), [true, false, false, false]);
});

test("a lane says what its branches won, and that none did", () => {
  assert.equal(
    branchWords([made(), rescued()]),
    "Its branches won 2 of 6 tokens. In 1 of 2 steps a chain of as many guesses could have gone deeper.",
  );
  assert.equal(
    branchWords([made({ path: [1], burst: [11, 99] })]),
    "No branch won here: its favourites alone would have kept as much.",
  );
  assert.equal(branchWords([chain()]), "");
});

test("a tree with fewer nodes than it may have says why, behind all else", () => {
  const unused = "6 of 16 nodes used: the others are under 1 %.";
  for (const step of [made(), rescued(), made({ has_bonus: false })])
    assert.equal(sentence({ ...step, unused }), `${sentence(step)} ${unused}`);
});

test("a step without guesses says why", () => {
  const alone = { tokens: [10], parents: [-1], texts: [" was"], favourites: [], path: [], burst: [99] };
  const why = "Guesses cost more time here than they won lately, so none is drafted; the next round drafts again.";
  assert.equal(sentence(made({ ...alone, silence: why })), `No guesses, so one token, “fox”. ${why}`);
});
