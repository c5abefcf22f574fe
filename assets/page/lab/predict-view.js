// Predict first: the visitor says which of three trees wins, then they race, and the page says who won and why. Knows a race's messages.
"use strict";

TreeRace.predictView = (() => {
  const { finder, make } = TreeRace.elements;
  const { asNumber } = TreeRace.numbers;
  const { onRuns, onWire } = TreeRace.wire;

  const INVITATION = "Three trees, one text: which one is fastest? Choose first, then press Start.";
  const WAITING = "Waiting for the models …";
  const SPAN = 100; // of the drawing's box
  const SVG = "http://www.w3.org/2000/svg";

  /**
   * The tree as dots in levels, the root on top.
   * @param {number} depth
   * @param {number} nodes
   */
  function drawing(depth, nodes) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${SPAN} ${SPAN}`);
    svg.setAttribute("aria-hidden", "true");
    const levels = [1, ...Array.from({ length: depth }, (_, at) => Math.floor((nodes - 2 + depth - at) / depth))];
    const radius = Math.min(7, 26 / Math.max(...levels, levels.length));
    levels.forEach((count, level) => {
      for (let at = 0; at < count; at += 1) {
        const dot = document.createElementNS(SVG, "circle");
        dot.setAttribute("cx", String((SPAN * (at + 0.5)) / count));
        dot.setAttribute("cy", String((SPAN * (level + 0.5)) / levels.length));
        dot.setAttribute("r", String(radius));
        svg.append(dot);
      }
    });
    return svg;
  }

  /**
   * What a round of this lane takes, in tokens of plain decoding. Neither has its prefill in it.
   * @param {LaneFigures} lane
   * @param {LaneFigures} plain
   */
  function priceOf(lane, plain) {
    const [mine, base] = [lane, plain].map((each) => (each.seconds * (1 - each.prefill_share)) / each.forwards);
    return mine / base;
  }

  /**
   * Who won, and why the others did not: tau against the price of a round.
   * @param {string} guess
   * @param {string} winner
   * @param {Record<string, { tau: number, price: number, speedup: number }>} found
   */
  function verdictOf(guess, winner, found) {
    const said = guess === winner ? "You were right" : `You said ${guess}`;
    const { tau, price, speedup } = found[winner];
    const won = `the ${winner} tree wins with ${asNumber(speedup, 2)}× plain decoding’s speed`;
    const why = `It writes ${asNumber(tau, 2)} tokens a round, for the time of ${asNumber(price, 2)}.`;
    const [most] = Object.entries(found).sort(([, a], [, b]) => b.tau - a.tau);
    const [size, other] = most;
    if (size === winner) return `${said}: ${won}. ${why} No other tree writes more a round.`;
    const more = `The ${size} tree writes ${asNumber(other.tau, 2)}, but its round takes ${asNumber(other.price, 2)}`;
    return `${said}: ${won}. ${why} ${more}: the extra guesses cost more than they bring.`;
  }

  class PredictView {
    guess = "";
    /** @type {string | null} */
    run = null;
    /** @type {number[]} tokens of every lane, the baseline's first */
    tokens = [];

    /**
     * @param {HTMLElement} root
     * @param {LabAbout} about
     * @param {(words: string) => void} say
     */
    constructor(root, { trees }, say) {
      this.root = root;
      this.say = say;
      this.at = finder(root);
      this.sizes = Object.keys(trees);
      /** @type {Record<string, HTMLElement>} */
      this.cards = {};
      for (const [size, name] of Object.entries(trees)) this.at("cards").append(this.card(size, name));
      this.say(INVITATION);
      onWire("treepredict", (message) => this.feed(message));
      onRuns("treepredict", this);
    }

    /**
     * @param {string} size
     * @param {string} name as in "tree:2x2x4"
     */
    card(size, name) {
      const [depth, width, nodes] = name
        .slice(name.indexOf(":") + 1)
        .split("x")
        .map(Number);
      const choice = make("input");
      Object.assign(choice, { type: "radio", name: "predict", value: size });
      choice.addEventListener("change", () => this.choose(size));
      const shape = `depth ${depth} · width ${width} · ${nodes} nodes`;
      const bar = make("i");
      const figures = make("p", "figures");
      const title = make("b", "", size);
      const inside = [
        choice,
        title,
        make("small", "", shape),
        drawing(depth, nodes),
        make("span", "bar", bar),
        figures,
      ];
      this.cards[size] = make("label", "guess", ...inside);
      return this.cards[size];
    }

    /** @param {string} size */
    choose(size) {
      this.guess = size;
      if (this.root.dataset.state === "running") return;
      this.clear();
      this.say(`You say the ${size} tree wins. Press Start.`);
    }

    clear() {
      this.run = null;
      this.root.dataset.state = "";
      this.tokens = [0, ...this.sizes.map(() => 0)];
      for (const card of Object.values(this.cards)) {
        delete card.dataset.won;
        finderOf(card, ".figures").textContent = "";
        finderOf(card, "i").style.width = "0";
      }
      this.at("why").textContent = "";
    }

    // What Start sends. The choice stands while they race.
    pending() {
      this.clear();
      this.root.dataset.state = "running";
      this.lock(true);
      this.say(WAITING);
      return { order: JSON.stringify({ guess: this.guess }) };
    }

    /** @param {boolean} locked */
    lock(locked) {
      for (const choice of this.root.querySelectorAll("input")) choice.disabled = locked;
    }

    /** @param {string} words where the run stands among others */
    stands(words) {
      if (this.root.dataset.state === "running" && !this.run) this.say(words || WAITING);
    }

    /** @param {string} words */
    rest(words) {
      if (this.root.dataset.state !== "running") return;
      this.root.dataset.state = "done";
      this.lock(false);
      this.say(words);
    }

    failed() {
      this.rest(this.guess ? "Ended early, so nobody won." : "Choose a tree first.");
    }

    stop() {
      this.rest("Stopped, so nobody won.");
    }

    /** @param {any} message */
    feed(message) {
      if (message.start && this.root.dataset.state === "running") {
        this.run = message.run;
        this.most = message.systems[0].trace.max_new_tokens;
        this.say(`You say the ${this.guess} tree wins. They race …`);
      }
      if (message.run !== this.run || this.root.dataset.state !== "running") return;
      for (const [lane, step] of message.steps ?? []) this.tokens[lane] += step.burst.length;
      this.sizes.forEach((size, index) => {
        finderOf(this.cards[size], "i").style.width = `${(100 * this.tokens[index + 1]) / this.most}%`;
      });
      if (message.end) this.reveal(message.lanes);
    }

    /** @param {LaneFigures[]} lanes the baseline first */
    reveal([plain, ...lanes]) {
      const found = Object.fromEntries(
        lanes.map((lane, index) => {
          const { tau, speedup } = lane;
          return [this.sizes[index], { tau, speedup, price: priceOf(lane, plain) }];
        }),
      );
      const [winner] = [...this.sizes].sort((a, b) => found[b].speedup - found[a].speedup);
      for (const size of this.sizes) {
        const { tau, speedup, price } = found[size];
        this.cards[size].dataset.won = String(size === winner);
        const sums = `${asNumber(tau, 2)} tokens a round ÷ ${asNumber(price, 2)} tokens’ time`;
        finderOf(this.cards[size], "i").style.width = "100%";
        finderOf(this.cards[size], ".figures").replaceChildren(make("b", "", `${asNumber(speedup, 2)}×`), sums);
      }
      this.at("why").textContent = verdictOf(this.guess, winner, found);
      this.rest(this.guess === winner ? "Right." : `Not this time: the ${winner} tree is fastest.`);
    }
  }

  /**
   * @param {HTMLElement} card
   * @param {string} selector
   * @returns {any}
   */
  const finderOf = (card, selector) => card.querySelector(selector);

  /**
   * @param {HTMLElement} root
   * @param {LabAbout} value
   * @param {LabServer} _
   * @param {(words: string) => void} say
   */
  function mountPredict(root, value, _, say) {
    TreeRace.predict = new PredictView(root, value, say);
  }

  return { PredictView, mountPredict, priceOf, verdictOf };
})();
