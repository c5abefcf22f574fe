// The cost curve of a sweep, drawn with Plotly: time over the nodes of one forward, and what the cells won. Knows a sweep's cells and
// costs; nothing of how they were asked for.
"use strict";

TreeRace.sweepCostPlot = (() => {
  const { asNumber } = TreeRace.numbers;
  const { PLOT, palette, plotLayout, roomOf } = TreeRace.plotBase;
  const { Costs } = TreeRace.roundCosts;
  const { cellWords, lettering } = TreeRace.sweepCells;
  const LARGEST = 64; // nodes on the cost curve, or more if a cell has more
  const SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];
  const hovertemplate = "%{customdata}<extra></extra>";

  /** @param {number} largest */
  const upTo = (largest) => Array.from({ length: largest }, (_, index) => index + 1);

  /**
   * @param {Costs} costs
   * @param {number} largest
   * @param {Palette} colours
   */
  function curve(costs, largest, colours) {
    const known = new Set(costs.sizes);
    const nodes = upTo(largest);
    const ratio = (/** @type {number} */ count) => costs.verifyAt(count) / costs.verifyAt(1);
    return {
      type: "scatter",
      mode: "lines+markers",
      x: nodes,
      y: nodes.map(ratio),
      customdata: nodes.map(
        (count) =>
          `${count} nodes: ${asNumber(ratio(count), 2)} tokens’ time, ${asNumber(costs.verifyAt(count), 2)} ms`,
      ),
      hovertemplate,
      line: { color: colours.base, width: 3 },
      marker: {
        color: colours.base,
        size: nodes.map((count) => (known.has(count) ? 7 : 0)),
        opacity: 1,
        line: { width: 0 },
      },
    };
  }

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
      hovertemplate,
      marker: { symbol: "circle-open", color: colours.base, size: 8, line: { width: 2 } },
    };
  }

  /**
   * @param {Costs} costs
   * @param {number} levels
   * @param {number} largest
   * @param {Palette} colours
   */
  function breakEven(costs, levels, largest, colours) {
    const nodes = upTo(largest);
    const needs = nodes.map((count) => costs.breakEven(count, levels));
    return {
      type: "scatter",
      mode: "lines",
      x: nodes,
      y: needs,
      customdata: nodes.map(
        (count, index) => `${count} nodes in ${levels} levels need ${asNumber(needs[index], 2)} tokens a pass`,
      ),
      hovertemplate,
      line: { color: colours.ink, width: 2, dash: "5px,4px" },
      fill: "tozeroy",
      fillcolor: colours.cell,
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
      customdata: cells.map((cell) => cellWords(cell, sweep)),
      hovertemplate,
      cliponaxis: false,
      marker: look,
    };
  }

  /**
   * @param {string} text
   * @param {number} nodes
   * @param {number} tokens
   * @param {string} anchor
   * @param {string} color
   * @param {number} letters
   * @param {object} [more]
   */
  const word = (text, nodes, tokens, anchor, color, letters, more = {}) => ({
    text,
    x: Math.log10(nodes),
    y: tokens,
    xanchor: anchor,
    yanchor: "middle",
    showarrow: false,
    font: { color, size: letters },
    ...more,
  });

  /**
   * @param {HTMLElement} div
   * @param {SweepRecord} sweep
   */
  function drawSweepCost(div, sweep) {
    const room = roomOf(div);
    if (!room) return;
    const { width, height } = room;
    const colours = palette(div);
    const letters = lettering();
    const costs = new Costs(sweep.costs);
    const cells = sweep.raced;
    const best = cells.filter((cell) => sweep.best.some(({ x, y }) => x === cell.x && y === cell.y));
    const levels = best.length ? best[0].depth : (sweep.fixed.depth ?? sweep.x.values[0]);
    const largest = Math.max(LARGEST, ...cells.map((cell) => Math.ceil(cell.mean_nodes)));
    const top = Math.max(3.6, ...cells.map((cell) => cell.tau + 0.6));
    const traces = [
      breakEven(costs, levels, largest, colours),
      curve(costs, largest, colours),
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
    const tickfont = { size: letters, color: colours.faint };
    const axis = { fixedrange: true, zeroline: false, ticks: "", gridcolor: colours.cell, tickfont };
    const every = top > 6 ? 2 : 1;
    const tokens = Array.from({ length: Math.floor(top / every) + 1 }, (_, index) => index * every);
    const end = Math.min(top - 1, costs.breakEven(largest, levels));
    const axes = {
      xaxis: {
        ...axis,
        type: "log",
        range: [Math.log10(0.92), Math.log10(largest * 1.05)],
        tickvals: SIZES,
        ticktext: SIZES.map((each) => (each === LARGEST ? `${each} nodes` : `${each}`)),
      },
      yaxis: { ...axis, range: [0, top], tickvals: tokens },
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
    Plotly.react(div, traces, plotLayout(colours, width, height, margin, axes), PLOT);
  }

  return { drawSweepCost };
})();
