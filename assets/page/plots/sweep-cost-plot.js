// The cost curve of a sweep, drawn with Plotly: time over the nodes of one forward, and what the cells won. Knows a sweep's cells and
// costs; nothing of how they were asked for.

TreeRace.sweepCostPlot = (() => {
  const { asNumber } = TreeRace.numbers;
  const { lettering, plot, roomOf } = TreeRace.plotBase;
  const { Costs } = TreeRace.roundCosts;
  const { LARGEST, costAxes, costLines, word } = TreeRace.costPlot;

  /**
   * What forwards of this size took in the sweep's own races.
   * @param {SweepRecord} sweep
   * @param {Palette} colours
   */
  function inRaces(sweep, colours) {
    const plain = sweep.verify[1];
    const sizes = plain ? Object.keys(sweep.verify).map(Number) : [];
    return {
      type: "scatter",
      mode: "markers",
      x: sizes,
      y: sizes.map((count) => sweep.verify[count] / plain),
      customdata: sizes.map(
        (count) => `${count} nodes in these races: ${asNumber(sweep.verify[count], 2)} ms, the median`,
      ),
      marker: { symbol: "circle-open", color: colours.base, size: 8, line: { width: 2 } },
    };
  }

  /**
   * @param {Cell[]} cells
   * @param {SweepRecord} sweep
   * @param {object} look
   */
  function points(cells, sweep, look) {
    return {
      type: "scatter",
      mode: "markers",
      x: cells.map((cell) => cell.mean_nodes),
      y: cells.map((cell) => cell.tau),
      customdata: cells.map((cell) => sweep.cellWords(cell)),
      cliponaxis: false,
      marker: look,
    };
  }

  /**
   * @param {HTMLElement} div
   * @param {SweepRecord} sweep
   */
  function drawSweepCost(div, sweep) {
    const room = roomOf(div);
    if (!room) return;
    const { colours } = room;
    const letters = lettering();
    const costs = new Costs(sweep.costs);
    const cells = sweep.raced;
    const best = cells.filter((cell) => sweep.isBest(cell));
    const levels = best.length ? best[0].depth : (sweep.fixed.depth ?? sweep.x.values[0]);
    const largest = Math.max(LARGEST, ...cells.map((cell) => Math.ceil(cell.mean_nodes)));
    const top = Math.max(3.6, ...cells.map((cell) => cell.tau + 0.6));
    const traces = [
      ...costLines(costs, levels, largest, colours),
      inRaces(sweep, colours),
      points(cells, sweep, { color: colours.tree, symbol: "square", size: 8, opacity: 0.45, line: { width: 0 } }),
      points(best, sweep, {
        color: colours.tree,
        symbol: "diamond",
        size: 15,
        opacity: 1,
        line: { color: colours.surface, width: 1.5 },
      }),
    ];
    const end = Math.min(top - 1, costs.breakEven(largest, levels));
    const axes = {
      ...costAxes(colours, letters, largest, top, top > 6 ? 2 : 1),
      annotations: [
        word("slower than plain", largest, 0.35, "right", colours.faint, letters),
        word("break-even", largest, end, "right", colours.ink, letters, {
          yshift: letters * 0.8,
          bgcolor: colours.cell,
        }),
        word("t(N)", 1, 0.55, "left", colours.baseInk, letters),
      ],
    };
    const margin = { l: letters * 2.2, r: letters * 2.2, t: 6, b: letters * 1.8 };
    plot(div, room, traces, margin, axes);
  }

  return { drawSweepCost };
})();
