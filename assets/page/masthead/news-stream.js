// The stream of news that Gradio reads: it goes on where something between here and the server has ended it. Knows its address, and that
// each event of it ends with an empty line; knows no run.

TreeRace.newsStream = (() => {
  const NEWS = "/gradio_api/queue/data?";
  const END = "\n\n"; // of an event
  const LAST = '"close_stream"'; // in the last event; what a run tells has its quotes escaped
  const [TRIES, TRY_MS] = [8, 500]; // the server keeps the rest for ten seconds

  // The whole events of an answer. What a break has cut off is left out.
  /** @param {Response} answer */
  async function* eventsOf(answer) {
    const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
    const decoder = new TextDecoder();
    for (let text = ""; ; ) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (text + decoder.decode(value, { stream: true })).split(END);
      text = /** @type {string} */ (events.pop());
      yield* events;
    }
  }

  /**
   * The events of the answers that follow one another, up to the last event.
   * @param {Response} answer
   * @param {(heard: number) => Promise<Response>} askAgain asks for what comes behind so many events
   * @param {AbortSignal} signal
   */
  async function* joinEvents(answer, askAgain, signal) {
    for (let heard = 0; ; ) {
      try {
        for await (const event of eventsOf(answer)) {
          heard++;
          yield event;
          if (event.includes(LAST)) return;
        }
      } catch (error) {
        if (signal.aborted) throw error;
      }
      answer = await askAgain(heard);
    }
  }

  /**
   * A `fetch` whose streams of news do not break. Where the server keeps them no more, they fail as they would have.
   * @param {typeof fetch} plain
   * @returns {typeof fetch}
   */
  function keepStreams(plain) {
    /** @param {Request} request */
    async function listen({ url, headers, signal }) {
      /** @param {number | "first"} heard so many events */
      const ask = (heard) => plain(`${url}&heard=${heard}`, { headers, signal });
      /** @param {number} heard */
      async function askAgain(heard) {
        for (let tries = 1; ; tries++) {
          await new Promise((done) => setTimeout(done, TRY_MS));
          const answer = await ask(heard).catch((error) => {
            if (signal.aborted || tries === TRIES) throw error;
            return null;
          });
          if (answer?.ok) return answer;
          if (answer) throw new Error("The server does not keep the rest of this stream.");
        }
      }
      const first = await ask("first");
      if (!first.ok) return first;
      const events = joinEvents(first, askAgain, signal);
      const encoder = new TextEncoder();
      const body = new ReadableStream({
        async pull(controller) {
          const { done, value } = await events.next();
          if (done) controller.close();
          else controller.enqueue(encoder.encode(value + END));
        },
      });
      return new Response(body, { headers: first.headers });
    }
    return (asked, options) => {
      const url = asked instanceof Request ? asked.url : String(asked);
      return url.includes(NEWS) ? listen(new Request(asked, options)) : plain(asked, options);
    };
  }

  if (window.fetch) window.fetch = keepStreams(window.fetch.bind(window));

  return { keepStreams };
})();
