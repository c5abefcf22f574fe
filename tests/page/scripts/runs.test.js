// A run as its screen sees it: asked for, begun, ended, and everything that may go wrong on the way.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const page = load("shared/runs.js");
const { Run, mountWire, refuseUnheard, request, start, stop } = page.runs;
const told = []; // what other parts of the page hear
const dropped = []; // runs that the server is told of
const pressed = [];
globalThis.window.dispatchEvent = (event) => told.push([event.type, event.detail.seq]);
page.pairs = { name: "small" };
page.form = { press: (button) => pressed.push(button) };
page.presence = { drop: (id) => dropped.push(id), keep: () => new Promise(() => {}) };

// A screen that writes down what it is told.
function screen() {
  const heard = [];
  const note =
    (what) =>
    (...given) =>
      heard.push([what, ...given]);
  return {
    heard,
    root: { dataset: {} },
    order: (form) => ({ words: `for ${form.prompt}` }),
    say: note("say"),
    stands: note("stands"),
    feed: ({ seq }) => heard.push(["feed", seq]),
    over: note("over"),
    rest: note("rest"),
  };
}

// A run that was asked for, and what its screen has heard since.
function asked() {
  const made = screen();
  const run = new Run("kind", made);
  const order = run.request({ prompt: "Once" });
  made.heard.length = told.length = dropped.length = pressed.length = 0;
  return { run, order, ...made };
}

const messages = (run, ...numbers) => numbers.map((seq) => ({ run, seq, end: seq === 9 }));

test("what Start sends has the kind, a name of the run's own, the visitor's pair and what the screen asks for", () => {
  const made = screen();
  const run = new Run("kind", made);
  assert.equal(run.state, "idle");
  const order = run.request({ prompt: "Once" });
  assert.deepEqual(order, { kind: "kind", run: run.id, pair: "small", words: "for Once" });
  assert.match(run.id, /^[\w-]{1,64}$/);
  assert.deepEqual(made.heard, [["say", "Waiting for the models …"]]);
  assert.notEqual(run.request({}).run, order.run);
});

test("Start asks the form, and the form's event sends one request and none of its values", () => {
  const { run, heard } = asked();
  run.stop();
  heard.length = pressed.length = 0;
  start("kind");
  assert.deepEqual([pressed, heard], [["#run"], []]);
  const sent = request({ request: "", prompt: "Once" });
  assert.deepEqual(
    [sent.prompt, JSON.parse(sent.request)],
    [null, { kind: "kind", run: run.id, pair: "small", words: "for Once" }],
  );
  page.lab = { view: "kind" };
  run.stop();
  start("lab");
  assert.deepEqual(pressed, ["#run", "#run"]);
});

test("a run that goes on is not asked for again, unless its result is there and it runs again unseen", () => {
  const { run, heard } = asked();
  run.start();
  run.receive({ run: run.id, seq: 1 });
  run.start();
  assert.deepEqual(pressed, []);
  run.receive({ run: run.id, seq: 2, again: true });
  run.start();
  assert.deepEqual(pressed, ["#run"]);
  const before = run.id;
  request({});
  assert.deepEqual([dropped, run.state, run.isAgain], [[before], "asked", false]);
  run.receive({ run: before, seq: 3 });
  assert.deepEqual(heard.slice(2), [["say", "Waiting for the models …"]]);
});

test("a Stop ends the runs of its screen", () => {
  const { run, heard } = asked();
  stop("kind");
  assert.deepEqual([heard, dropped], [[["over", "withdrawn"]], [run.id]]);
});

test("messages in their order are drawn and told to the page, up to the last one", () => {
  const { run, heard, root } = asked();
  const states = [];
  for (const message of [...messages(run.id, 1, 2, 2, 3), { run: run.id, seq: 4, end: true }]) {
    run.receive(message);
    states.push(root.dataset.run);
  }
  assert.deepEqual(states, ["running", "running", "running", "running", "done"]);
  const drawn = [1, 2, 3, 4];
  assert.deepEqual(
    heard,
    drawn.map((seq) => ["feed", seq]),
  );
  assert.deepEqual(
    told,
    drawn.map((seq) => ["kind", seq]),
  );
  run.fail(); // Gradio says so of a stream that has ended in any way
  assert.equal(heard.length, 4);
});

test("a message that never arrived ends the run on every screen, and the server is told", () => {
  const { run, heard } = asked();
  for (const message of messages(run.id, 1, 3, 4)) run.receive(message);
  assert.deepEqual(heard, [
    ["feed", 1],
    ["over", "lost"],
  ]);
  assert.deepEqual([dropped, run.state], [[run.id], "done"]);
});

test("messages of another run, or of one that was stopped, are not heard", () => {
  const { run, heard } = asked();
  const first = run.id;
  run.receive({ run: "another", seq: 1 });
  run.request({});
  for (const message of messages(first, 1, 2)) run.receive(message);
  run.receive({ run: first, place: "behind others" });
  assert.deepEqual(heard, [["say", "Waiting for the models …"]]);
  run.stop();
  for (const message of messages(run.id, 1, 2)) run.receive(message);
  assert.deepEqual(heard.slice(1), [["over", "withdrawn"]]);
  assert.deepEqual(dropped, [first, run.id]);
});

