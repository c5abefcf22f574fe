// The stream of news where something ends it on its way: what was missed comes, each event once and whole.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { steady } = load("masthead/news-stream.js").newsStream;
globalThis.setTimeout = (done) => queueMicrotask(done); // no test waits between two tries
const NEWS = "http://here/gradio_api/queue/data?session_hash=abc";
const EVENTS = ["one", "two", "thr\u00e9e", "four"].map((word) => `data: {"text":"${word} \\"close_stream\\""}\n\n`);
const ALL = [...EVENTS, 'data: {"msg":"close_stream"}\n\n'];

// An answer that holds these bytes in pieces, and then ends, or breaks where `error` says how.
function answer(bytes, error, piece = 7) {
  let at = 0;
  const body = new ReadableStream({
    pull(controller) {
      if (at < bytes.length) controller.enqueue(bytes.slice(at, at + piece));
      else if (error) controller.error(error);
      else controller.close();
      at += piece;
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

// A server that keeps all events; each answer holds so many bytes. It says what it was asked for.
function server(...lengths) {
  const asked = [];
  const plain = async (address) => {
    const heard = new URL(address).searchParams.get("heard");
    asked.push(heard);
    const rest = new TextEncoder().encode(ALL.slice(heard === "first" ? 0 : Number(heard)).join(""));
    const [length, error] = lengths.shift() ?? [rest.length];
    return answer(rest.slice(0, length), error);
  };
  return { asked, fetch: steady(plain) };
}

test("an answer that comes whole is read as it is", async () => {
  const { asked, fetch } = server();
  const heard = await fetch(new Request(NEWS));
  assert.equal(heard.headers.get("content-type"), "text/event-stream");
  assert.equal(await heard.text(), ALL.join(""));
  assert.deepEqual(asked, ["first"]);
});

test("where an answer ends or breaks, in an event or behind one, the rest is asked for and nothing comes twice", async () => {
  const { length } = EVENTS[0];
  const { asked, fetch } = server([length + 20], [length, new TypeError("network error")], [0], [3]);
  const heard = await fetch(NEWS);
  assert.equal(await heard.text(), ALL.join(""));
  assert.deepEqual(asked, ["first", "1", "2", "2", "2"]);
});

test("a server that is away for a moment is asked again, and one that stays away ends the stream", async () => {
  for (const [away, whole] of [
    [7, true],
    [8, false],
  ]) {
    let times = 0;
    const fetch = steady(async () => {
      if (times++ === 0) return answer(new TextEncoder().encode(ALL[0]));
      if (times <= 1 + away) throw new TypeError("Failed to fetch");
      return answer(new TextEncoder().encode(ALL.slice(1).join("")));
    });
    const heard = (await fetch(NEWS)).text();
    if (whole) assert.equal(await heard, ALL.join(""));
    else await assert.rejects(heard, /Failed to fetch/);
  }
});

test("news that the server keeps no more end the stream as the break would have", async () => {
  let times = 0;
  const fetch = steady(async () =>
    times++ ? new Response("{}", { status: 404 }) : answer(new TextEncoder().encode(ALL[0])),
  );
  await assert.rejects((await fetch(NEWS)).text(), /does not keep the rest/);
  assert.equal(times, 2);
});

test("a stream that Gradio ends itself is not asked for again", async () => {
  const ending = new AbortController();
  let times = 0;
  const fetch = steady(async (_, { signal }) => {
    times++;
    assert.equal(signal.aborted, false);
    const aborted = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    return new Response(new ReadableStream({ pull: () => aborted }));
  });
  const heard = (await fetch(new Request(NEWS, { signal: ending.signal }))).text();
  ending.abort();
  await assert.rejects(heard, { name: "AbortError" });
  assert.equal(times, 1);
});

test("whatever else is fetched stays as it is", async () => {
  const given = [];
  const fetch = steady((...all) => given.push(all));
  fetch("alive?run=one", { method: "POST" });
  fetch("http://here/gradio_api/queue/join", undefined);
  assert.deepEqual(given, [
    ["alive?run=one", { method: "POST" }],
    ["http://here/gradio_api/queue/join", undefined],
  ]);
});
