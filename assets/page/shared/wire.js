// What comes from the server: JSON strings of a wire become events of the window, and no answer becomes one. Knows their order;
// reads nothing else in them.
"use strict";

TreeRace.wire = (() => {
  /** @type {Map<string, string>} by wire: the name of its last run */
  const jobs = new Map();
  const ON_ITS_WAY = 2000; // milliseconds that the last message may take after the run has ended

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
    /** @type {string | null} the name of the run that goes on */
    let job = null;
    /**
     * Where the run stands among others is told as "place". A run that ends without its last message is told as "over".
     * @param {{ job: string, place: string }} message
     */
    const stand = async ({ place, ...message }) => {
      window.dispatchEvent(new CustomEvent("place", { detail: { channel: name, words: place } }));
      if (message.job === job) return;
      job = message.job;
      await TreeRace.presence.keep(message.job);
      await new Promise((done) => setTimeout(done, ON_ITS_WAY));
      const isWanted = message.job === job && jobs.get(name) === job;
      if (isWanted) window.dispatchEvent(new CustomEvent("over", { detail: { channel: name } }));
    };
    const receive = () => {
      const message = JSON.parse(props.value || "null");
      if (message?.job) return stand(message);
      if (!message || (message.run === run && message.seq <= seq)) return;
      if (message.run !== run) [run, seq] = [message.run, 0];
      const lost = message.seq - seq - 1; // messages of this run that never arrived
      seq = message.seq;
      if (message.end) job = null;
      window.dispatchEvent(new CustomEvent(name, { detail: { ...message, lost } }));
    };
    watch("value", receive);
    receive(); // watch does not report the value that is there at the start
  }

  /**
   * Calls `hear` with every message of the wire of that name.
   * @param {string} name
   * @param {(message: any) => void} hear
   */
  function onWire(name, hear) {
    window.addEventListener(name, (event) => hear(/** @type {CustomEvent} */ (event).detail));
  }

  /**
   * Tells the view where a run of that wire stands among others, and that it is over when it has ended without its last message.
   * @param {string} channel
   * @param {{ stands: (words: string) => void, failed: () => void }} view
   */
  function onRuns(channel, view) {
    onWire("place", (told) => told.channel === channel && view.stands(told.words));
    onWire("over", (told) => told.channel === channel && view.failed());
  }

  /**
   * A name for the run that this wire now asks for.
   * @param {string} channel
   */
  function asked(channel) {
    const name = [Date.now(), ...Array.from({ length: 2 }, () => Math.random() * 2 ** 52)].map((each) =>
      each.toString(36),
    );
    jobs.set(channel, name.join("-").replaceAll(".", ""));
    return jobs.get(channel);
  }

  /**
   * The run of this wire is not wanted any more, also where the server has not told of it yet.
   * @param {string} channel
   */
  function stopped(channel) {
    const job = jobs.get(channel);
    jobs.delete(channel);
    if (job) TreeRace.presence.drop(job);
  }

  return { answered, asked, mountWire, onRuns, onWire, stopped };
})();
