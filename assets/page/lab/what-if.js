// What if: sliders over the costs that were measured, a sentence, and the curve over all depths. Knows the formula and one measured point;
// leaves the drawing to its plot.
"use strict";

TreeRace.whatIf = (() => {
  const { finder, make } = TreeRace.elements;
  const { asNumber } = TreeRace.numbers;
  const { Costs } = TreeRace.roundCosts;
  const { price, rowsOf, speedup, tokensARound } = TreeRace.whatIfFormula;
  const { drawWhatIf } = TreeRace.whatIfPlot;

  const BEYOND = "beyond what was measured";
  /** @type {{ name: keyof WhatIf, words: string, most: number, step: number, digits: number }[]} */
  const SLIDERS = [
    { name: "acceptance", words: "Acceptance per token", most: 1, step: 0.01, digits: 2 },
    { name: "depth", words: "Depth", most: 12, step: 0.1, digits: 1 },
    { name: "width", words: "Guesses a level", most: 8, step: 0.1, digits: 1 },
    { name: "draft", words: "Draft cost a level, in plain tokens", most: 1, step: 0.01, digits: 2 },
    { name: "batch", words: "Batch", most: 32, step: 1, digits: 0 },
  ];
  const LEAST = { batch: 1, width: 1 };

  class WhatIfView {
    /** @type {WhatIf | null} what the sliders say */
    point = null;
    /** @type {MeasuredPoint | null} */
    measured = null;
    /** @type {Costs | null} */
    costs = null;

    /** @param {HTMLElement} root */
    constructor(root) {
      this.at = finder(root, "what-");
      /** @type {Record<string, HTMLInputElement>} */
      this.sliders = {};
      for (const { name, words, most, step } of SLIDERS) {
        const slider = make("input");
        Object.assign(slider, { type: "range", min: /** @type {any} */ (LEAST)[name] ?? 0, max: most, step });
        slider.dataset.what = name;
        slider.addEventListener("input", () => this.moved(name));
        this.sliders[name] = slider;
        const value = make("output");
        value.dataset.value = name;
        this.at("sliders").append(make("label", "", make("span", "", words), slider, value));
      }
      this.at("back").addEventListener("click", () => this.reset());
    }

    /**
     * @param {MeasuredCosts} costs
     * @param {MeasuredPoint} measured
     */
    show(costs, measured) {
      this.costs = new Costs(costs);
      this.measured = measured;
      for (const { name, most } of SLIDERS) {
        this.sliders[name].max = String(Math.max(most, Math.ceil(measured[name]))); // a costly draft has room too
      }
      this.reset();
    }

    // The sliders show rounded figures; until one is moved, its measured one counts.
    reset() {
      if (!this.measured) return;
      const { acceptance, depth, width, draft, batch } = this.measured;
      this.point = { acceptance, depth, width, draft, batch };
      for (const { name } of SLIDERS) this.sliders[name].value = String(this.point[name]);
      this.draw();
    }

    /** @param {keyof WhatIf} name */
    moved(name) {
      if (!this.point) return;
      this.point[name] = Number(this.sliders[name].value);
      this.draw();
    }

    draw() {
      const { costs, measured, point } = this;
      if (!costs || !measured || !point) return;
      for (const { name, digits } of SLIDERS)
        this.at("sliders").querySelector(`[data-value=${name}]`).textContent = asNumber(point[name], digits);
      const [cost, gain] = [price(costs, point), speedup(costs, point)];
      const rows = asNumber(rowsOf(point), 0);
      this.at("speed").textContent = gain === null ? "–" : `${asNumber(gain, 2)}×`;
      this.at("speed").dataset.lead = gain === null ? "" : String(Number(gain > 1));
      const won = `${asNumber(tokensARound(point.acceptance, point.depth), 2)} tokens a round`;
      this.at("words").textContent =
        cost === null
          ? `A round would verify ${rows} rows at once: ${BEYOND}, which ends at ${Math.max(...costs.sizes)}.`
          : `${won}, for the time of ${asNumber(cost, 2)} plain tokens: ${rows} rows are verified at once.`;
      const figures = [measured.expected, measured.decoding, measured.speedup];
      const [expected, decoding, whole] = figures.map((value) => `${asNumber(value, 2)}×`);
      this.at("measured").textContent =
        `Measured: ${decoding} without prefill, ${whole} with it. The formula says ${expected} there: it leaves out prefill and the host’s own work.`;
      drawWhatIf(this.at("canvas"), costs, point, measured);
    }
  }

  return { BEYOND, WhatIfView };
})();
