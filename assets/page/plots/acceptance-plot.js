// Acceptance by depth and by rank, drawn with Plotly as bars of shares. Knows a sweep's summary; nothing of how it was asked for.

TreeRace.acceptancePlot = (() => {
  const { axisOf, lettering, plot, roomOf } = TreeRace.plotBase;
  const { channels, readable } = TreeRace.shades;
  const TALL = 1.5; // letters' heights of a bar that holds its percentage
  const MOST = 1.12; // of the axis of shares

  /**
   * Bars of shares, each with its percentage; `marks` are the shares of rounds, where a place has them.
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
    const tall = (/** @type {Accepted} */ row) => (share(row) / MOST) * (height - margin.t - margin.b) > TALL * size;
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
        marker: { color: colours.tree, line: { width: 0 } },
        width: 0.62,
      },
    ];
    if (rows.some((row) => row.levels)) {
      traces.push({
        type: "scatter",
        mode: "lines+markers",
        x: places,
        y: rows.map((row) => row.accepted / Number(row.levels)),
        customdata: rows.map(
          (row) => `depth ${row.depth}: some guess accepted in ${row.accepted} of ${row.levels} rounds that got there`,
        ),
        cliponaxis: false,
        line: { color: colours.ink, width: 2, dash: "5px,4px" },
        marker: { symbol: "diamond", size: 9, color: colours.ink },
      });
    }
    const across = axisOf(colours, letters, `${words} · of the guesses that were reached there`);
    const axes = {
      xaxis: { ...across, showgrid: false, tickvals: places, range: [0.4, Math.max(4, ...places) + 0.6] },
      yaxis: {
        ...axisOf(colours, letters),
        gridcolor: colours.cell,
        range: [0, MOST],
        tickvals: [0, 0.5, 1],
        ticktext: ["0", "50 %", "100 %"],
      },
      bargap: 0.3,
    };
    plot(div, room, traces, margin, axes);
  }

  return { drawShares };
})();
