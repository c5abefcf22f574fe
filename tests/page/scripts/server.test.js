// What the page asks of its server: signs of a run until it has ended or the server is lost, and questions of which the last one of a
// place is answered alone, however late the others' answers come.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { presence, promptFile } = load(
  "shared/elements.js",
  "shared/numbers.js",
  "shared/presence.js",
  "lab/prompt-file.js",
);

const answer = (here) => ({ ok: true, json: async () => ({ here }) });
const late = new DOMException("signal timed out", "TimeoutError");
const cut = () => ({ ok: true, json: () => Promise.reject(late) });

// How many signs a run gets, when they are answered so.
async function signs(...answers) {
  let given = 0;
  globalThis.setTimeout = (then) => queueMicrotask(then); // nothing here waits for a clock
  globalThis.fetch = async () => {
    const next = answers[given++];
    if (next instanceof Error) throw next;
    return next;
  };
  await presence.keep("a-run");
  return given;
}

test("signs are given until the run has ended", async () => {
  assert.equal(await signs(answer(true), answer(true), answer(false)), 3);
});

test("a server that twice in a row gives no answer, or no whole one, is lost", async () => {
  assert.equal(await signs(late, answer(true), cut(), answer(true), cut(), late), 6);
});

// A question whose answer comes when the test says so.
function asked() {
  let give;
  const answer = new Promise((done) => {
    give = done;
  });
  return { answer, give };
}

test("of two questions the last one counts, whichever answer comes first", async () => {
  const questions = new presence.Questions();
  const [older, newer] = [asked(), asked()];
  const found = [questions.last(older.answer), questions.last(newer.answer)];
  newer.give({ words: "newer" });
  older.give({ words: "older" });
  assert.deepEqual(await Promise.all(found), [null, { words: "newer" }]);
});

test("a question that was dropped is not answered, and one without an answer is refused", async () => {
  const questions = new presence.Questions();
  const dropped = questions.last(Promise.resolve({ words: "late" }));
  questions.drop();
  assert.equal(await dropped, null);
  assert.match((await questions.last(Promise.reject(new Error("lost")))).refused, /did not answer/);
});

// A file of prompts on a page of which nothing is seen, read by a server that answers when the test says so.
function page() {
  const [said, kept, readings] = [[], [], {}];
  const say = (words) => said.push(words);
  const heard = { addEventListener: () => {} };
  const root = { ...heard, querySelector: () => heard };
  const read = (name) => {
    readings[name] = asked();
    return readings[name].answer;
  };
  TreeRace.pairs = { gallery: { stories: [{ prompt: "from the page" }] } };
  const file = new promptFile.PromptFile(read);
  file.serve(root, say, () => kept.push(file.prompts));
  const take = (each) => file.take(each, say);
  return { file, take, said, kept, readings };
}

const chosen = (name, bytes = [65]) => ({ name, arrayBuffer: async () => new Uint8Array(bytes).buffer });
const read = () => new Promise((done) => setImmediate(done)); // until files are read and answers are heard

test("an older file's late answer takes nothing back", async () => {
  const { take, said, kept, readings } = page();
  take(chosen("older"));
  take(chosen("newer"));
  await read();
  readings.newer.give({ prompts: ["newer"] });
  readings.older.give({ refused: "The older file is wrong." });
  await read();
  assert.deepEqual([said, kept], [[], [["newer"]]]);
});

test("a file that is no text says nothing behind a newer choice", async () => {
  const { file, take, said, kept } = page();
  take(chosen("picture", [255]));
  file.takeGallery();
  await read();
  assert.deepEqual([said, kept], [[], [["from the page"]]]);
  take(chosen("picture", [255]));
  await read();
  assert.deepEqual(said, ["picture is not UTF-8 text."]);
});
