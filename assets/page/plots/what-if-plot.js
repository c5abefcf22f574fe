// The what-if's curve, drawn with Plotly: speedup by depth, the chosen point on it, and the measured one beside it. Knows the formula.

TreeRace.whatIfPlot = (() => {
  const { asNumber } = TreeRace.numbers;
  const { SAID, axisOf, plot, roomOf } = TreeRace.plotBase;
  const { lettering } = TreeRace.sweepCells;
  const { speedup } = TreeRace.whatIfFormula;

  const BESIDE = 14; // pixels between a mark and its word
  const DEEPEST = 12;
  const STEP = 0.25; // of depth between two places of the curve

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
    const title = (/** @type {string} */ text) => ({
      text,
      font: { size: letters, color: colours.faint },
      standoff: 4,
    });
    const axis = axisOf(colours, letters);
    const traces = [
      {
        type: "scatter",
        mode: "lines",
        x: depths,
        y: curve,
        line: { color: colours.tree, width: 3 },
        customdata: depths.map((depth, index) => `depth ${depth}: ${asNumber(curve[index], 2)}×`),
        hovertemplate: SAID,
      },
      {
        type: "scatter",
        mode: "markers",
        x: [point.depth],
        y: [here],
        marker: { symbol: "circle", size: 15, color: colours.tree, line: { width: 2, color: colours.surface } },
        customdata: [`chosen: ${asNumber(here, 2)}× at depth ${asNumber(point.depth, 1)}`],
        hovertemplate: SAID,
      },
      {
        type: "scatter",
        mode: "markers",
        x: [measured.depth],
        y: [measured.decoding],
        marker: { symbol: "diamond-open", size: 15, color: colours.ink, line: { width: 3 } },
        customdata: [`measured: ${asNumber(measured.decoding, 2)}× at a mean depth of ${asNumber(measured.depth, 1)}`],
        hovertemplate: SAID,
        cliponaxis: false,
      },
    ];
    const line = { color: colours.base, width: 2, dash: "5px,4px" };
    const said = {
      text: "measured",
      x: measured.depth,
      y: measured.decoding,
      xanchor: "left",
      xshift: BESIDE,
      showarrow: false,
      bgcolor: colours.surface, // the curve stays behind the word
      borderpad: 1,
      font: { size: letters, color: colours.ink },
    };
    const axes = {
      annotations: [said],
      xaxis: { ...axis, showgrid: false, range: [-0.3, DEEPEST + 0.3], dtick: 2, title: title("depth of the tree") },
      yaxis: { ...axis, gridcolor: colours.cell, range: [0, highest * 1.12], ticksuffix: "×", nticks: 6 },
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line }],
    };
    const margin = { l: letters * 3.4, r: 14, t: 8, b: letters * 3.1 };
    plot(div, room, traces, margin, axes);
    div.setAttribute(
      "aria-label",
      `Speedup by depth: ${asNumber(here, 2)}× at depth ${asNumber(point.depth, 1)}; measured ${asNumber(measured.decoding, 2)}×`,
    );
  }

  return { drawWhatIf };
})();
