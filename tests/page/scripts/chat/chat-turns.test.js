// Which turns the next race goes on with: Reply keeps the shown answer, New chat and another pair drop them.
"use strict";

const assert = require("node:assert/strict");
const { beforeEach, test } = require("node:test");
const { load } = require("../load.js");

const TreeRace = load(
  "shared/elements.js",
  "shared/form.js",
  "shared/numbers.js",
  "shared/popover.js",
  "masthead/screens.js",
  "chat/earlier-turns.js",
  "chat/chat-turns.js",
);
const { ChatTurns } = TreeRace.chatTurns;
const { countWords } = TreeRace.earlierTurns;

const change = new Event("change");
const screen = { toggleAttribute: (name, on) => (screen[name] = on) };
let box, buttons, chat;

const lane = (...texts) => ({ steps: texts.map((text) => ({ pieces: ["", text] })) });

// A race that is over, as the view shows it.
function shown(trace = {}, more = {}) {
  const about = { prompt: "Who?", chat: true, pair: "mine", ...trace };
  const race = { run: "1", told: true, isLive: false, result: { finished: true, identical: true } };
  const lanes = [lane("Ada", " did."), lane("She", " did.")];
  Object.assign(TreeRace.view, race, { systems: [{ trace: about }, { trace: about }], lanes }, more);
  TreeRace.view.dispatchEvent(change);
}

const sent = () => chat.turns.map((turn) => [...turn]);
const click = (name) => buttons[`[data-${name}]`].dispatchEvent(new Event("click"));
const offersReply = () => !buttons["[data-reply]"].disabled;

beforeEach(() => {
  box = Object.assign(new EventTarget(), { value: "Who?", placeholder: "Write", focus: () => (box.focused = true) });
  buttons = Object.fromEntries(["[data-reply]", "[data-anew]"].map((name) => [name, new EventTarget()]));
  document.querySelector = (name) => (name === "#screen" ? screen : box);
  TreeRace.view = Object.assign(new EventTarget(), {
    run: null,
    systems: [],
    told: false,
    result: null,
    isLive: false,
  });
  TreeRace.pairs = Object.assign(new EventTarget(), { spoken: { title: "mine", chat: true } });
  chat = new ChatTurns({ querySelector: (name) => buttons[name] });
});

test("Reply keeps the request and the left lane's answer, empties the prompt and waits for the next race", () => {
  assert.equal(offersReply(), false);
  shown();
  assert.equal(offersReply(), true);
  click("reply");
  assert.deepEqual(sent(), [["Who?", "Ada did."]]);
  assert.deepEqual([box.value, box.focused, box.placeholder], ["", true, "Reply … (after 1 earlier turn)"]);
  assert.equal(offersReply(), false);
  shown({ prompt: "When?", turns: sent() }, { run: "2", lanes: [lane("Then."), lane("Then.")] });
  click("reply");
  assert.deepEqual(sent(), [
    ["Who?", "Ada did."],
    ["When?", "Then."],
  ]);
});

test("New chat drops the turns, and the shown answer can be taken up again", () => {
  shown();
  click("reply");
  click("anew");
  assert.deepEqual([sent(), box.placeholder, offersReply()], [[], "Write", true]);
  assert.equal(buttons["[data-anew]"].disabled, true);
});

test("a race that is opened brings its turns along, and one without turns begins anew", () => {
  shown({ turns: [["Hi", "Hello!"]] });
  assert.deepEqual(sent(), [["Hi", "Hello!"]]);
  shown({}, { run: "2" });
  assert.deepEqual(sent(), []);
});

test("nothing is offered behind a race that is no whole chat of this pair", () => {
  const none = { result: { finished: false, identical: true } };
  for (const [trace, more] of [
    [{ chat: false }, {}],
    [{ pair: "another" }, {}],
    [{}, none],
    [{}, { result: null }],
    [{}, { told: false }],
    [{}, { isLive: true }],
    [{}, { result: { identical: "failed" } }],
  ]) {
    shown(trace, more);
    assert.equal(offersReply(), false, JSON.stringify([trace, more]));
  }
});

test("another pair drops the turns, and one that does not chat shows no control", () => {
  shown();
  click("reply");
  TreeRace.pairs.dispatchEvent(change);
  assert.deepEqual([sent().length, screen["data-chats"]], [1, true]);
  TreeRace.pairs.spoken = { title: "another", chat: false };
  TreeRace.pairs.dispatchEvent(change);
  assert.deepEqual([sent(), screen["data-chats"], offersReply()], [[], false, false]);
});

test("turns are counted in words", () => {
  assert.deepEqual([[1], [1, 2]].map(countWords), ["1 earlier turn", "2 earlier turns"]);
});
