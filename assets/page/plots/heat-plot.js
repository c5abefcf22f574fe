// The charts of a sweep's cells, drawn with Plotly: heatmaps with a colour and a numeral for every cell, and the cost curve with what the
// cells won. Knows a sweep's cells, its best ones and its costs; nothing of how they were asked for.

TreeRace.heatPlot = (() => {
  const { LARGEST, costAxes, costLines } = TreeRace.costPlot;
  const { asNumber } = TreeRace.numbers;
  const { axisOf, lettering, mixed, plot, readable, roomOf, scatter, word } = TreeRace.plotBase;
  const { Costs } = TreeRace.roundCosts;

  const GAP = 3; // pixels between cells

  // A colour for every value of a figure: `at` is 0 to 1 along `stops`.
  /** @type {Record<string, (cells: Cell[], colours: Palette) => { stops: string[], at: (cell: Cell) => number }>} */
  const HEATS = {
    speedup: (cells, colours) => {
      // As much faster is as far from the middle as so much slower.
      const reach = Math.max(Math.log(1.3), ...cells.map((cell) => Math.abs(Math.log(cell.speedup))));
      const at = (/** @type {Cell} */ cell) => 0.5 + Math.log(cell.speedup) / reach / 2;
      return { stops: [colours.base, colours.cell, colours.tree], at };
    },
    tau: (cells, colours) => {
      const most = Math.max(2, ...cells.map((cell) => cell.tau));
      return { stops: [colours.cell, colours.faint], at: (cell) => (cell.tau - 1) / (most - 1) };
    },
  };

  /** @param {string[]} stops at equal distances, as Plotly wants them */
  const scaleOf = (stops) => stops.map((colour, index) => [index / (stops.length - 1), colour]);

  /** @type {(stops: string[], at: number) => number[]} */
  function shade(stops, at) {
    const place = Math.max(0, Math.min(1, at)) * (stops.length - 1);
    const from = Math.min(stops.length - 2, Math.floor(place));
    return mixed(stops[from], stops[from + 1], place - from);
  }

  /**
   * Best cells have a solid frame, the picked one a dashed frame.
   * @param {HTMLElement} div
   * @param {SweepRecord} sweep
   * @param {"speedup" | "tau"} what one of HEATS
   * @param {{ x: number, y: number } | null} picked the cell that the keys are on
   */
  function drawHeat(div, sweep, what, picked) {
    const room = roomOf(div);
    if (!room) return;
    const { width, height, colours } = room;
    const { cells: known, raced } = sweep;
    const { stops, at } = HEATS[what](raced, colours);
    const letters = lettering();
    const margin = { l: letters * 3.6, r: 10, t: 4, b: letters * 2.9 };
    const [columns, rows] = [sweep.x.values.length, sweep.y.values.length];
    const [across, down] = [(width - margin.l - margin.r) / columns, (height - margin.t - margin.b) / rows];
    const short = across < letters * 3.4;
    const numerals = Math.max(9, Math.min(letters * 1.35, across / (short ? 2.6 : 3.2), down * 0.62));
    /** @param {(cell: Cell | undefined) => unknown} value */
    const grid = (value) => sweep.y.values.map((y) => sweep.x.values.map((x) => value(sweep.cell(x, y))));
    const indices = (/** @type {unknown[]} */ values) => values.map((_, index) => index);
    const plane = { type: "heatmap", showscale: false, zmin: 0, zmax: 1, xgap: GAP, ygap: GAP };
    const places = { x: indices(sweep.x.values), y: indices(sweep.y.values) };
    const write = (/** @type {Cell} */ cell) => {
      if (cell.refused) return "–";
      const text = asNumber(cell[what], short ? 1 : 2);
      const said = what === "speedup" ? `${text}×${cell.disturbed ? "?" : ""}` : text;
      return sweep.isBest(cell) ? `<b>${said}</b>` : said;
    };
    const traces = [
      {
        ...plane,
        ...places,
        z: grid(() => 0),
        colorscale: scaleOf([colours.cell, colours.cell]),
        opacity: 0.55,
        hoverinfo: "skip",
      },
      {
        ...plane,
        ...places,
        z: grid((cell) => (cell && !cell.refused ? Math.max(0, Math.min(1, at(cell))) : null)),
        customdata: grid((cell) => (cell ? sweep.cellWords(cell) : "")),
        colorscale: scaleOf(stops),
        hoverongaps: false,
      },
      {
        type: "scatter",
        mode: "text",
        x: known.map((cell) => sweep.x.values.indexOf(cell.x)),
        y: known.map((cell) => sweep.y.values.indexOf(cell.y)),
        text: known.map(write),
        textfont: {
          size: numerals,
          color: known.map((cell) => (cell.refused ? colours.faint : readable(shade(stops, at(cell))))),
        },
        hoverinfo: "skip",
        cliponaxis: false,
      },
    ];
    const axis = (/** @type {SweepAxis} */ each) => ({
      ...axisOf(colours, letters, each.name),
      showgrid: false,
      range: [-0.5, each.values.length - 0.5],
      tickvals: indices(each.values),
      ticktext: each.values.map(String),
    });
    /** @type {(place: { x: number, y: number }, width: number, dash?: string) => object} within the cell */
    const frame = ({ x, y }, width, dash) => {
      const [column, row] = [sweep.x.values.indexOf(x), sweep.y.values.indexOf(y)];
      const [half, tall] = [across, down].map((pixels) => 0.5 - (GAP + width) / 2 / pixels);
      const line = { color: colours.ink, width, dash };
      return { type: "rect", x0: column - half, x1: column + half, y0: row - tall, y1: row + tall, line };
    };
    const shapes = sweep.summary.best.map((cell) => frame(cell, 3));
    if (picked) shapes.push(frame(picked, 2, "4px,3px"));
    const axes = { xaxis: axis(sweep.x), yaxis: axis(sweep.y), shapes };
    plot(div, room, traces, margin, axes);
  }

  /**
   * @param {SweepRecord} sweep
   * @param {Palette} colours
   */
  function inRaces(sweep, colours) {
    const { verify_ms: verify } = sweep.summary;
    const plain = verify[1];
    const places = Object.entries(plain ? verify : {}).map(([count, ms]) => {
      const said = `${count} nodes in these races: ${asNumber(ms, 2)} ms, the median`;
      return { x: Number(count), y: ms / plain, said };
    });
    const marker = { symbol: "circle-open", color: colours.base, size: 8, line: { width: 2 } };
    return scatter("markers", places, { marker });
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
    const costs = new Costs(sweep.start.costs);
    const cells = sweep.raced;
    const best = cells.filter((cell) => sweep.isBest(cell));
    const levels = best.length ? best[0].depth : (sweep.start.fixed.depth ?? sweep.x.values[0]);
    const largest = Math.max(LARGEST, ...cells.map((cell) => Math.ceil(cell.mean_nodes)));
    const top = Math.max(3.6, ...cells.map((cell) => cell.tau + 0.6));
    const edge = { color: colours.surface, width: 1.5 };
    /** @type {(those: Cell[], marker: object) => object} */
    const points = (those, marker) => {
      const places = those.map((cell) => ({ x: cell.mean_nodes, y: cell.tau, said: sweep.cellWords(cell) }));
      return scatter("markers", places, { cliponaxis: false, marker });
    };
    const traces = [
      ...costLines(costs, levels, largest, colours),
      inRaces(sweep, colours),
      points(cells, { color: colours.tree, symbol: "square", size: 8, opacity: 0.45 }),
      points(best, { color: colours.tree, symbol: "diamond", size: 15, line: edge }),
    ];
    const end = Math.log10(largest);
    const even = Math.min(top - 1, costs.breakEven(largest, levels));
    const font = (/** @type {string} */ color) => ({ color, size: letters });
    const raised = { yshift: letters * 0.8, bgcolor: colours.cell };
    const annotations = [
      word("slower than plain", [end, 0.35], "right", font(colours.faint)),
      word("break-even", [end, even], "right", font(colours.ink), raised),
      word("t(N)", [0, 0.55], "left", font(colours.baseInk)),
    ];
    const axes = { ...costAxes(colours, letters, largest, top, top > 6 ? 2 : 1), annotations };
    const margin = { l: letters * 2.2, r: letters * 2.2, t: 6, b: letters * 1.8 };
    plot(div, room, traces, margin, axes);
  }

  return { drawHeat, drawSweepCost };
})();
