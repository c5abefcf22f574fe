// The panel beside the tree: the step's attention mask in a chosen node order, the drafter's view, or what the step cost.
// Knows one lane at a time.
window.TreeRace = window.TreeRace || {};

(function (T) {
  T.Panel = class {
    constructor(root) {
      this.root = root;
      this.at = (name) => root.querySelector(`[data-${name}]`);
      this.order = "insertion";
      this.counts = {};
      this.causal = false; // the lane's system has its mask broken
      this.at("block").before(...Object.keys(T.ORDERS).map((name) => this.choice(name)));
      root.querySelectorAll("[name=view]").forEach((view) => {
        view.addEventListener("change", () => {
          root.dataset.view = view.value;
          this.draw();
        });
      });
    }

    choice(name) {
      const label = document.createElement("label");
      const radio = document.createElement("input");
      Object.assign(radio, { type: "radio", name: "order", value: name, checked: name === this.order });
      radio.addEventListener("change", () => {
        this.order = name;
        this.draw();
      });
      const what = document.createElement("span");
      what.textContent = name === "dfs" ? "DFS" : name;
      this.counts[name] = document.createElement("b");
      label.append(radio, what, this.counts[name]);
      return label;
    }

    // Draws `steps[index]`; `costs` are its lane's.
    draw(steps = this.steps, index = this.index, costs = this.costs) {
      Object.assign(this, { steps, index, costs });
      if (!steps) return;
      if (this.root.dataset.view === "mask") this.drawMask(steps[index]);
      else if (this.root.dataset.view === "guess") this.drawGuesses(steps[index]);
      else this.drawCost();
    }

    drawMask(step, canvas = this.at("mask")) {
      const { parents } = step;
      const block = T.blockFor(parents.length);
      const blocks = {};
      for (const [name, order] of Object.entries(T.ORDERS)) {
        blocks[name] = T.maskBlocks(parents, order(parents), block);
        this.counts[name].textContent = blocks[name].length;
      }
      this.at("block").textContent = `${block} × ${block} blocks that hold a mark`;
      T.drawMask(canvas, step, T.ORDERS[this.order](parents), blocks[this.order], block, this.causal);
    }

    drawGuesses(step) {
      this.at("guess-words").textContent = step.estimate;
      this.at("guess").setAttribute("aria-label", `The drafter’s view of step ${step.index + 1}: ${step.estimate}`);
      T.drawGuesses(this.at("guess"), step);
    }

    drawCost() {
      const round = T.roundOf(this.steps, this.index, this.costs);
      const words = T.costWords(round);
      this.at("cost-words").textContent = words;
      this.at("cost").setAttribute("aria-label", `Cost and gain of step ${this.index + 1}: ${words}`);
      T.drawCost(this.at("cost"), this.steps, round, this.costs);
    }
  };
})(window.TreeRace);
