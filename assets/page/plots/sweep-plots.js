// The charts of a sweep, drawn with Plotly: two heatmaps, the cost curve, acceptance by depth and by rank. Knows a sweep's cells and
// summary; nothing of how they were asked for.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const LARGEST = 64; // nodes on the cost curve, or more if a cell has more
  const SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];
  const GAP = 3; // pixels between cells
  const TALL = 0.16; // a bar of this share holds its percentage
  const hovertemplate = "%{customdata}<extra></extra>";

  const lettering = () => Math.round(Math.max(12, Math.min(22, window.innerWidth / 92)));
  const percent = (value) => `${Math.round(100 * value)} %`;

  // ---- colours ----------------------------------------------------------------------------------------------------

  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const rgb = (channel) => `rgb(${channel.map(Math.round).join(",")})`;
  const mixed = (from, to, part) => channels(from).map((each, index) => each + (channels(to)[index] - each) * part);

  function luminance(channel) {
    const [r, g, b] = channel.map((each) => each / 255).map((c) => (c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  // Black or white, whichever is easier to read on this colour.
  const readable = (channel) => (luminance(channel) > 0.179 ? "#000000" : "#ffffff");

  // What a heatmap shows, and a colour for every value: `at` is 0 to 1 along `stops`.
  const HEATS = {
    speedup: {
      text: (cell, short) => `${T.number(cell.speedup, short ? 1 : 2)}×`,
      stops: (colours) => [colours.base, colours.cell, colours.tree],
      // As much faster is as far from the middle as so much slower.
      at: (cells) => {
        const reach = Math.max(Math.log(1.3), ...cells.map((cell) => Math.abs(Math.log(cell.speedup))));
        return (cell) => 0.5 + Math.log(cell.speedup) / reach / 2;
      },
    },
    tau: {
      text: (cell, short) => T.number(cell.tau, short ? 1 : 2),
      stops: (colours) => [colours.cell, colours.faint],
      at: (cells) => {
        const most = Math.max(2, ...cells.map((cell) => cell.tau));
        return (cell) => (cell.tau - 1) / (most - 1);
      },
    },
  };

  function shade(stops, at) {
    const place = Math.max(0, Math.min(1, at)) * (stops.length - 1);
    const from = Math.min(stops.length - 2, Math.floor(place));
    return mixed(stops[from], stops[from + 1], place - from);
  }

  // ---- heatmaps ---------------------------------------------------------------------------------------------------

  function hover(cell, sweep) {
    const where = `${sweep.x.name} ${cell.x}, ${sweep.y.name} ${cell.y}`;
    if (cell.refused) return `${where}<br>${T.escape(cell.refused)}`;
    return [
      where,
      `${T.number(cell.speedup, 2)}× plain decoding’s speed, tau ${T.number(cell.tau, 2)}`,
      `${T.number(cell.mean_nodes, 1)} nodes a tree, ${T.number(cell.ms_per_token, 2)} ms a token`,
      `${percent(cell.draft_share)} of the time drafts, ${percent(cell.verify_share)} verifies`,
    ].join("<br>");
  }

  // A frame that lies within the cell, which is so many pixels `across` and `down`.
  function frame(sweep, { x, y }, across, down, line) {
    const [column, row] = [sweep.x.values.indexOf(x), sweep.y.values.indexOf(y)];
    const [half, tall] = [across, down].map((pixels) => 0.5 - (GAP + line.width) / 2 / pixels);
    return { type: "rect", x0: column - half, x1: column + half, y0: row - tall, y1: row + tall, line };
  }

  // `what` is one of HEATS; `picked` the cell that the keys are on. Best cells have a solid frame, the picked one a dashed frame.
  T.drawHeat = function (div, sweep, what, picked) {
    const [width, height] = [div.clientWidth, div.clientHeight];
    if (!window.Plotly || !width || !height) return;
    const colours = T.palette(div);
    const heat = HEATS[what];
    const cells = sweep.cells.filter((cell) => !cell.refused);
    const at = heat.at(cells);
    const stops = heat.stops(colours);
    const letters = lettering();
    const margin = { l: letters * 3.6, r: 10, t: 4, b: letters * 2.9 };
    const [columns, rows] = [sweep.x.values.length, sweep.y.values.length];
    const [across, down] = [(width - margin.l - margin.r) / columns, (height - margin.t - margin.b) / rows];
    const short = across < letters * 3.4;
    const numerals = Math.max(9, Math.min(letters * 1.35, across / (short ? 2.6 : 3.2), down * 0.62));
    const grid = (value) => sweep.y.values.map((y) => sweep.x.values.map((x) => value(sweep.cell(x, y))));
    const indices = (values) => values.map((_, index) => index);
    const plane = { type: "heatmap", showscale: false, zmin: 0, zmax: 1, xgap: GAP, ygap: GAP };
    const places = { x: indices(sweep.x.values), y: indices(sweep.y.values) };
    const known = sweep.cells;
    const best = (cell) => sweep.best.some(({ x, y }) => x === cell.x && y === cell.y);
    const write = (cell) => (cell.refused ? "–" : best(cell) ? `<b>${heat.text(cell, short)}</b>` : heat.text(cell, short));
    const traces = [
      { ...plane, ...places, z: grid(() => 0), colorscale: [[0, colours.cell], [1, colours.cell]], opacity: 0.55, hoverinfo: "skip" },
      {
        ...plane,
        ...places,
        z: grid((cell) => (cell && !cell.refused ? Math.max(0, Math.min(1, at(cell))) : null)),
        customdata: grid((cell) => (cell ? hover(cell, sweep) : "")),
        colorscale: stops.map((colour, index) => [index / (stops.length - 1), colour]),
        hovertemplate,
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
    const tickfont = { size: letters, color: colours.faint };
    const axis = (each) => ({
      fixedrange: true,
      zeroline: false,
      showgrid: false,
      ticks: "",
      tickfont,
      range: [-0.5, each.values.length - 0.5],
      tickvals: indices(each.values),
      ticktext: each.values.map(String),
      title: { text: each.name, font: { size: letters, color: colours.faint }, standoff: 2 },
    });
    const shapes = sweep.best.map((cell) => frame(sweep, cell, across, down, { color: colours.ink, width: 3 }));
    if (picked) shapes.push(frame(sweep, picked, across, down, { color: colours.ink, width: 2, dash: "4px,3px" }));
    const axes = { xaxis: axis(sweep.x), yaxis: axis(sweep.y), shapes };
    Plotly.react(div, traces, T.plotLayout(colours, width, height, margin, axes), T.PLOT);
  };

  // ---- the cost curve ---------------------------------------------------------------------------------------------

  const upTo = (largest) => Array.from({ length: largest }, (_, index) => index + 1);

  function curve(costs, largest, colours) {
    const known = new Set(costs.sizes);
    const nodes = upTo(largest);
    const ratio = (count) => costs.verifyAt(count) / costs.verifyAt(1);
    return {
      type: "scatter",
      mode: "lines+markers",
      x: nodes,
      y: nodes.map(ratio),
      customdata: nodes.map((count) => `${count} nodes: ${T.number(ratio(count), 2)} tokens’ time, ${T.number(costs.verifyAt(count), 2)} ms`),
      hovertemplate,
      line: { color: colours.base, width: 3 },
      marker: { color: colours.base, size: nodes.map((count) => (known.has(count) ? 7 : 0)), opacity: 1, line: { width: 0 } },
    };
  }

  // What forwards of this size took in the sweep's own races.
  function inRaces(sweep, colours) {
    const plain = sweep.verify[1];
    const sizes = plain ? Object.keys(sweep.verify).map(Number) : [];
    return {
      type: "scatter",
      mode: "markers",
      x: sizes,
      y: sizes.map((count) => sweep.verify[count] / plain),
      customdata: sizes.map((count) => `${count} nodes in these races: ${T.number(sweep.verify[count], 2)} ms, the median`),
      hovertemplate,
      marker: { symbol: "circle-open", color: colours.base, size: 8, line: { width: 2 } },
    };
  }

  function breakEven(costs, levels, largest, colours) {
    const nodes = upTo(largest);
    const needs = nodes.map((count) => costs.breakEven(count, levels));
    return {
      type: "scatter",
      mode: "lines",
      x: nodes,
      y: needs,
      customdata: nodes.map((count, index) => `${count} nodes in ${levels} levels need tau ${T.number(needs[index], 2)}`),
      hovertemplate,
      line: { color: colours.ink, width: 2, dash: "5px,4px" },
      fill: "tozeroy",
      fillcolor: colours.cell,
    };
  }

  function points(cells, sweep, look) {
    return {
      type: "scatter",
      mode: "markers",
      x: cells.map((cell) => cell.mean_nodes),
      y: cells.map((cell) => cell.tau),
      customdata: cells.map((cell) => hover(cell, sweep)),
      hovertemplate,
      cliponaxis: false,
      marker: look,
    };
  }

  const word = (text, nodes, tokens, anchor, color, letters, more) => ({
    text, x: Math.log10(nodes), y: tokens, xanchor: anchor, yanchor: "middle", showarrow: false, font: { color, size: letters }, ...more,
  });

  T.drawSweepCost = function (div, sweep) {
    const [width, height] = [div.clientWidth, div.clientHeight];
    if (!window.Plotly || !width || !height) return;
    const colours = T.palette(div);
    const letters = lettering();
    const costs = new T.Costs(sweep.costs);
    const cells = sweep.cells.filter((cell) => !cell.refused);
    const best = cells.filter((cell) => sweep.best.some(({ x, y }) => x === cell.x && y === cell.y));
    const levels = best.length ? best[0].depth : (sweep.fixed.depth ?? sweep.x.values[0]);
    const largest = Math.max(LARGEST, ...cells.map((cell) => Math.ceil(cell.mean_nodes)));
    const top = Math.max(3.6, ...cells.map((cell) => cell.tau + 0.6));
    const traces = [
      breakEven(costs, levels, largest, colours),
      curve(costs, largest, colours),
      inRaces(sweep, colours),
      points(cells, sweep, { color: colours.tree, symbol: "square", size: 8, opacity: 0.45, line: { width: 0 } }),
      points(best, sweep, { color: colours.tree, symbol: "diamond", size: 15, opacity: 1, line: { color: colours.surface, width: 1.5 } }),
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
        word(`break-even, ${levels} ${levels === 1 ? "level" : "levels"}`, largest, end, "right", colours.ink, letters, { yshift: letters * 0.8 }),
        word("t(N)", 1, 0.55, "left", colours.baseInk, letters),
      ],
    };
    const margin = { l: letters * 2.2, r: letters * 2.2, t: 6, b: letters * 1.8 };
    Plotly.react(div, traces, T.plotLayout(colours, width, height, margin, axes), T.PLOT);
  };

  // ---- acceptance -------------------------------------------------------------------------------------------------

  // Bars of shares, each with its percentage; `marks` are the shares of rounds, where a place has them.
  T.drawShares = function (div, rows, kind, words) {
    const [width, height] = [div.clientWidth, div.clientHeight];
    if (!window.Plotly || !width || !height) return;
    const colours = T.palette(div);
    const letters = lettering();
    const places = rows.map((row) => row[kind]);
    const share = (row) => row.accepted / row.reached;
    const traces = [
      {
        type: "bar",
        x: places,
        y: rows.map(share),
        text: rows.map((row) => percent(share(row))),
        textposition: rows.map((row) => (share(row) > TALL ? "inside" : "outside")),
        insidetextanchor: "start",
        textangle: 0,
        textfont: { size: Math.min(letters, ((width - 3.6 * letters) / Math.max(4, ...places)) * 0.25), color: colours.ink },
        insidetextfont: { color: readable(channels(colours.tree)) },
        constraintext: "none",
        cliponaxis: false,
        customdata: rows.map((row) => `${words} ${row[kind]}: ${row.accepted} of ${row.reached} guesses accepted`),
        hovertemplate,
        marker: { color: colours.tree, line: { width: 0 } },
        width: 0.62,
      },
    ];
    if (kind === "depth") {
      traces.push({
        type: "scatter",
        mode: "lines+markers",
        x: places,
        y: rows.map((row) => row.accepted / row.levels),
        customdata: rows.map((row) => `depth ${row.depth}: some guess accepted in ${row.accepted} of ${row.levels} rounds that got there`),
        hovertemplate,
        cliponaxis: false,
        line: { color: colours.ink, width: 2, dash: "5px,4px" },
        marker: { symbol: "diamond", size: 9, color: colours.ink },
      });
    }
    const tickfont = { size: letters, color: colours.faint };
    const axis = { fixedrange: true, zeroline: false, ticks: "", tickfont };
    const title = { text: words, font: { size: letters, color: colours.faint }, standoff: 2 };
    const axes = {
      xaxis: { ...axis, showgrid: false, tickvals: places, range: [0.4, Math.max(4, ...places) + 0.6], title },
      yaxis: { ...axis, gridcolor: colours.cell, range: [0, 1.12], tickvals: [0, 0.5, 1], ticktext: ["0", "50 %", "100 %"] },
      bargap: 0.3,
    };
    const margin = { l: letters * 3.6, r: 10, t: 6, b: letters * 2.9 };
    Plotly.react(div, traces, T.plotLayout(colours, width, height, margin, axes), T.PLOT);
  };
})(window.TreeRace);
