// Bars, drawn with Plotly: where the time of every system went, in milliseconds a token by phase, and acceptance by depth and by rank, in
// shares. Knows figures of lanes and a sweep's summary; nothing of clocks.

TreeRace.barPlots = (() => {
  const { make } = TreeRace.elements;
  const { asNumber, asPercent, escapeMarkup } = TreeRace.numbers;
  const { axisOf, channels, lettering, plot, readable, roomOf, scatter } = TreeRace.plotBase;

  const TALL = 1.5; // letters' heights of a bar that holds its percentage
  const TOP_SHARE = 1.12; // of the axis of shares

  // A phase is told by its pattern too: Plotly's sign for it, and a look for the legend in prix/prix.css.
  /** @type {Phase[]} */
  const PHASES = [
    { name: "prefill", share: "prefill_share", shape: ".", colour: "faint" },
    { name: "verify", share: "verify_share", shape: "", colour: "base" },
    { name: "draft", share: "draft_share", shape: "/", colour: "tree" },
    { name: "other", share: "other_share", shape: "x", colour: "ink" },
  ];
  /** @param {LaneFigures} lane */
  const msOf = (lane) => (1000 * lane.seconds) / lane.tokens;

  /** @param {HTMLElement} root */
  function splitLegend(root) {
    for (const name of [...PHASES.map((phase) => phase.name), "plain"]) {
      const swatch = make("i");
      swatch.dataset.phase = name;
      root.append(make("span", "", swatch, name));
    }
  }

  /**
   * `lanes` from the first place down; `baseline` is the one that is marked for all.
   * @param {HTMLElement} div
   * @param {RankedLane[]} lanes
   * @param {LaneFigures} baseline
   */
  function drawSplit(div, lanes, baseline) {
    const room = roomOf(div);
    if (!room) return;
    const { width, height, colours } = room;
    const size = Math.round(Math.max(12, Math.min(20, height / 17, width / 26)));
    const longest = Math.max(...lanes.map(msOf));
    const limit = Math.round(width / 3 / (size * 0.55));
    const cut = (/** @type {string} */ title) => (title.length > limit ? `${title.slice(0, limit - 1)}…` : title);
    const plain = msOf(baseline);
    const line = { color: colours.ink, width: 2, dash: "5px,4px" };
    const axis = axisOf(colours, size);
    const axes = {
      barmode: "stack",
      bargap: 0.3,
      xaxis: { ...axis, range: [0, longest * 1.04], gridcolor: colours.cell, ticksuffix: " ms", nticks: 5 },
      yaxis: {
        ...axis,
        range: [lanes.length - 0.45, -0.55],
        tickvals: lanes.map((_, index) => index),
        ticktext: lanes.map((lane) => escapeMarkup(cut(lane.title))),
        tickfont: { size, color: colours.ink },
        automargin: true,
        ticklabelstandoff: 6,
      },
      shapes: [{ type: "line", x0: plain, x1: plain, yref: "paper", y0: 0, y1: 1, line }],
    };
    const margin = { l: 14, r: 12, t: 4, b: size + 12 };
    const traces = PHASES.map(({ name, share, shape, colour }) => ({
      type: "bar",
      orientation: "h",
      y: lanes.map((_, index) => index),
      x: lanes.map((lane) => msOf(lane) * lane[share]),
      customdata: lanes.map((lane) => {
        const ms = `${asNumber(msOf(lane) * lane[share], 2)} of ${asNumber(msOf(lane), 2)} ms a token`;
        return `${escapeMarkup(lane.title)}: ${name}<br>${ms}, ${asPercent(lane[share])}`;
      }),
      marker: {
        color: colours[colour],
        pattern: { shape, fillmode: "overlay", fgcolor: colours.surface, fgopacity: 0.75, solidity: 0.3, size: 7 },
      },
    }));
    plot(div, room, traces, margin, axes);
    const shares = lanes.map((lane) => `${lane.title} ${asNumber(msOf(lane), 2)} ms`);
    div.setAttribute("aria-label", `Time a token by phase, the fastest first: ${shares.join(", ")}`);
  }

  /**
   * Bars of shares, each with its percentage, and a line of the shares of rounds, where these are known.
   * @param {HTMLElement} div
   * @param {Accepted[]} rows
   * @param {"depth" | "rank"} kind
   * @param {string} words
   */
  function drawShares(div, rows, kind, words) {
    const room = roomOf(div);
    if (!room) return;
    const { width, height, colours } = room;
    const letters = lettering();
    const places = rows.map((row) => Number(row[kind]));
    const share = (/** @type {Accepted} */ row) => row.accepted / row.reached;
    const margin = { l: letters * 3.6, r: 10, t: 6, b: letters * 2.9 };
    const size = Math.min(letters, ((width - 3.6 * letters) / Math.max(4, ...places)) * 0.25);
    const tall = (/** @type {Accepted} */ row) =>
      (share(row) / TOP_SHARE) * (height - margin.t - margin.b) > TALL * size;
    /** @type {object[]} */
    const traces = [
      {
        type: "bar",
        x: places,
        y: rows.map(share),
        text: rows.map((row) => String(Math.round(100 * share(row)))), // a bar has no room for the axis' sign
        textposition: rows.map((row) => (tall(row) ? "inside" : "outside")),
        insidetextanchor: "start",
        textangle: 0,
        textfont: { size, color: colours.ink },
        insidetextfont: { color: readable(channels(colours.tree)) },
        constraintext: "none",
        cliponaxis: false,
        customdata: rows.map((row) => `${words} ${row[kind]}: ${row.accepted} of ${row.reached} guesses accepted`),
        marker: { color: colours.tree },
        width: 0.62,
      },
    ];
    if (rows.some((row) => row.levels)) {
      const rounds = rows.map(({ depth, accepted, levels }) => {
        const said = `depth ${depth}: some guess accepted in ${accepted} of ${levels} rounds that got there`;
        return { x: Number(depth), y: accepted / Number(levels), said };
      });
      const line = { color: colours.ink, width: 2, dash: "5px,4px" };
      const marker = { symbol: "diamond", size: 9, color: colours.ink };
      traces.push(scatter("lines+markers", rounds, { cliponaxis: false, line, marker }));
    }
    const across = axisOf(colours, letters, `${words} · of the guesses that were reached there`);
    const axes = {
      xaxis: { ...across, showgrid: false, tickvals: places, range: [0.4, Math.max(4, ...places) + 0.6] },
      yaxis: {
        ...axisOf(colours, letters),
        gridcolor: colours.cell,
        range: [0, TOP_SHARE],
        tickvals: [0, 0.5, 1],
        ticktext: ["0", "50 %", "100 %"],
      },
      bargap: 0.3,
    };
    plot(div, room, traces, margin, axes);
  }

  return { splitLegend, drawSplit, drawShares };
})();
