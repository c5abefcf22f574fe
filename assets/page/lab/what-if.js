// What if: sliders over the costs that were measured, a sentence, and the curve over all depths, drawn with Plotly. Knows the formula and
// one measured point.

TreeRace.whatIf = (() => {
  const { finder, make } = TreeRace.elements;
  const { asNumber } = TreeRace.numbers;
  const { axisOf, lettering, plot, roomOf, scatter, word } = TreeRace.plotBase;
  const { Costs } = TreeRace.roundCosts;
  const { acceptanceOf, price, rowsOf, speedup, tokensARound } = TreeRace.whatIfFormula;

  const BEYOND = "beyond what was measured";
  const TOKENS = "tokens"; // of a round: the acceptance length that papers report, from which the acceptance follows
  const BESIDE = 14; // pixels between a mark and its word
  const DEEPEST = 12;
  const STEP = 0.25; // of depth between two places of the curve
  const LEAST = { batch: 1, width: 1, tokens: 1 };
  /** @typedef {keyof WhatIf | typeof TOKENS} Slider */
  /** @type {{ name: Slider, words: string, most: number, step: number, digits: number }[]} */
  const SLIDERS = [
    { name: TOKENS, words: "Acceptance length, in tokens", most: 13, step: 0.01, digits: 2 },
    { name: "acceptance", words: "Acceptance per token", most: 1, step: 0.01, digits: 2 },
    { name: "depth", words: "Depth", most: 12, step: 0.1, digits: 1 },
    { name: "width", words: "Guesses a level", most: 8, step: 0.1, digits: 1 },
    { name: "draft", words: "Draft cost a level, in plain tokens", most: 1, step: 0.01, digits: 2 },
    { name: "batch", words: "Batch", most: 32, step: 1, digits: 0 },
  ];

  /**
   * @param {WhatIf} point
   * @param {Slider} name
   */
  const read = (point, name) =>
    name === TOKENS ? tokensARound(point.acceptance, point.depth) : point[/** @type {keyof WhatIf} */ (name)];

  /**
   * @param {HTMLElement} div
   * @param {Costs} costs
   * @param {WhatIf} point
   * @param {MeasuredPoint} measured
   */
  function drawWhatIf(div, costs, point, measured) {
    const room = roomOf(div);
    if (!room) return;
    const { colours } = room;
    const letters = lettering();
    const depths = Array.from({ length: DEEPEST / STEP + 1 }, (_, index) => index * STEP);
    const curve = depths.map((depth) => speedup(costs, { ...point, depth }));
    const here = speedup(costs, point);
    const highest = Math.max(1.5, measured.decoding, ...curve.map((value) => value ?? 0));
    const [axis, across] = ["", "depth of the tree"].map((title) => axisOf(colours, letters, title));
    const way = depths.map((x, index) => ({ x, y: curve[index], said: `depth ${x}: ${asNumber(curve[index], 2)}×` }));
    const chosen = `${asNumber(here, 2)}× at depth ${asNumber(point.depth, 1)}`;
    const before = `${asNumber(measured.decoding, 2)}× at a mean depth of ${asNumber(measured.depth, 1)}`;
    const traces = [
      scatter("lines", way, { line: { color: colours.tree, width: 3 } }),
      scatter("markers", [{ x: point.depth, y: here, said: `chosen: ${chosen}` }], {
        marker: { size: 15, color: colours.tree, line: { width: 2, color: colours.surface } },
      }),
      scatter("markers", [{ x: measured.depth, y: measured.decoding, said: `measured: ${before}` }], {
        marker: { symbol: "diamond-open", size: 15, color: colours.ink, line: { width: 3 } },
        cliponaxis: false,
      }),
    ];
    const line = { color: colours.base, width: 2, dash: "5px,4px" };
    const font = { size: letters, color: colours.ink };
    const beside = { xshift: BESIDE, bgcolor: colours.surface, borderpad: 1 }; // the curve stays behind the word
    const axes = {
      annotations: [word("measured", [measured.depth, measured.decoding], "left", font, beside)],
      xaxis: { ...across, showgrid: false, range: [-0.3, DEEPEST + 0.3], dtick: 2 },
      yaxis: { ...axis, gridcolor: colours.cell, range: [0, highest * 1.12], ticksuffix: "×", nticks: 6 },
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line }],
    };
    const margin = { l: letters * 3.4, r: 14, t: 8, b: letters * 3.1 };
    plot(div, room, traces, margin, axes);
    div.setAttribute("aria-label", `Speedup by depth: ${chosen}; measured ${asNumber(measured.decoding, 2)}×`);
  }

  class WhatIfView {
    /** @type {WhatIf | null} what the sliders say */
    point = null;
    /** @type {number | null} tokens a round that are asked for, whatever the depth */
    asked = null;
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
        this.sliders[name].max = String(Math.max(most, Math.ceil(read(measured, name)))); // a costly draft has room too
      }
      this.reset();
    }

    // The sliders show rounded figures; until one is moved, its measured one counts.
    reset() {
      if (!this.measured) return;
      const { acceptance, depth, width, draft, batch } = this.measured;
      this.point = { acceptance, depth, width, draft, batch };
      this.asked = null;
      this.settle("");
    }

    /** @param {Slider} name */
    moved(name) {
      if (!this.point) return;
      const value = Number(this.sliders[name].value);
      if (name === TOKENS) this.asked = value;
      else this.point[name] = value;
      if (name === "acceptance") this.asked = null;
      if (this.asked !== null) this.point.acceptance = acceptanceOf(this.asked, this.point.depth);
      this.settle(name);
    }

    /**
     * Every other slider says what follows.
     * @param {Slider | ""} moved
     */
    settle(moved) {
      const point = /** @type {WhatIf} */ (this.point);
      for (const { name } of SLIDERS) if (name !== moved) this.sliders[name].value = String(read(point, name));
      this.draw();
    }

    // Where a round cannot yield the tokens that were asked for.
    short() {
      const { asked, point } = this;
      if (asked === null || !point || asked <= point.depth + 1) return "";
      return ` ${asNumber(asked, 2)} need a depth of ${asNumber(asked - 1, 1)} or more.`;
    }

    draw() {
      const { costs, measured, point } = this;
      if (!costs || !measured || !point) return;
      for (const { name, digits } of SLIDERS)
        this.at("sliders").querySelector(`[data-value=${name}]`).textContent = asNumber(read(point, name), digits);
      const [cost, gain] = [price(costs, point), speedup(costs, point)];
      const rows = asNumber(rowsOf(point), 0);
      this.at("speed").textContent = gain === null ? "–" : `${asNumber(gain, 2)}×`;
      this.at("speed").dataset.lead = gain === null ? "" : String(Number(gain > 1));
      const won = `${asNumber(tokensARound(point.acceptance, point.depth), 2)} tokens a round`;
      this.at("words").textContent =
        cost === null
          ? `A round would verify ${rows} rows at once: ${BEYOND}, which ends at ${Math.max(...costs.sizes)}.`
          : `${won}, for the time of ${asNumber(cost, 2)} plain tokens: ${rows} rows are verified at once.${this.short()}`;
      const figures = [measured.expected, measured.decoding, measured.speedup];
      const [expected, decoding, whole] = figures.map((value) => `${asNumber(value, 2)}×`);
      this.at("measured").textContent =
        `Measured: ${decoding} without prefill, ${whole} with it. The formula says ${expected} there: it leaves out prefill and the host’s own work.`;
      drawWhatIf(this.at("canvas"), costs, point, measured);
    }
  }

  return { WhatIfView };
})();
