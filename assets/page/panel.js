// The panel beside the tree: the step's attention mask in a chosen node order, or the drafter's view. Knows one step at a time.
window.TreeRace = window.TreeRace || {};

(function (T) {
  T.Panel = class {
    constructor(root) {
      this.root = root;
      this.at = (name) => root.querySelector(`[data-${name}]`);
      this.order = "insertion";
      this.counts = {};
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

    draw(step = this.step) {
      this.step = step;
      if (!step) return;
      if (this.root.dataset.view === "mask") this.drawMask(step);
      else this.drawGuesses(step);
    }

    drawMask({ parents }) {
      const block = T.blockFor(parents.length);
      const blocks = {};
      for (const [name, order] of Object.entries(T.ORDERS)) {
        blocks[name] = T.maskBlocks(parents, order(parents), block);
        this.counts[name].textContent = blocks[name].length;
      }
      this.at("block").textContent = `${block} × ${block} blocks that hold a mark`;
      T.drawMask(this.at("mask"), this.step, T.ORDERS[this.order](parents), blocks[this.order], block);
    }

    drawGuesses(step) {
      this.at("guess-words").textContent = step.estimate;
      this.at("guess").setAttribute("aria-label", `The drafter’s view of step ${step.index + 1}: ${step.estimate}`);
      T.drawGuesses(this.at("guess"), step);
    }
  };
})(window.TreeRace);
