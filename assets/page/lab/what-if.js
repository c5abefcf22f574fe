// What if: sliders over the costs that were measured, a sentence, and the curve over all depths, drawn with Plotly. Knows the formula and
// one measured point.

TreeRace.whatIf = (() => {
  const { findAll, finder } = TreeRace.elements;
  const { asNumber } = TreeRace.numbers;
  const { axisOf, lettering, plot, roomOf, scatter, word } = TreeRace.plotBase;
  const { Costs } = TreeRace.roundCosts;
  const { acceptanceOf, price, rowsOf, speedup, tokensARound } = TreeRace.whatIfFormula;

  const TOKENS = "tokens"; // of a round: the acceptance length that papers report, from which the acceptance follows
  const BESIDE = 14; // pixels between a mark and its word
  const DEEPEST = 12;
  const STEP = 0.25; // of depth between two places of the curve
  /** @typedef {keyof WhatIf | typeof TOKENS} Slider */

  /** @type {(point: WhatIf, name: Slider) => number} */
  const read = (point, name) => (name === TOKENS ? tokensARound(point.acceptance, point.depth) : point[name]);

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
    /** @type {{ costs: Costs, measured: MeasuredPoint, point: WhatIf } | null} what was measured, and what the sliders say */
    shown = null;
    /** @type {number | null} tokens a round that are asked for, whatever the depth */
    asked = null;

    /** @param {HTMLElement} root */
    constructor(root) {
      this.at = finder(root, "what-");
      this.sliders = findAll(this.at("sliders"), "input");
      for (const slider of this.sliders) slider.addEventListener("input", () => this.moved(slider));
      this.at("back").addEventListener("click", () => this.reset());
    }

    /**
     * @param {MeasuredCosts} costs
     * @param {MeasuredPoint} measured
     */
    show(costs, measured) {
      this.shown = { costs: new Costs(costs), measured, point: measured };
      for (const slider of this.sliders) {
        const { most, what } = slider.dataset;
        slider.max = Math.max(most, Math.ceil(read(measured, what))); // a costly draft has room too
      }
      this.reset();
    }

    // The sliders show rounded figures; until one is moved, its measured one counts.
    reset() {
      if (!this.shown) return;
      this.shown.point = { ...this.shown.measured };
      this.asked = null;
      this.settle(null);
    }

    /** @param {HTMLInputElement} slider */
    moved(slider) {
      if (!this.shown) return;
      const { point } = this.shown;
      const value = Number(slider.value);
      const name = /** @type {Slider} */ (slider.dataset.what);
      if (name === TOKENS) this.asked = value;
      else point[name] = value;
      if (name === "acceptance") this.asked = null;
      if (this.asked !== null) point.acceptance = acceptanceOf(this.asked, point.depth);
      this.settle(slider);
    }

    /** @param {HTMLInputElement | null} moved by the visitor; every other slider says what follows */
    settle(moved) {
      for (const slider of this.sliders) {
        const { what, digits } = slider.dataset;
        const value = read(/** @type {NonNullable<typeof this.shown>} */ (this.shown).point, what);
        if (slider !== moved) slider.value = value;
        slider.nextElementSibling.textContent = asNumber(value, digits);
      }
      this.draw();
    }

    draw() {
      const { asked, shown } = this;
      if (!shown) return;
      const { costs, measured, point } = shown;
      const [cost, gain] = [price(costs, point), speedup(costs, point)];
      const rows = asNumber(rowsOf(point), 0);
      this.at("speed").textContent = gain === null ? "–" : `${asNumber(gain, 2)}×`;
      this.at("speed").dataset.lead = gain === null ? "" : String(Number(gain > 1));
      const won = `${asNumber(tokensARound(point.acceptance, point.depth), 2)} tokens a round`;
      const isShort = asked !== null && asked > point.depth + 1; // a round cannot yield the tokens that were asked for
      const short = isShort ? ` ${asNumber(asked, 2)} need a depth of ${asNumber(asked - 1, 1)} or more.` : "";
      this.at("words").textContent =
        cost === null
          ? `A round would verify ${rows} rows at once: beyond what was measured, which ends at ${Math.max(...costs.sizes)}.`
          : `${won}, for the time of ${asNumber(cost, 2)} plain tokens: ${rows} rows are verified at once.${short}`;
      const figures = [measured.expected, measured.decoding, measured.speedup];
      const [expected, decoding, whole] = figures.map((value) => `${asNumber(value, 2)}×`);
      this.at("measured").textContent =
        `Measured: ${decoding} without prefill, ${whole} with it. The formula says ${expected} there: it leaves out prefill and the host’s own work.`;
      drawWhatIf(this.at("canvas"), costs, point, measured);
    }
  }

  return { WhatIfView };
})();
