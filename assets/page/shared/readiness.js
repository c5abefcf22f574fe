// Readiness: asks the server how far the engine is, until all is ready. Knows the answer's fields; who follows it shows them.

TreeRace.readiness = (() => {
  const EVERY = 700; // milliseconds between two answers

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
      await new Promise((done) => setTimeout(done, EVERY));
    }
  }

  return { followReadiness };
})();
