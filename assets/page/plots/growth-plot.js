// How a forward's time grows with its tokens, one line for each model, in times of one token. Knows measured milliseconds; nothing of
// pages and races.

TreeRace.growthPlot = (() => {
  const { draw } = TreeRace.elements;
  const { Costs } = TreeRace.roundCosts;

  const MOST = 16; // tokens of the largest forward that is drawn
  const TICKS = [1, 4, 8, 12, 16];
  const LEAST_TOP = 3; // times one token that the axis shows at least
  const [WIDTH, HEIGHT] = [320, 150];
  const EDGE = { left: 30, right: 44, top: 8, bottom: 34 };
  const APART = 15; // between two names of lines

  /**
   * How many times the time of one token a forward over so many takes. What other work added is left out: a forward takes at most what
   * one over more tokens takes (`rising` in engine/record/costs.py).
   * @param {Record<number, number>} measured
   * @param {number} tokens
   */
  function timesOne(measured, tokens) {
    const all = Object.entries(measured).map(([of, ms]) => ({ of: Number(of), ms }));
    const rising = all.map(({ of }) => [of, Math.min(...all.filter((more) => more.of >= of).map(({ ms }) => ms))]);
    const costs = new Costs({ verify_ms: Object.fromEntries(rising), first_ms: 0, level_ms: 0 });
    return costs.verifyAt(tokens) / costs.verifyAt(1);
  }

  /**
   * @param {{ size: string, verify_ms: Record<number, number> }[]} models the smallest first
   * @returns {SVGElement}
   */
  function growthPlot(models) {
    const lines = models.map(({ size, verify_ms: measured }) => {
      const sizes = Object.keys(measured).map(Number);
      const places = [...new Set([...sizes.filter((each) => each < MOST), MOST])];
      return { size, points: places.map((tokens) => ({ tokens, times: timesOne(measured, tokens) })) };
    });
    const top = Math.ceil(Math.max(LEAST_TOP, ...lines.flatMap(({ points }) => points.map(({ times }) => times))));
    const x = (/** @type {number} */ tokens) =>
      EDGE.left + ((tokens - 1) / (MOST - 1)) * (WIDTH - EDGE.left - EDGE.right);
    const y = (/** @type {number} */ times) => EDGE.top + (1 - times / top) * (HEIGHT - EDGE.top - EDGE.bottom);
    const every = top > 6 ? 2 : 1;
    const levels = Array.from({ length: Math.floor(top / every) + 1 }, (_, index) => index * every);
    const grid = levels.flatMap((times) => [
      draw("path", { d: `M${x(1)} ${y(times)}H${x(MOST)}`, class: "grid" }),
      draw("text", { x: EDGE.left - 8, y: y(times) + 4, class: "end" }, `${times}×`),
    ]);
    const ticks = TICKS.map((tokens) => draw("text", { x: x(tokens), y: y(0) + 15, class: "middle" }, String(tokens)));
    const under = draw("text", { x: x(1), y: HEIGHT - 4 }, "tokens in one forward");
    /** @type {number[]} */
    const taken = [];
    const drawn = lines.flatMap(({ size, points }, index) => {
      const last = points[points.length - 1];
      let at = y(last.times) + 4;
      for (const other of taken) if (Math.abs(at - other) < APART) at = other + (at < other ? -APART : APART);
      taken.push(at);
      const way = points.map(({ tokens, times }) => `${x(tokens).toFixed(1)} ${y(times).toFixed(1)}`).join("L");
      const hue = index ? "large" : "small";
      return [
        draw("path", { d: `M${way}`, class: hue }),
        draw("text", { x: x(MOST) + 6, y: at, class: `name ${hue}` }, size),
      ];
    });
    const view = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "growth", "aria-hidden": "true" };
    return draw("svg", view, ...grid, ...ticks, under, ...drawn);
  }

  return { growthPlot, timesOne };
})();
