// The step that is shown: its tree, its panel, its sentence, its place on the scrubber. Knows one step of one lane at a time.

TreeRace.stepView = (() => {
  const { finder } = TreeRace.elements;
  const { StepPanel } = TreeRace.stepPanel;
  const { sentence } = TreeRace.stepWords;
  const { drawTree } = TreeRace.treePlot;

  const REDRAW_MS = 250; // while playing
  const [LONG, LONGEST] = [150, 190]; // letters of a sentence that are too many for two lines of its usual size, and of the smaller one

  class StepView {
    /** @typedef {{ steps: Step[], index: number, costs: Costs, system: string }} Shown a lane's steps, and which of them */
    /** @type {Shown | null} */
    shown = null;
    drawnAt = -Infinity;

    /**
     * @param {HTMLElement} root
     * @param {() => void} onDrawn
     */
    constructor(root, onDrawn) {
      this.at = finder(root);
      this.onDrawn = onDrawn;
      this.panel = new StepPanel(this.at("panel"), onDrawn);
    }

    // Of the step that is drawn; -1 without one.
    get index() {
      return this.shown?.index ?? -1;
    }

    forget() {
      this.shown = null;
      this.drawnAt = -Infinity;
    }

    /** @param {number} now */
    isDue(now) {
      return now - this.drawnAt >= REDRAW_MS;
    }

    /**
     * @param {Shown} shown
     */
    draw(shown) {
      const { steps, index, costs, system } = shown;
      this.shown = shown;
      this.drawnAt = performance.now();
      const step = steps[index];
      if (step) {
        this.describe(step, index, steps.length);
        if (!step.parents.length) return this.onDrawn(); // another server's: there is no tree
        this.panel.causal = system.endsWith("!mask");
        drawTree(this.at("tree"), step);
        this.panel.draw(steps, index, costs);
      }
      this.onDrawn();
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
  }

  return { StepView };
})();
