// Presence: tells the server that the page is still there while a run of it goes on. A page that falls silent loses its run, so that
// a lost network holds no part of the device. Knows runs by the server's names for them.
"use strict";

TreeRace.presence = (() => {
  const EVERY = 3000; // milliseconds between two signs
  /** @type {Set<string>} the runs that go on */
  const kept = new Set();

  /**
   * Gives a sign for this run.
   * @param {string} job
   * @returns {Promise<boolean>} whether the run goes on, as far as can be known
   */
  async function sign(job) {
    const answer = await fetch(`alive?job=${encodeURIComponent(job)}&hidden=${document.hidden}`, {
      method: "POST",
    }).catch(
      () => null, // the network is away for a moment, or the server starts anew
    );
    return !answer || (answer.ok && (await answer.json()).here);
  }

  /**
   * Gives signs until the run has ended.
   * @param {string} job
   */
  async function keep(job) {
    if (kept.has(job)) return;
    kept.add(job);
    while (await sign(job)) await new Promise((done) => setTimeout(done, EVERY));
    kept.delete(job);
  }

  // A hidden page's timers are slow. It says so at once, and is given more time.
  document.addEventListener("visibilitychange", () => kept.forEach(sign));

  return { keep };
})();
