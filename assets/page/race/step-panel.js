// The panel beside the tree: the step's attention mask in a chosen node order, the drafter's view, or what the step cost.
// Knows one lane at a time.

TreeRace.stepPanel = (() => {
  const { drawCost } = TreeRace.costPlot;
  const { finder, make } = TreeRace.elements;
  const { drawGuesses } = TreeRace.guessPlot;
  const { drawMask } = TreeRace.maskPlot;
  const { ORDERS, blockFor, maskBlocks } = TreeRace.nodeOrder;
  const { costWords, roundOf } = TreeRace.roundCosts;
  const { estimate } = TreeRace.stepWords;

  class StepPanel {
    /**
     * @param {HTMLElement} root
     * @param {() => void} onDrawn
     */
    constructor(root, onDrawn) {
      this.root = root;
      this.onDrawn = onDrawn;
      this.at = finder(root);
      this.order = "dfs"; // branches are blocks
      this.causal = false; // the lane's system has its mask broken
      /** @type {{ steps: Step[], index: number, costs: Costs } | null} */
      this.drawn = null;
      /** @type {Record<string, HTMLElement>} */
      this.counts = {};
      this.at("more").addEventListener("change", () => {
        root.toggleAttribute("data-detailed", this.at("more").checked);
        this.redraw();
      });
      this.at("block").before(...Object.keys(ORDERS).map((name) => this.choice(name)));
      for (const view of /** @type {NodeListOf<HTMLInputElement>} */ (root.querySelectorAll("[name=view]"))) {
        view.addEventListener("change", () => {
          root.dataset.view = view.value;
          this.redraw();
        });
      }
    }

    /** @param {string} name */
    choice(name) {
      const radio = make("input");
      Object.assign(radio, { type: "radio", name: "order", value: name, checked: name === this.order });
      radio.addEventListener("change", () => {
        this.order = name;
        this.redraw();
      });
      this.counts[name] = make("b");
      return make("label", "", radio, make("span", "", name === "dfs" ? "DFS" : name, this.counts[name]));
    }

    /**
     * @param {Step[]} steps
     * @param {number} index of the one that is shown
     * @param {Costs} costs of its lane
     */
    draw(steps, index, costs) {
      this.drawn = { steps, index, costs };
      this.redraw();
    }

    redraw() {
      if (!this.drawn) return;
      const { steps, index, costs } = this.drawn;
      if (this.root.dataset.view === "mask") this.drawMask(steps[index]);
      else if (this.root.dataset.view === "guess") this.drawGuesses(steps[index]);
      else this.drawCost(steps, index, costs);
      this.onDrawn();
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

    /** @param {Step} step */
    drawGuesses(step) {
      const words = estimate(step);
      this.at("guess-words").textContent = words;
      this.at("guess").setAttribute("aria-label", `The drafter’s view of step ${step.index + 1}: ${words}`);
      drawGuesses(this.at("guess"), step);
    }

    /**
     * @param {Step[]} steps
     * @param {number} index
     * @param {Costs} costs
     */
    drawCost(steps, index, costs) {
      const round = roundOf(steps, index, costs);
      const words = costWords(round);
      this.at("cost-words").textContent = words;
      this.at("cost").setAttribute("aria-label", `Cost and gain of step ${index + 1}: ${words}`);
      drawCost(this.at("cost"), steps, round, costs);
    }
  }

  return { StepPanel };
})();
