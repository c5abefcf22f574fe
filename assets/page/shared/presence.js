// The page and its server: tells the server that the page is there while a run of it goes on, and asks how far the engine is until all is
// ready. A page that falls silent loses its run, so that a lost network holds no part of the device. Knows runs by the server's names.

TreeRace.presence = (() => {
  const EVERY = 2000; // milliseconds between two signs
  const WATCHED = 8000; // milliseconds between two signs of a page without a run
  const BUSY = 6000; // milliseconds that a server may take which compiles, where no run's end depends on it
  const AWAY = 2; // signs in a row without an answer, after which the server counts as lost
  const READY_MS = 700; // between two answers on how far the engine is
  /** @type {Set<string>} the runs that go on */
  const kept = new Set();

  /**
   * Gives a sign for this run.
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

  /**
   * Gives signs until the run has ended or the server is lost.
   * @param {string} run
   */
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

  /**
   * Tells `hear` when the server no longer answers, and when it does again, also while no run goes on.
   * @param {(there: boolean) => void} hear
   */
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

  /**
   * The visitor no longer wants this run.
   * @param {string} run
   */
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

  return { drop, followReadiness, keep, watch };
})();
