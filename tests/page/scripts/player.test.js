// The clock that plays a race: speeds, pauses, the end, and when it asks for frames.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { Player, haste, speedWords } = load(
  "shared/elements.js",
  "shared/numbers.js",
  "shared/steps.js",
  "shared/player.js",
).player;

// A race of so many seconds that writes down what the player tells it, and the frames that the browser would run.
function made({ rate = 1, seconds = 10, isOver = true } = {}) {
  const frames = [];
  globalThis.requestAnimationFrame = (frame) => frames.push(frame);
  const race = {
    horizon: seconds,
    isOver,
    shown: [],
    ends: 0,
    changes: 0,
    show(animate) {
      this.shown.push([player.time, animate]);
    },
    ended() {
      this.ends += 1;
      player.pause();
    },
    changed() {
      this.changes += 1;
    },
  };
  const player = new Player({ fitting: 1, rateAt: () => rate }, race);
  const run = (...times) => {
    for (const now of times) for (const frame of frames.splice(0)) frame(now);
  };
  return { player, race, frames, run };
}

const near = (value, expected) => assert.ok(Math.abs(value - expected) < 1e-9, `${value} is not ${expected}`);

test("the first frame starts the clock, the next ones move it", () => {
  const { player, run } = made();
  player.play();
  run(1000);
  near(player.time, 0);
  run(1016, 1033);
  near(player.time, 0.033);
});

test("a speed stretches the time", () => {
  for (const [rate, expected] of [
    [10, 0.01],
    [4, 0.025],
    [1, 0.1],
    [0.25, 0.4],
  ]) {
    const { player, run } = made({ rate });
    player.play();
    run(0, 100);
    near(player.time, expected);
  }
});

test("a page that was hidden goes on where it was", () => {
  const { player, run } = made();
  player.play();
  run(0, 60_000);
  near(player.time, 0.25);
});

test("time that passes in a pause does not count", () => {
  const { player, run } = made();
  player.play();
  run(0, 100);
  player.pause();
  run(116);
  player.play();
  run(5000, 5100);
  near(player.time, 0.2);
});

test("no frame is asked for while nothing is played", () => {
  const { player, frames, run } = made({ seconds: 0.05 });
  assert.equal(frames.length, 0);
  player.play();
  player.play();
  assert.equal(frames.length, 1);
  run(0, 50, 66);
  assert.equal(frames.length, 0);
  player.seek(0);
  assert.equal(frames.length, 0);
});

test("it waits at the horizon while more is on its way", () => {
  const { player, race, run } = made({ seconds: 0.05, isOver: false });
  player.play();
  run(0, 100, 200);
  assert.deepEqual([player.time, player.playing, player.atEnd, race.ends], [0.05, true, false, 0]);
  race.horizon = 1;
  run(250);
  near(player.time, 0.1);
});

test("the end is told once, after the last picture", () => {
  const { player, race, run } = made({ seconds: 0.15 });
  player.play();
  run(0, 100, 200, 300, 400);
  assert.equal(race.ends, 1);
  assert.deepEqual(race.shown, [
    [0, true],
    [0.1, true],
    [0.15, true],
  ]);
  assert.equal(player.playing, false);
});

test("toggle pauses, goes on, and begins anew at the end", () => {
  const { player, run } = made({ seconds: 0.15 });
  player.toggle();
  run(0, 100);
  player.toggle();
  assert.deepEqual([player.playing, player.time], [false, 0.1]);
  player.toggle();
  run(200, 300, 400);
  assert.equal(player.atEnd, true);
  player.toggle();
  assert.deepEqual([player.playing, player.time], [true, 0]);
});

test("seek stands still there, at the horizon at most, and shows it without motion", () => {
  const { player, race } = made({ seconds: 2 });
  player.play();
  player.seek(1.5);
  assert.deepEqual([player.time, player.playing], [1.5, false]);
  player.seek(99);
  assert.equal(player.time, 2);
  assert.deepEqual(race.shown, [
    [1.5, false],
    [2, false],
  ]);
});

test("scrub goes to a step, the first or the last at most", () => {
  const { player } = made();
  const steps = [{ t: 0.5 }, { t: 1 }, { t: 4 }];
  const times = [-3, 0, 1, 2, Infinity].map((index) => {
    player.scrub(steps, index);
    return player.time;
  });
  assert.deepEqual(times, [0.5, 0.5, 1, 4, 4]);
  player.scrub([], 0);
  assert.equal(player.time, 4);
});

test("skip shows the end and tells it", () => {
  const { player, race } = made({ seconds: 3 });
  player.play();
  player.skip();
  assert.deepEqual([player.time, race.ends, player.atEnd], [3, 1, true]);
});

test("play, pause and the end are told as changes", () => {
  const { player, race, run } = made({ seconds: 0.05 });
  player.play();
  player.pause();
  player.play();
  run(0, 100);
  assert.equal(race.changes, 4);
});

test("reset forgets the time and stops", () => {
  const { player, run } = made();
  player.play();
  run(0, 100);
  player.reset();
  assert.deepEqual([player.time, player.playing], [0, false]);
});

test("a race is played faster and faster, and takes as long as at a steady pace", () => {
  assert.ok(haste(0) < 0.5 && haste(1) > 1.9);
  let [share, turns] = [0, 0];
  for (; share < 1; turns += 1) share += 0.001 * haste(share);
  assert.ok(Math.abs(turns - 1000) < 15, `${turns} turns`);
});

test("the share of the race that is over decides the pace, over what is known of its length", () => {
  const asked = [];
  const speeds = { fitting: 4, rateAt: (share) => asked.push(share) && 1 };
  const frames = [];
  globalThis.requestAnimationFrame = (frame) => frames.push(frame);
  const race = { horizon: 0.5, isOver: false, show() {}, ended() {}, changed() {} };
  const player = new Player(speeds, race);
  player.play();
  for (const now of [0, 100, 200]) for (const frame of frames.splice(0)) frame(now);
  assert.deepEqual(asked, [0, 0, 0.1 / 2.5]); // 10 s on the page are 2.5 s on the clocks
});

test("speeds in words", () => {
  assert.deepEqual([150.4, 37.2, 1.02, 1, 0.2].map(speedWords), [
    "about 1/150 of real time; clocks as measured",
    "about 1/37 of real time; clocks as measured",
    "real time",
    "real time",
    "about 5 times real time; clocks as measured",
  ]);
});
