// How a race stands and how it ended, in words.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const page = load(
  "shared/numbers.js",
  "shared/runs.js",
  "story/step-words.js",
  "race/race-strip.js",
  "shared/elements.js",
  "shared/steps.js",
  "shared/system-names.js",
  "prix/track.js",
);
const { finisherOf, leadOf, verdictOf, writeTheSame } = page.raceStrip;
const { placesOf, winnerWords } = page.track;
const { asNumber, asShare, isLevel } = page.numbers;
const { escapeMarkup, plotLabel, visible } = page.numbers;

const RUNS = { runs: [[1, 0.5]], least: 2, most: 2, disturbed: "" };
const RESULT = { speedup: 2, identical: true, divergence: null, lanes: [{ tokens: 50 }, { tokens: 50 }], ...RUNS };
const PARTED = { ...RESULT, identical: false, divergence: { index: 4, left: " cat", right: "\n" } };

test("nobody leads before both lanes have three tokens", () => {
  assert.deepEqual(leadOf([2, 9], ["one", "two"]), { hue: 1, ratio: "", margin: "" });
  assert.deepEqual(leadOf([3, 9], ["one", "two"]), { hue: 1, ratio: "3.0× ahead", margin: "two, by 6 tokens" });
  assert.deepEqual(leadOf([9, 6], ["one", "two"]), { hue: 0, ratio: "1.5× ahead", margin: "one, by 3 tokens" });
  assert.deepEqual(leadOf([100, 104], ["one", "two"]), { hue: "", ratio: "level", margin: "" });
});

test("once a lane is done the lead is in tokens a second, and what is certain of it is said", () => {
  const at = (left, time, finish = {}) =>
    leadOf([left, 118], ["plain decoding", "tree"], { lane: 1, seconds: 0.39, time, same: true, ...finish });
  assert.deepEqual(at(41, 0.39), {
    hue: 1,
    ratio: "2.9× ahead",
    margin: "done in 0.39 s, the other at 41 of 118",
  });
  assert.deepEqual(at(101, 0.97), {
    hue: 1,
    ratio: "2.9× ahead",
    margin: "done in 0.39 s, the other at 101 of 118: at least 2.4×",
  });
  assert.equal(at(2, 0.5).ratio, "");
  assert.equal(at(101, 0.97, { same: false }).margin, "done in 0.39 s, the other at 101 tokens");
});

test("whatever the lanes' speeds, what is called certain is never more than the outcome", () => {
  for (const speed of [1.02, 1.33, 2.04, 2.96, 7.5]) {
    for (let tokens = 118 / speed; tokens <= 118; tokens++) {
      const time = tokens / 100;
      const finish = { lane: 0, seconds: 1.18 / speed, time, same: true };
      const { ratio, margin } = leadOf([118, Math.floor(tokens)], ["one", "two"], finish);
      const [, certain] = /at least ([\d.]+)×/.exec(margin) || ["", "1"];
      assert.ok(Number(certain) <= speed && Number(certain) > time / finish.seconds - 0.11, margin);
      if (ratio !== "level") assert.ok(Math.abs(Number.parseFloat(ratio) - speed) < 0.05 + speed / tokens, ratio);
    }
  }
});

test("a lane with fewer tokens may be done first and yet be slower", () => {
  const { hue, ratio } = leadOf([90, 20], ["one", "two"], { lane: 1, seconds: 1, time: 1.5, same: false });
  assert.deepEqual([hue, ratio], [0, "3.0× ahead"]);
});

test("a lane is the finisher from its last step on, until the other is done too", () => {
  const lanes = [
    { ended: true, steps: [{ t: 1 }, { t: 2 }] },
    { ended: true, steps: [{ t: 0.5 }] },
  ];
  assert.equal(finisherOf(lanes, [0, 0], 0.2), null);
  assert.deepEqual(finisherOf(lanes, [1, 1], 1.5), { lane: 1, seconds: 0.5, time: 1.5 });
  assert.equal(finisherOf(lanes, [2, 1], 2), null);
  assert.equal(finisherOf([lanes[0], { ended: false, steps: [{ t: 0.5 }] }], [1, 1], 1.5), null);
});

test("two lanes write the same where both promise it", () => {
  const systems = (temperature, ...guarantees) =>
    guarantees.map((guarantee) => ({ guarantee, trace: { temperature } }));
  assert.equal(writeTheSame(systems(0.8, "tokens", "tokens")), true);
  assert.deepEqual(
    [0, 0.8].map((at) => writeTheSame(systems(at, "tokens", "law"))),
    [true, false],
  );
  assert.equal(writeTheSame(systems(0, "tokens", "lossy")), false);
});

test("the outcome is a ratio above one, or level", () => {
  const outcome = (speedup) => verdictOf({ ...RESULT, speedup }, false);
  assert.deepEqual([outcome(2.04).outcome, outcome(2.04).winner], ["2.0× faster", 1]);
  assert.deepEqual([outcome(0.5).outcome, outcome(0.5).winner], ["2.0× slower", 0]);
  assert.deepEqual([outcome(1.04).outcome, outcome(1.04).winner], ["level", ""]);
});

