// The page and its server: asks it questions outside of a run, tells it that the page is there while a run of it goes on, and follows how
// far the engine is until all is ready. A page that falls silent loses its run, so that a lost network holds no part of the device.

TreeRace.presence = (() => {
  const EVERY = 2000; // milliseconds between two signs
  const WATCHED = 8000; // milliseconds between two signs of a page without a run
  const BUSY = 6000; // milliseconds that a server may take which compiles, where no run's end depends on it
  const AWAY = 2; // signs in a row without an answer, after which the server counts as lost
  const READY_MS = 700; // between two answers on how far the engine is
  // What was asked of the server; without an answer, a refusal as the server words its own.
  /** @type {<Answer>(asked: Promise<Answer>) => Promise<Answer & { refused?: string }>} */
  const answered = (asked) =>
    asked.catch(() => /** @type {any} */ ({ refused: "The server did not answer. Try again." }));

  // Questions of one place on the page, such as a card's or a field's: what was asked last is answered alone.
  class Questions {
    /** @type {Promise<unknown> | undefined} what was asked last */
    asked = undefined;

    /**
     * What was asked, as `answered`; null where another question was asked meanwhile, or this one dropped.
     * @template Answer
     * @param {Promise<Answer>} asked
     */
    async last(asked) {
      this.asked = asked;
      const answer = await answered(asked);
      return asked === this.asked ? answer : null;
    }

    // Nobody waits for an answer any more.
    drop() {
      this.asked = undefined;
    }
  }

  /** @type {Set<string>} the runs that go on */
  const kept = new Set();

  /**
   * @param {string} run
   * @param {"shown" | "hidden" | "gone"} page
   * @param {number} patience milliseconds that the answer may take
   * @returns {Promise<boolean | null>} whether the run goes on; null when nobody answers
   */
  async function sign(run, page = document.hidden ? "hidden" : "shown", patience = EVERY) {
    const asked = `alive?run=${encodeURIComponent(run)}&page=${page}`;
    try {
      const answer = await fetch(asked, { method: "POST", keepalive: true, signal: AbortSignal.timeout(patience) });
      return answer.ok ? (await answer.json()).here : null;
    } catch {
      return null; // time may be up in the middle of an answer too
    }
  }

  // Gives signs until the run has ended or the server is lost.
  /** @param {string} run */
  async function keep(run) {
    kept.add(run);
    for (let silent = 0; silent < AWAY; ) {
      const here = await sign(run);
      if (here === false) break;
      silent = here ? 0 : silent + 1;
      await new Promise((done) => setTimeout(done, EVERY));
    }
    kept.delete(run);
  }

  // Tells `hear` when the server no longer answers, and when it does again, also while no run goes on.
  /** @param {(there: boolean) => void} hear */
  async function watch(hear) {
    for (let silent = 0; ; ) {
      await new Promise((done) => setTimeout(done, WATCHED));
      if (document.hidden) continue;
      const before = silent;
      silent = (await sign("none", "shown", BUSY)) === null ? silent + 1 : 0;
      if (silent === AWAY) hear(false);
      if (!silent && before >= AWAY) hear(true);
    }
  }

  // A hidden page's timers are slow. It says so at once, and is given more time.
  document.addEventListener("visibilitychange", () => {
    for (const run of kept) sign(run);
  });

  // The server would wait for it to come again.
  window.addEventListener("pagehide", () => {
    for (const run of kept) sign(run, "gone");
  });

  /** @param {string} run that the visitor no longer wants */
  const drop = (run) => sign(run, "gone");

  /**
   * Calls `hear` with every answer. The last one says that all is ready, and so does a server that knows no such question.
   * @param {(status: Readiness) => void} hear
   * @param {() => boolean} [isComing] whether this page is about to ask for the live one: the engine then rests until it is there
   */
  async function followReadiness(hear, isComing) {
    for (;;) {
      const asked = isComing?.() ? "readiness?coming" : "readiness";
      const answer = await fetch(asked, { cache: "no-store" }).catch(() => null); // null: the server starts anew
      if (answer) {
        /** @type {Readiness} */
        const status = answer.ok ? await answer.json() : { words: "", live: true, ready: true };
        hear(status);
        if (status.ready) return;
      }
      await new Promise((done) => setTimeout(done, READY_MS));
    }
  }

  return { Questions, answered, drop, followReadiness, keep, watch };
})();
