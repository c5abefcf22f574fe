// What a lane did up to a time.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { Steps, depthsOf, horizon, retimed } = load("shared/numbers.js", "shared/steps.js").steps;

function lane(...steps) {
  const made = new Steps();
  for (const [t, tokens, end = ""] of steps) made.push({ t, burst: Array(tokens).fill(7), end });
  return made;
}

test("a lane without steps has done nothing", () => {
  const empty = lane();
  assert.deepEqual([empty.stepsAt(5), empty.tokens, empty.lastTime, empty.ended], [0, 0, 0, false]);
});

test("a step counts from its own time on", () => {
  const made = lane([0.1, 3], [0.25, 1], [0.4, 2]);
  const counts = [0, 0.0999, 0.1, 0.2499, 0.25, 0.39, 0.4, 9].map((time) => made.stepsAt(time));
  assert.deepEqual(counts, [0, 0, 1, 1, 2, 2, 3, 3]);
});

test("a time that rounding has made a little smaller reaches its step", () => {
  assert.equal(lane([0.1 + 0.2, 1]).stepsAt(0.3), 1);
});

test("totals are the tokens after every step", () => {
  const made = lane([0.1, 3], [0.25, 1], [0.4, 2]);
  assert.deepEqual(made.totals, [0, 3, 4, 6]);
  assert.equal(made.tokens, 6);
});

test("only the last step's end ends the lane", () => {
  assert.equal(lane([0.1, 1], [0.2, 1]).ended, false);
  assert.equal(lane([0.1, 1], [0.2, 1, "length"]).ended, true);
});

test("a lane that forgets is as new", () => {
  const made = lane([0.1, 3, "stop"]);
  made.forget();
  assert.deepEqual([made.steps, made.totals, made.ended], [[], [0], false]);
});

test("the clocks run as far as the slowest open lane, and to the last end when none is open", () => {
  const [ended, open, later] = [lane([0.2, 1, "stop"]), lane([0.5, 1]), lane([0.9, 1])];
  assert.equal(horizon([ended, open, later]), 0.5);
  assert.equal(horizon([ended, lane()]), 0);
  assert.equal(horizon([ended, lane([0.7, 1, "length"])]), 0.7);
});

test("another run's times take the place of the first one's, and nothing else does", () => {
  const lanes = [lane([0.1, 3], [0.25, 1, "stop"]), lane([0.2, 4, "stop"])];
  assert.equal(retimed(lanes, { end: true }).end, true);
  assert.equal(lanes[0].lastTime, 0.25);
  const verify = (/** @type {number} */ each) => ({ verify: each });
  const times = [
    [
      [0.05, verify(0.05)],
      [0.15, verify(0.1)],
    ],
    [[0.3, verify(0.3)]],
  ];
  retimed(lanes, { times });
  assert.deepEqual(
    lanes.map(({ steps }) => steps.map(({ t, seconds, burst }) => [t, seconds.verify, burst.length])),
    [
      [
        [0.05, 0.05, 3],
        [0.15, 0.1, 1],
      ],
      [[0.3, 0.3, 4]],
    ],
  );
  assert.equal(horizon(lanes), 0.3);
});

test("depths count edges from the root", () => {
  assert.deepEqual(depthsOf([-1, 0, 0, 1, 3]), [0, 1, 1, 2, 3]);
});
