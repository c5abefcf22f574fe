// What Gradio mounts, each part in a task of its own, where it finds its server, and its stream of news where something ends that.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const vm = require("node:vm");
const { load, source } = require("./load.js");

const PARTS = {
  runs: "mountWire",
  masthead: "mountHeader",
  chatTurns: "mountChat",
  raceView: "mountRace",
  prixView: "mountPrix",
  labViews: "mountLab",
  walkView: "mountWalk",
};

test("each part is filled in a task of its own, after the one that builds all", () => {
  const filled = [];
  const tasks = [];
  globalThis.setTimeout = (task) => tasks.push(task);
  const page = load();
  for (const [part, mount] of Object.entries(PARTS)) {
    page[part] = { [mount]: (element, value) => filled.push([element, value.words]) };
  }
  vm.runInThisContext(source("shared/gradio.js"));
  const mounts = Object.values(PARTS);
  for (const [part, mount] of Object.entries(PARTS)) {
    page.gradio.mount(`${part}.${mount}`, mount, { value: '{"words": "…"}' }, {});
  }
  assert.equal(tasks.length, mounts.length);
  for (const [at, mount] of mounts.entries()) {
    assert.deepEqual(filled.splice(0), []);
    tasks[at]();
    assert.deepEqual(filled.splice(0), [[mount, "…"]]);
  }
});

// ---- where the page finds its server

// What a page at that address does: where it goes, what it says, and where Gradio looks for its server.
function settled(address, origin = new URL(address).origin, root = "http://inside:7860") {
  const loaded = load("masthead/own-address.js");
  const said = [];
  const went = [];
  const { pathname, search, hash } = new URL(address);
  globalThis.location = { origin: new URL(address).origin, pathname, search, hash, replace: (to) => went.push(to) };
  globalThis.window = { origin, gradio_config: { root } };
  globalThis.document = { createElement: () => ({}), body: { prepend: (words) => said.push(words.textContent) } };
  const { FRAMED, settle } = loaded.ownAddress;
  settle();
  delete globalThis.location;
  return { FRAMED, said, went, root: globalThis.window.gradio_config.root };
}

test("Gradio's server is where the document came from, also under a sub-path that the server knows nothing of", () => {
  assert.equal(settled("https://example.org/").root, "https://example.org");
  assert.equal(settled("https://example.org/deep/race/?prompt=a#lab").root, "https://example.org/deep/race");
});

test("a sub-path without its slash is asked for with one, and nothing of the address is lost", () => {
  const { went, said } = settled("https://example.org/race?prompt=a#lab");
  assert.deepEqual(went, ["https://example.org/race/?prompt=a#lab"]);
  assert.deepEqual(said, []);
});

test("in a frame that keeps the page from its server the page says what the frame needs", () => {
  const { FRAMED, said, went, root } = settled("https://example.org/race", "null");
  assert.deepEqual(said, [FRAMED]);
  assert.deepEqual([went, root], [[], "http://inside:7860"]);
  assert.match(FRAMED, /allow-same-origin/);
});

// ---- the stream of news, of which each event comes once and whole

// A `fetch` over that one, whose tries do not wait for one another.
function keepStreams(plain) {
  globalThis.setTimeout = (done) => queueMicrotask(done);
  return load("masthead/news-stream.js").newsStream.keepStreams(plain);
}

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
  return { asked, fetch: keepStreams(plain) };
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
    const fetch = keepStreams(async () => {
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
  const fetch = keepStreams(async () =>
    times++ ? new Response("{}", { status: 404 }) : answer(new TextEncoder().encode(ALL[0])),
  );
  await assert.rejects((await fetch(NEWS)).text(), /does not keep the rest/);
  assert.equal(times, 2);
});

test("a stream that Gradio ends itself is not asked for again", async () => {
  const ending = new AbortController();
  let times = 0;
  const fetch = keepStreams(async (_, { signal }) => {
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
  const fetch = keepStreams((...all) => given.push(all));
  fetch("alive?run=one", { method: "POST" });
  fetch("http://here/gradio_api/queue/join", undefined);
  assert.deepEqual(given, [
    ["alive?run=one", { method: "POST" }],
    ["http://here/gradio_api/queue/join", undefined],
  ]);
});
