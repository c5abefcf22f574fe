// Predict first: the visitor says which of three trees wins, then they race, and the page says who won and why. Knows a race's messages.
"use strict";

TreeRace.predictView = (() => {
  const { finder, make } = TreeRace.elements;
  const { asNumber } = TreeRace.numbers;
  const { keepDrawn } = TreeRace.plotBase;
  const { Tip, TreePointing } = TreeRace.pointing;
  const { drawTree, factsOf } = TreeRace.treePlot;
  const { ENDED, Run } = TreeRace.runs;

  const INVITATION = "Three trees, one text: which one is fastest? Choose first, then press Start.";
  const [SURE, RIVAL] = [0.6, 0.4]; // of a favourite guess, and of each further one beside it

  /**
   * The tree that such a draft most often gives, best guess first: a step that was never taken.
   * @param {number} depth
   * @param {number} width
   * @param {number} nodes
   */
  function sketchOf(depth, width, nodes) {
    const parents = [-1];
    const score = [1];
    const level = [0];
    const children = [0];
    while (parents.length < nodes) {
      const worth = parents.map((_, at) =>
        level[at] < depth && children[at] < width ? score[at] * SURE * RIVAL ** children[at] : 0,
      );
      const best = worth.indexOf(Math.max(...worth));
      if (!worth[best]) break;
      parents.push(best);
      score.push(worth[best]);
      level.push(level[best] + 1);
      children.push(0);
      children[best] += 1;
    }
    const texts = parents.map(() => "");
    const q = score.map((each, at) => each / (score[parents[at]] ?? 1));
    const verdicts = parents.map((parent) => (parent < 0 ? "root" : "rejected"));
    return /** @type {any} */ ({ parents, texts, q, p: q, verdicts, path: [], has_bonus: false });
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
    most = 1; // tokens of a lane
    /** @type {number[]} tokens of every lane, the baseline's first */
    tokens = [];
    /** @type {Record<string, { canvas: HTMLElement, pointing: InstanceType<typeof TreePointing>, sketch: Step, step: Step }>} by size */
    trees = {};

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
      this.tip = new Tip(root);
      for (const [size, name] of Object.entries(trees)) this.at("cards").append(this.card(size, name));
      this.say(INVITATION);
      /** @type {InstanceType<typeof Run<RaceMessage>>} */
      this.run = new Run("treepredict", this);
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
      const picture = this.picture(size, sketchOf(depth, width, nodes));
      picture.addEventListener("click", (event) => {
        event.preventDefault(); // some browsers choose by themselves, others keep a click that the picture could use
        choice.click();
      });
      const inside = [choice, title, make("small", "", shape), picture, make("span", "bar", bar), figures];
      this.cards[size] = make("label", "guess", ...inside);
      return this.cards[size];
    }

    /**
     * The tree of a size: a sketch, then each round's own.
     * @param {string} size
     * @param {Step} sketch
     */
    picture(size, sketch) {
      const canvas = make("div", "canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `A ${size} tree`);
      const told = (/** @type {TreeNode} */ node) => (node.text ? factsOf(node) : []); // a sketch tells nothing of its nodes
      const pointing = new TreePointing(canvas, this.tip, () => this.trees[size].step, told).alone();
      this.trees[size] = { canvas, pointing, sketch, step: sketch };
      keepDrawn(canvas, () => drawTree(canvas, this.trees[size].step));
      return canvas;
    }

    /**
     * @param {string} size
     * @param {Step} step
     */
    grow(size, step) {
      const tree = this.trees[size];
      tree.step = step;
      tree.pointing.point(null);
      drawTree(tree.canvas, step);
    }

    /** @param {string} size */
    choose(size) {
      this.guess = size;
      for (const each of this.sizes) this.cards[each].toggleAttribute("data-chosen", each === size);
      if (this.run.isOpen) return;
      this.clear();
      this.say(`You say the ${size} tree wins. Press Start.`);
    }

    clear() {
      this.tokens = [0, ...this.sizes.map(() => 0)];
      for (const card of Object.values(this.cards)) {
        delete card.dataset.won;
        finderOf(card, ".figures").textContent = "";
        finderOf(card, "i").style.width = "0";
      }
      for (const size of this.sizes) this.grow(size, this.trees[size].sketch);
      this.at("why").textContent = "";
    }

    // What Start sends. The choice stands while they race.
    order() {
      this.clear();
      this.lock(true);
      return { order: JSON.stringify({ guess: this.guess }) };
    }

    /** @param {boolean} locked */
    lock(locked) {
      for (const choice of this.root.querySelectorAll("input")) choice.disabled = locked;
    }

    /** @param {RunEnd} how */
    over(how) {
      this.lock(false);
      this.say(this.guess ? `${ENDED[how]}, so nobody won.` : "Choose a tree first.");
    }

    /** @param {RaceMessage} message */
    feed(message) {
      if (message.start) {
        this.most = message.systems[0].trace.max_new_tokens;
        this.say(`You say the ${this.guess} tree wins. They race …`);
      }
      for (const [lane, step] of message.steps ?? []) this.tokens[lane] += step.burst.length;
      for (const [index, size] of this.sizes.entries()) {
        const drawn = message.steps?.findLast(
          (/** @type {[number, Step]} */ [lane, { parents }]) => lane === index + 1 && parents.length > 1,
        );
        if (drawn) this.grow(size, drawn[1]);
      }
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
      this.lock(false);
      this.say(this.guess === winner ? "Right." : `Not this time: the ${winner} tree is fastest.`);
    }
  }

  /**
   * @param {HTMLElement} card
   * @param {string} selector
   * @returns {any}
   */
  const finderOf = (card, selector) => card.querySelector(selector);

  return { PredictView, priceOf, verdictOf };
})();
