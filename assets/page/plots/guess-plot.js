// The drafter's view of one step, drawn with Plotly: how likely it thought each guess, and what the target then said.
// Knows one step; nothing of lanes, clocks or playback.

TreeRace.guessPlot = (() => {
  const { asShare, plotLabel, textWidth } = TreeRace.numbers;
  const { axisOf, plot, roomOf, scatter } = TreeRace.plotBase;

  const LARGEST_ROW = 40;
  const SMALLEST_ROW = 13; // below this height the rows carry no labels

  /**
   * The bars of q, and the target's p on them with the mark that the node has in the tree.
   * @param {Step} step
   * @param {number[]} nodes
   * @param {number} scale
   * @param {Palette} colours
   */
  function traces(step, nodes, scale, colours) {
    /** @type {Record<string, { symbol: string, size: number, fill: string, edge: string }>} */
    const marks = {
      accepted: { symbol: "square", size: 17, fill: colours.tree, edge: colours.tree },
      rejected: { symbol: "circle", size: 12, fill: colours.surface, edge: colours.faint },
      unreached: { symbol: "circle", size: 6, fill: colours.line, edge: colours.line },
    };
    const looks = nodes.map((node) => marks[step.verdicts[node]]);
    const places = nodes.map((node, y) => {
      const name = plotLabel(step.texts[node], colours.faint) || "(no text yet)";
      const verdict = step.verdicts[node] === "unreached" ? "not reached" : step.verdicts[node];
      const [q, p, score] = [step.q, step.p, step.score].map((of) => asShare(of[node]));
      const facts = [name, `draft q ${q}`, `target p ${p}`, `estimate for the path ${score}`, verdict];
      return { x: step.p[node], y, said: facts.join("<br>") };
    });
    return [
      {
        type: "bar",
        orientation: "h",
        x: nodes.map((node) => step.q[node]),
        y: places.map(({ y }) => y),
        customdata: places.map(({ said }) => said),
        marker: { color: colours.sees },
        width: 0.5,
      },
      scatter("markers", places, {
        cliponaxis: false,
        marker: {
          symbol: looks.map((each) => each.symbol),
          size: looks.map((each) => Math.max(8, each.size) * scale),
          color: looks.map((each) => each.fill),
          line: { color: looks.map((each) => each.edge), width: 2 },
          opacity: 1,
        },
      }),
    ];
  }

  /**
   * @param {HTMLElement} div
   * @param {Step} step
   */
  function drawGuesses(div, step) {
    const room = roomOf(div);
    if (!room) return;
    const { width, height, colours } = room;
    const nodes = [...step.parents.keys()].slice(1);
    nodes.sort((a, b) => step.score[b] - step.score[a] || a - b); // the drafter's favourite path first
    const size = Math.round(Math.max(12, Math.min(22, width / 34)));
    const foot = size + 14;
    const row = Math.min(LARGEST_ROW * (size / 14), (height - foot - 6) / Math.max(1, nodes.length));
    const named = row >= SMALLEST_ROW;
    const rowSize = Math.min(size, Math.floor(row - 1));
    const font = `400 ${rowSize}px ${colours.mono}`;
    const widest = Math.max(0, ...nodes.map((node) => textWidth(step.texts[node], font)));
    const left = named ? Math.ceil(Math.min(widest, width * 0.3)) + 22 : 14;
    const limit = Math.max(3, Math.floor((width * 0.3) / textWidth("m", font)));
    const margin = { l: left, r: size * 2, t: 6, b: Math.max(foot, height - 6 - row * nodes.length) };
    const axis = axisOf(colours, size);
    const axes = {
      bargap: 0,
      xaxis: {
        ...axis,
        visible: nodes.length > 0,
        range: [0, 1],
        gridcolor: colours.cell,
        tickvals: [0, 0.25, 0.5, 0.75, 1],
        ticktext: ["0", "", "50 %", "", "100 %"],
      },
      yaxis: {
        ...axis,
        range: [nodes.length - 0.5, -0.5],
        showgrid: false,
        showticklabels: named,
        ticklabelstandoff: 8,
        tickvals: nodes.map((_, index) => index),
        ticktext: nodes.map((node) => plotLabel(step.texts[node], colours.faint, limit) || "…"),
        tickfont: { family: colours.mono, size: rowSize, color: colours.ink },
      },
    };
    const scale = Math.max(0.4, Math.min(row / 22, size / 16));
    plot(div, room, traces(step, nodes, scale, colours), margin, axes);
  }

  return { drawGuesses };
})();
