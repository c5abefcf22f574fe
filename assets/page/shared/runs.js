// A run on the page, from the click to its last message: its one name, its states, what is missing of it. Knows the order of messages.
// What is asked for, how a message is drawn and what is said of an early end, the run's screen knows. All runs share one event and one wire.

TreeRace.runs = (() => {
  const WAITING = "Waiting for the models …";
  /** @type {Record<RunEnd, string>} how long work ended, as the beginning of a sentence */
  const ENDED = {
    refused: "Ended early",
    withdrawn: "Stopped",
    failed: "Ended early",
    stopped: "Stopped",
    lost: "Part of the results was lost on its way here",
  };
  const ON_ITS_WAY = 2000; // milliseconds that the last message may take after the run has ended
  /** @type {Record<string, Run<any>>} the runs by kind */
  const on = {};
  /** @type {Run<any> | null} the run that asks for the form's values */
  let starting = null;

  /** @template {RunMessage} Message of the kind */
  class Run {
    id = ""; // of the run that was asked for last, or is shown
    seq = 0; // of its last message
    isKept = false; // the server is told that the page is there
    isFresh = true; // nobody has asked for a run or chosen what it is about
    isAgain = false; // its result is there, and it runs again, unseen
    /** @type {"idle" | "asked" | "running" | "done"} */
    state = "idle";

    /**
     * @param {string} kind as `engine/page/screens/requests.py` knows it
     * @param {RunScreen<Message>} screen
     */
    constructor(kind, screen) {
      this.kind = kind;
      this.screen = screen;
      on[kind] = this;
    }

    get isOpen() {
      return this.state === "asked" || this.state === "running";
    }

    /** @param {Run<Message>["state"]} state */
    become(state) {
      this.state = this.screen.root.dataset.run = state;
    }

    /** @param {string} id of a run of which nothing has arrived; it takes the place of one that goes on */
    begin(id) {
      if (this.isOpen) TreeRace.presence.drop(this.id);
      this.id = id;
      this.seq = 0;
      this.isKept = this.isFresh = this.isAgain = false;
      this.become("asked");
    }

    // Asks the server for a run of what the screen and the form say; not while one goes on, unless that runs again, unseen.
    start() {
      if (this.isOpen && !this.isAgain) return;
      starting = this;
      TreeRace.form.press("#run");
    }

    // What the server is asked for: the run's kind and name, the visitor's pair, and what the screen asks for.
    /** @param {Settings} form */
    request(form) {
      const asked = this.screen.order(form); // it may forget what was shown before
      for (const close of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".toast-close")))
        close.click(); // of earlier runs
      this.begin(newName());
      this.screen.say(WAITING);
      return { kind: this.kind, run: this.id, pair: TreeRace.pairs.name, ...asked };
    }

    // A message of the wire. Those of a run that nobody wants any more are not heard.
    /** @param {Message | Place | Failure} message */
    receive(message) {
      if (!this.isOpen || message.run !== this.id) return;
      if ("place" in message) return this.stand(message.place);
      if ("failed" in message) return this.fail();
      if (message.seq <= this.seq) return;
      const isNext = message.seq === this.seq + 1;
      this.seq = message.seq;
      if (!isNext) return this.drop("lost");
      this.become("running");
      this.isAgain ||= Boolean(message.again);
      this.screen.feed(message);
      if (message.end) this.become("done");
      window.dispatchEvent(new CustomEvent(this.kind, { detail: message }));
    }

    /** @param {Message} message that nobody asked for, as of a race that was recorded */
    show(message) {
      if (message.start) {
        this.begin(message.run);
        this.seq = message.seq - 1;
      }
      this.receive(message);
    }

    /** @param {string} place where the run stands among others, "" when the device is all its own */
    stand(place) {
      if (this.state === "asked") this.screen.say(place || WAITING);
      else this.screen.stands?.(place);
      if (!this.isKept) this.keep(this.id);
    }

    // Tells the server that the page is there, until the run has ended or the server is lost. The last message must follow then.
    /** @param {string} id */
    async keep(id) {
      this.isKept = true;
      await TreeRace.presence.keep(id);
      await new Promise((done) => setTimeout(done, ON_ITS_WAY));
      if (id === this.id) this.fail();
    }

    fail() {
      this.close(this.state === "asked" ? "refused" : "failed");
    }

    stop() {
      if (this.isOpen) this.drop(this.state === "asked" ? "withdrawn" : "stopped");
      else this.screen.rest?.();
    }

    /** @param {RunEnd} how the run ended without its last message */
    close(how) {
      if (!this.isOpen) return;
      this.become("done");
      this.screen.over(how);
    }

    /** @param {RunEnd} how the page no longer wants the run, also where the server has not told of it yet */
    drop(how) {
      if (!this.isOpen) return;
      TreeRace.presence.drop(this.id);
      this.close(how);
    }

    // What the run was about is not shown any more. One that goes on would go on unseen.
    forget() {
      if (this.isOpen) TreeRace.presence.drop(this.id);
      this.isFresh = false;
      this.become("idle");
    }
  }

  /** @param {string} screen whose Start was pressed */
  function start(screen) {
    on[screen === "lab" ? TreeRace.lab.view : screen].start();
  }

  /** @param {...string} kinds of runs that a Stop ends */
  function stop(...kinds) {
    for (const kind of kinds) on[kind].stop();
  }

  // What the page's one event sends: a request as JSON, and nothing else of the form.
  /** @param {Settings} form */
  function request({ request: _, ...form }) {
    const asked = /** @type {Run<any>} */ (starting).request(form);
    return { ...Object.fromEntries(Object.keys(form).map((name) => [name, null])), request: JSON.stringify(asked) };
  }

  // A run of which the server has not told yet will not begin: it was refused, or the server is lost. Its own signs end one that has.
  function refuseUnheard() {
    for (const run of Object.values(on)) if (run.state === "asked" && !run.isKept) run.drop("refused");
  }

  const newName = () => Array.from({ length: 3 }, () => Math.random().toString(36).slice(2)).join("-");

  /**
   * Hands the strings of the wire to the runs that they are of.
   * @param {{ value: string }} props
   * @param {(name: string, changed: () => void) => void} watch
   */
  function mountWire(props, watch) {
    watch("value", () => {
      const message = props.value && JSON.parse(props.value);
      for (const run of Object.values(on)) if (run.id === message.run) run.receive(message);
    });
  }

  /**
   * Calls `hear` with every message of runs of that kind, once their screen has drawn it.
   * @param {string} kind
   * @param {(message: any) => void} hear
   */
  function onRun(kind, hear) {
    window.addEventListener(kind, (event) => hear(/** @type {CustomEvent} */ (event).detail));
  }

  return { ENDED, Run, WAITING, mountWire, on, onRun, refuseUnheard, request, start, stop };
})();
