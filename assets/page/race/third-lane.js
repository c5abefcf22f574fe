// The thin third lane: the chain with as many guesses, between plain decoding and the tree, on a clock of its own. Takes its part out of
// a race's messages, so that all else on the page knows two lanes. Knows its own steps; is told the time to show.

TreeRace.thirdLane = (() => {
  const { finder, write } = TreeRace.elements;
  const { Steps, retimed } = TreeRace.steps;

  const LANES = 3; // of a race that has one
  const MIDDLE = 1;

  /**
   * @template Each
   * @param {Each[]} each of all lanes
   */
  const outer = (each) => each.filter((_, lane) => lane !== MIDDLE);

  class ThirdLane extends Steps {
    /** @type {RacedSystem | null} null in a race of two lanes */
    system = null;

    /** @param {HTMLElement} root */
    constructor(root) {
      super();
      this.at = finder(root, "third-");
      /** @type {HTMLElement} */
      this.root = finder(root)("third");
    }

    /**
     * The message without its lane.
     * @param {RaceMessage} message
     * @returns {RaceMessage}
     */
    taken(message) {
      if (message.start) this.begin(message.systems.length === LANES ? message.systems[MIDDLE] : null);
      if (!this.system) return message;
      const rest = { ...message };
      for (const [, step] of (message.steps ?? []).filter(([lane]) => lane === MIDDLE)) this.push(step);
      rest.steps = message.steps?.filter(([lane]) => lane !== MIDDLE).map(([lane, step]) => [lane && 1, step]);
      if (message.systems) rest.systems = outer(message.systems);
      if (message.lanes) rest.lanes = outer(message.lanes);
      if (message.times) {
        retimed([this], { times: [message.times[MIDDLE]] });
        rest.times = outer(message.times);
      }
      return rest;
    }

    /** @param {RacedSystem | null} system */
    begin(system) {
      this.forget();
      this.system = system;
      this.root.hidden = !system;
      if (!system) return;
      this.at("name").textContent = system.title;
      this.show(0, 1);
    }

    /**
     * A race is asked for. One without a third lane has none from the press on, so that nothing jumps when it begins.
     * @param {boolean} wanted whether it has one, or no race comes
     */
    expect(wanted) {
      this.root.hidden = !wanted || !this.system;
    }

    /**
     * @param {number} time on the lanes' clocks
     * @param {number} total tokens of the whole way
     */
    show(time, total) {
      if (!this.system) return;
      const { tokens, done, speed, tau, clock } = this.figuresAt(time);
      write(this.at("speed"), speed);
      write(this.at("tau"), tau);
      write(this.at("count"), `${tokens} of ${total} tokens`);
      write(this.at("clock"), clock);
      this.at("fill").style.clipPath = `inset(0 ${100 - (100 * tokens) / total}% 0 0 round 99px)`;
      this.root.classList.toggle("done", done);
    }
  }

  return { ThirdLane };
})();
