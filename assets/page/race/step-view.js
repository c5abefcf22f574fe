// The step that is shown: its tree, its sentence, its place on the scrubber, and the panel beside it: the attention mask in a chosen node
// order, the drafter's view, or what the step cost. Knows one lane at a time.

TreeRace.stepView = (() => {
  const { drawCost } = TreeRace.costPlot;
  const { finder, make, onChoice } = TreeRace.elements;
  const { drawGuesses } = TreeRace.guessPlot;
  const { ORDERS, blockFor, drawMask, maskBlocks } = TreeRace.maskPlot;
  const { costWords, roundOf } = TreeRace.roundCosts;
  const { estimate, sentence } = TreeRace.stepWords;
  const { drawTree } = TreeRace.treePlot;

  const REDRAW_MS = 250; // while playing
  const [LONG, LONGEST] = [150, 190]; // letters of a sentence that are too many for two lines of its usual size, and of the smaller one

  class StepView {
    /** @typedef {{ steps: Step[], index: number, costs: Costs, system: string }} Shown a lane's steps, and which of them */
    /** @type {Shown | null} */
    shown = null;
    drawnAt = -Infinity;
    order = "dfs"; // of the mask: branches are blocks
    /** @type {Record<string, HTMLElement>} */
    counts = {};

    /**
     * @param {HTMLElement} root
     * @param {() => void} onDrawn
     */
    constructor(root, onDrawn) {
      this.at = finder(root);
      this.onDrawn = onDrawn;
      /** @type {HTMLElement} */
      this.panel = this.at("panel");
      this.at("more").addEventListener("change", () => {
        this.panel.toggleAttribute("data-detailed", this.at("more").checked);
        this.drawPanel();
      });
      this.at("block").before(...Object.keys(ORDERS).map((name) => this.choice(name)));
      onChoice(this.panel, "order", (order) => {
        this.order = order;
        this.drawPanel();
      });
      onChoice(this.panel, "view", (view) => {
        this.panel.dataset.view = view;
        this.drawPanel();
      });
    }

    /** @param {string} name */
    choice(name) {
      const radio = make("input");
      Object.assign(radio, { type: "radio", name: "order", value: name, checked: name === this.order });
      this.counts[name] = make("b");
      return make("label", "", radio, make("span", "", name === "dfs" ? "DFS" : name, this.counts[name]));
    }

    // Of the step that is drawn; -1 without one.
    get index() {
      return this.shown?.index ?? -1;
    }

    // The lane's system has its mask broken.
    get causal() {
      return Boolean(this.shown?.system.endsWith("!mask"));
    }

    forget() {
      this.shown = null;
      this.drawnAt = -Infinity;
    }

    /** @param {number} now */
    isDue(now) {
      return now - this.drawnAt >= REDRAW_MS;
    }

    /** @param {Shown} shown */
    draw(shown) {
      const { steps, index } = shown;
      this.shown = shown;
      this.drawnAt = performance.now();
      const step = steps[index];
      if (step) this.describe(step, index, steps.length);
      if (!step?.parents.length) return this.onDrawn(); // another server's has no tree
      drawTree(this.at("tree"), step);
      this.drawPanel();
    }

    /**
     * @param {Step} step
     * @param {number} index
     * @param {number} count
     */
    describe(step, index, count) {
      const [place, words] = [`step ${index + 1} of ${count}`, sentence(step)];
      this.at("step").textContent = place;
      this.at("scrub").value = index;
      this.at("scrub").setAttribute("aria-valuetext", `${place}: ${words}`);
      this.at("sentence").textContent = words;
      this.at("sentence").classList.toggle("long", words.length > LONG);
      this.at("sentence").classList.toggle("longest", words.length > LONGEST);
      this.at("tree").setAttribute("aria-label", `Draft tree of step ${index + 1}: ${words}`);
    }

    // What the panel beside the tree shows of the step.
    drawPanel() {
      const { steps, index, costs } = this.shown ?? { steps: [], index: -1 };
      const step = steps[index];
      if (!step?.parents.length || !costs) return;
      const { view } = this.panel.dataset;
      if (view === "mask") this.drawMask(step);
      if (view === "guess") drawGuesses(this.explain(view, "The drafter’s view", estimate(step)), step);
      if (view === "cost") {
        const round = roundOf(steps, index, costs);
        drawCost(this.explain(view, "Cost and gain", costWords(round)), steps, round, costs);
      }
      this.onDrawn();
    }

    /**
     * Says what the drawing shows, above it and as its name. Returns its place.
     * @param {string} view
     * @param {string} title
     * @param {string} words
     */
    explain(view, title, words) {
      const canvas = this.at(view);
      this.at(`${view}-words`).textContent = words;
      canvas.setAttribute("aria-label", `${title} of step ${this.index + 1}: ${words}`);
      return canvas;
    }

    /** @param {Step} step */
    drawMask(step, canvas = this.at("mask")) {
      const { parents } = step;
      const block = blockFor(parents.length);
      /** @type {Record<string, [number, number][]>} */
      const blocks = {};
      for (const [name, order] of Object.entries(ORDERS)) {
        blocks[name] = maskBlocks(parents, order(parents), block);
        this.counts[name].textContent = String(blocks[name].length);
      }
      this.at("block").textContent = `${block} × ${block} blocks that hold a mark`;
      drawMask(canvas, step, ORDERS[this.order](parents), blocks[this.order], block, this.causal);
    }
  }

  return { StepView };
})();