test("the texts are compared", () => {
  const said = (result, lossy = false) => [verdictOf(result, lossy).words, verdictOf(result, lossy).kind];
  assert.deepEqual(said(RESULT), ["identical: 50 of 50 tokens", "identical"]);
  const stopped = { ...RESULT, finished: false, lanes: [{ tokens: 50 }, { tokens: 20 }] };
  assert.deepEqual(said(stopped), ["stopped; identical so far: 20 tokens", "identical"]);
  assert.deepEqual(said({ ...RESULT, identical: "law" }), ["same distribution, other tokens", "law"]);
  assert.deepEqual(said(PARTED), ["not identical from token 5 on: “cat” or “⏎”", "different"]);
  const near = { ...PARTED, divergence: { ...PARTED.divergence, margin: 0.06, words: "A near-tie: bf16 rounds." } };
  assert.deepEqual(said(near)[0], "not identical from token 5 on: “cat” or “⏎”. A near-tie: bf16 rounds.");
  assert.deepEqual(said(PARTED, true), ["lossy: other text from token 5 on: “cat” or “⏎”", "lossy"]);
  assert.deepEqual(said({ ...PARTED, identical: "lossy" })[1], "lossy");
});

test("another server's text is compared by text, and the words say so", () => {
  const said = (result) => [verdictOf(result, false).words, verdictOf(result, false).kind];
  assert.deepEqual(said({ ...RESULT, identical: "text" }), [
    "the same text: compared by text, not by tokens",
    "identical",
  ]);
  const stopped = { ...RESULT, identical: "text", finished: false };
  assert.deepEqual(said(stopped), ["stopped; the same text so far, compared by text", "identical"]);
  const [words, kind] = said({ ...PARTED, identical: "other text" });
  assert.equal(words, "other text, compared by text, from character 5 on: “cat” or “⏎”");
  assert.equal(kind, "different");
  const failed = verdictOf({ ...RESULT, identical: "failed", speedup: 0 }, false);
  assert.deepEqual([failed.outcome, failed.winner], ["", ""]);
  assert.match(failed.words, /server failed/);
});

test("equals share a place, and who has no speed has none", () => {
  assert.deepEqual(placesOf([3, 5, 0, 5, 1]), [3, 1, 0, 1, 4]);
});

test("whoever is apart by less than a clock can tell is level, and wins nothing", () => {
  assert.deepEqual(placesOf([1, 1250 / 1252, 0.94, 0.9]), [1, 1, 3, 3]);
  const said = (...lanes) => winnerWords(["plain", "chain", "tree"].slice(0, lanes.length), lanes);
  const lane = (speedup, identical = true) => ({ speedup, identical });
  assert.equal(said(lane(1), lane(3), lane(3.2)), "tree wins: 3.2× plain decoding.");
  assert.equal(said(lane(1), lane(3.19), lane(3.2)), "chain and tree are level: up to 3.2× plain decoding.");
  assert.equal(said(lane(1), lane(1252 / 1250)), "plain and chain are level: up to 1.0× plain decoding.");
  assert.equal(said(lane(1), lane(0.8)), "Plain decoding was the fastest.");
  assert.match(
    said(lane(1), lane(3.19), lane(3.2, "lossy")),
    /level: up to 3\.2× .* Not all of them wrote the right text\.$/,
  );
  assert.equal(said(lane(1), lane(2), lane(3.2, false)), "tree is first with 3.2×, but its text is wrong.");
});

test("numbers and shares have a sign for nothing", () => {
  assert.deepEqual(
    [asNumber(1.25, 1), asNumber(Number.NaN, 1), asNumber(null, 1), asNumber(undefined, 2)],
    ["1.3", "–", "–", "–"],
  );
  assert.deepEqual([asShare(0.5), asShare(0.0004), asShare(0), asShare(null)], ["0.500", "< 0.001", "< 0.001", "–"]);
  assert.deepEqual([0.95, 0.96, 1.04, 1.05].map(isLevel), [false, true, true, false]);
});

test("white space of a token is made visible, and markup is not read", () => {
  assert.deepEqual(visible("  a b\n"), { dots: "··", rest: "a b⏎" });
  assert.deepEqual(visible(""), { dots: "", rest: "" });
  assert.equal(visible(" ".repeat(20)).dots.length, 8);
  assert.equal(escapeMarkup("<b>&"), "&lt;b&gt;&amp;");
  assert.equal(plotLabel("<i>abcdef", "#888", 4), "&lt;i&gt;…");
  assert.equal(plotLabel(" a", "#888"), '<span style="color:#888">·</span>a');
});

test("a headline says in how many runs it was found, and what disturbed them", () => {
  const of = (/** @type {object} */ more) => verdictOf({ ...RESULT, ...more }, false).runs;
  const five = { runs: Array(5).fill([1, 0.5]), speedup: 2.9, least: 2.71, most: 3.14 };
  assert.equal(of({}), "");
  assert.equal(of(five), "2.7 to 3.1 in 5 runs.");
  assert.equal(of({ ...five, speedup: 0.5, least: 0.4, most: 0.625 }), "1.6 to 2.5 in 5 runs.");
  assert.equal(of({ ...five, disturbed: "It was." }), "2.7 to 3.1 in 5 runs. It was.");
  assert.equal(of({ disturbed: "It was." }), "It was.");
  assert.match(of({ again: true }), /^The first run; it runs again/);
  assert.equal(of({ ...five, identical: "failed" }), "");
});
