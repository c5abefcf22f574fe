// What comes from the server: JSON strings of a wire become events of the window, and no answer becomes one. Knows their order;
// reads nothing else in them.
"use strict";

TreeRace.wire = (() => {
  /**
   * What was asked of the server; without an answer, a refusal as the server words its own.
   * @template Answer
   * @param {Promise<Answer>} asked
   * @returns {Promise<Answer & { refused?: string }>}
   */
  const answered = (asked) =>
    asked.catch(() => /** @type {any} */ ({ refused: "The server did not answer. Try again." }));

  /**
   * @param {string} name of the window's event
   * @param {{ value: string }} props
   * @param {(name: string, changed: () => void) => void} watch
   */
  function mountWire(name, props, watch) {
    /** @type {string | null} */
    let run = null;
    let seq = 0;
    const receive = () => {
      const message = JSON.parse(props.value || "null");
      if (message?.job) return stand(name, message);
      if (!message || (message.run === run && message.seq <= seq)) return;
      if (message.run !== run) [run, seq] = [message.run, 0];
      const lost = message.seq - seq - 1; // messages of this run that never arrived
      seq = message.seq;
      window.dispatchEvent(new CustomEvent(name, { detail: { ...message, lost } }));
    };
    watch("value", receive);
    receive(); // watch does not report the value that is there at the start
  }

  /**
   * Where a run stands among others becomes an event of the window, "place".
   * @param {string} channel
   * @param {{ job: string, place: string }} message
   */
  function stand(channel, { job, place }) {
    TreeRace.presence.keep(job);
    window.dispatchEvent(new CustomEvent("place", { detail: { channel, words: place } }));
  }

  /**
   * Calls `hear` with every message of the wire of that name.
   * @param {string} name
   * @param {(message: any) => void} hear
   */
  function onWire(name, hear) {
    window.addEventListener(name, (event) => hear(/** @type {CustomEvent} */ (event).detail));
  }

  return { answered, mountWire, onWire };
})();