test("how a run ends early is told apart by whether it had begun", () => {
  for (const [begins, what, how] of [
    [false, "fail", "refused"],
    [true, "fail", "failed"],
    [false, "stop", "withdrawn"],
    [true, "stop", "stopped"],
  ]) {
    const { run, heard } = asked();
    if (begins) run.receive({ run: run.id, seq: 1 });
    run[what]();
    run[what]();
    const after = what === "stop" ? [["rest"]] : []; // Stop is pressed again
    assert.deepEqual(heard.slice(begins ? 1 : 0), [["over", how], ...after]);
    assert.deepEqual(dropped, what === "stop" ? [run.id] : []);
  }
});

test("a run whose server is lost before its first word does not wait for ever", () => {
  const silent = asked();
  refuseUnheard();
  assert.deepEqual(silent.heard, [["over", "refused"]]);
  assert.deepEqual([silent.run.state, dropped], ["done", [silent.run.id]]);
  const told = asked();
  told.run.receive({ run: told.run.id, place: "you are next" });
  refuseUnheard(); // its own signs to the server end it
  assert.deepEqual([told.run.state, dropped], ["asked", []]);
  const begun = asked();
  begun.run.receive({ run: begun.run.id, seq: 1 });
  refuseUnheard(); // another run was refused
  assert.deepEqual([begun.run.state, dropped], ["running", []]);
});

test("where a run stands is said while it waits, and later where a screen has a place for it", () => {
  const { run, heard } = asked();
  for (const place of ["you are next", ""]) run.receive({ run: run.id, place });
  run.receive({ run: run.id, seq: 1 });
  run.receive({ run: run.id, place: "every second step" });
  assert.deepEqual(heard, [
    ["say", "you are next"],
    ["say", "Waiting for the models …"],
    ["feed", 1],
    ["stands", "every second step"],
  ]);
});

test("a recorded run is shown as it is, in place of the one that goes on", () => {
  const { run, heard } = asked();
  const live = run.id;
  run.show({ run: "recorded", seq: 7, start: true, end: true });
  assert.deepEqual([run.id, run.state, dropped], ["recorded", "done", [live]]);
  assert.deepEqual(heard, [["feed", 7]]);
  run.receive({ run: live, seq: 1 });
  assert.equal(heard.length, 1);
});

test("a run that is forgotten says nothing any more, and is stopped where it goes on", () => {
  const { run, heard } = asked();
  run.forget();
  run.stop();
  assert.deepEqual([heard, dropped, run.state], [[["rest"]], [run.id], "idle"]);
  run.forget();
  assert.deepEqual(dropped, [run.id]);
});

test("what is shown may be forgotten for the sake of a request", () => {
  const made = screen();
  const run = new Run("kind", made);
  made.order = () => run.forget() ?? { words: "of other prompts" };
  for (const _ of [1, 2]) assert.equal(run.request({}).words, "of other prompts");
  run.receive({ run: run.id, seq: 1 });
  assert.deepEqual([made.heard.at(-1), run.state], [["feed", 1], "running"]);
});

test("the wire hands its strings to the runs that they are of, a failure too", () => {
  const { run, heard } = asked();
  const made = screen();
  const other = new Run("other kind", made);
  other.request({});
  made.heard.length = 0;
  const props = { value: "" };
  let changed = () => {};
  mountWire(props, (_, change) => {
    changed = change;
  });
  for (const message of [
    { run: run.id, seq: 1 },
    { run: other.id, failed: true },
    { run: run.id, failed: true },
  ]) {
    props.value = JSON.stringify(message);
    changed();
  }
  assert.deepEqual(heard, [
    ["feed", 1],
    ["over", "failed"],
  ]);
  assert.deepEqual(made.heard, [["over", "refused"]]);
});

// ---- what outlives a reload

// A page that keeps what was set and shown. It is loaded anew.
function keeping() {
  const loaded = load("shared/elements.js", "shared/runs.js", "masthead/screens.js", "race/race-file.js");
  globalThis.window.addEventListener = () => {};
  globalThis.document.querySelector = () => ({ value: "Once" });
  loaded.view = { addEventListener: () => {} };
  loaded.pairs = { name: "small" };
  return { made: new loaded.raceFile.Keepsake(), kept: loaded.raceFile.kept };
}

// A store that takes so many characters. Without a number every use throws, as where a frame of another site may keep nothing.
function store(most) {
  const values = new Map();
  const made = {
    getItem: (name) => values.get(name) ?? null,
    removeItem: (name) => values.delete(name),
    setItem: (name, value) => {
      if (value.length > most) throw new Error("QuotaExceededError");
      values.set(name, value);
    },
  };
  Object.defineProperty(globalThis, "sessionStorage", {
    configurable: true,
    get() {
      if (most === undefined) throw new Error("SecurityError");
      return made;
    },
  });
  globalThis.performance.getEntriesByType = () => [{ type: "reload" }];
}

test("a browser that keeps nothing loses nothing else", () => {
  store(undefined);
  const { made, kept } = keeping();
  made.keep();
  assert.equal(kept(), null);
});

test("what was kept comes back once", () => {
  store(1000);
  const { made, kept } = keeping();
  made.messages = [{ seq: 1 }];
  made.keep();
  assert.deepEqual(kept(), { query: "pair=small&prompt=Once", messages: [{ seq: 1 }] });
  assert.equal(kept(), null);
});

test("a race that is too long is left out, and the settings stay", () => {
  store(200);
  const { made, kept } = keeping();
  made.messages = [{ text: "x".repeat(300) }];
  made.keep();
  assert.deepEqual(kept(), { query: "pair=small&prompt=Once", messages: [] });
});
