// A run on the page, from the click to its last message: its one name, its states, what is missing of it. Knows the order of messages.
// What is asked for, how a message is drawn and what is said of an early end, the run's screen knows.
"use strict";

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
  const [PRESSES, PRESS_MS] = [100, 100]; // of a button until it is heard, and between two
  /** @type {Record<string, Run<any>>} the runs by channel */
  const on = {};

  /** @template {RunMessage} Message of the channel */
  class Run {
    id = ""; // of the run that was asked for last, or is shown
    seq = 0; // of its last message
    isKept = false; // the server is told that the page is there
    isFresh = true; // nobody has asked for a run or chosen what it is about
    /** @type {"idle" | "asked" | "running" | "done"} */
    state = "idle";

    /**
     * @param {string} channel the wire's
     * @param {RunScreen<Message>} screen
     */
    constructor(channel, screen) {
      this.channel = channel;
      this.screen = screen;
      on[channel] = this;
    }

    get isOpen() {
      return this.state === "asked" || this.state === "running";
    }

    /** @param {Run<Message>["state"]} state */
    become(state) {
      this.state = this.screen.root.dataset.run = state;
    }

    /**
     * A run of that name, of which nothing has arrived.
     * @param {string} id
     */
    begin(id) {
      this.id = id;
      this.seq = 0;
      this.isKept = this.isFresh = false;
      this.become("asked");
    }

    /**
     * What Start sends: the run's name, the visitor's pair, and what the screen orders.
     * @param {Settings} form
     */
    ask(form) {
      const order = this.screen.order(form); // it may forget what was shown before
      for (const close of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".toast-close")))
        close.click(); // of earlier runs
      this.begin(newName());
      this.screen.say(WAITING);
      return { run: this.id, pair: TreeRace.pairs.name, ...order };
    }

    /**
     * Presses a button that asks for a run, until it is heard: none is while the last run is still being cancelled.
     * @param {string} button
     */
    async press(button) {
      const { id } = this;
      for (let presses = 0; presses < PRESSES && id === this.id; presses++) {
        TreeRace.form.press(button);
        await new Promise((done) => setTimeout(done, PRESS_MS));
      }
    }

    /**
     * A message of the wire. Those of a run that nobody wants any more are not heard.
     * @param {Message | Place} message
     */
    receive(message) {
      if (!this.isOpen) return;
      if ("place" in message) return message.run === this.id && this.stand(message.place);
      if (message.run !== this.id || message.seq <= this.seq) return;
      const isNext = message.seq === this.seq + 1;
      this.seq = message.seq;
      if (!isNext) return this.drop("lost");
      this.become("running");
      this.screen.feed(message);
      if (message.end) this.become("done");
      window.dispatchEvent(new CustomEvent(this.channel, { detail: message }));
    }

    /**
     * A message that nobody asked for, as of a race that was recorded.
     * @param {Message} message
     */
    show(message) {
      if (message.start) {
        if (this.isOpen) TreeRace.presence.drop(this.id);
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

    /**
     * Tells the server that the page is there, until the run has ended or the server is lost. The last message must follow then.
     * @param {string} id
     */
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

    /**
     * What the run was about is not shown any more. One that goes on would go on unseen.
     * @param {string} halt the button that stops it
     */
    forget(halt) {
      const { isOpen } = this;
      this.isFresh = false;
      this.become("idle");
      if (!isOpen) return;
      TreeRace.presence.drop(this.id);
      TreeRace.form.press(halt);
    }
  }

  // The server is lost. A run that it has not told of yet will not begin; one that it has told of, its own signs end.
  function refuseUnheard() {
    for (const run of Object.values(on)) if (!run.isKept) run.drop("refused");
  }

  function newName() {
    const name = [Date.now(), ...Array.from({ length: 2 }, () => Math.random() * 2 ** 52)];
    return name.map((each) => each.toString(36).replace(".", "")).join("-");
  }

  /**
   * @param {string} channel
   * @param {{ value: string }} props
   * @param {(name: string, changed: () => void) => void} watch
   */
  function mountWire(channel, props, watch) {
    const receive = () => props.value && on[channel]?.receive(JSON.parse(props.value));
    watch("value", receive);
    receive(); // watch does not report the value that is there at the start
  }

  /**
   * Calls `hear` with every message of that channel, once its screen has drawn it.
   * @param {string} channel
   * @param {(message: any) => void} hear
   */
  function onRun(channel, hear) {
    window.addEventListener(channel, (event) => hear(/** @type {CustomEvent} */ (event).detail));
  }

  return { ENDED, Run, WAITING, mountWire, on, onRun, refuseUnheard };
})();
