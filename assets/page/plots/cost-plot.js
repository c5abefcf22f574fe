// What trees cost on this machine and what they win, drawn with Plotly: time and tokens over the nodes of one forward, both in
// tokens of plain decoding. A sweep's plot draws the same curves. Knows a lane's steps and costs; nothing of clocks or playback.

TreeRace.costPlot = (() => {
  const { asNumber, counted } = TreeRace.numbers;
  const { axisOf, plot, roomOf, scatter, word } = TreeRace.plotBase;

  const LEAST_TOP = 5; // tokens that the axis shows at least
  const SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];
  const LARGEST = 64; // nodes on the curves, unless a tree has more
  const LEFTWARD = 10; // from so many nodes on the point's label stands left of it

  /** @param {number} value */
  const ms = (value) => `${asNumber(value, 2)} ms`;

  /**
   * Two lines over every number of nodes up to the largest: that of a round with its draft, below which all is slower than plain decoding,
   * and t(N), with marks where it was measured.
   * @param {Costs} costs
   * @param {number} levels
   * @param {number} largest
   * @param {Palette} colours
   */
  function costLines(costs, levels, largest, colours) {
    const known = new Set(costs.sizes);
    const sizes = Array.from({ length: largest }, (_, index) => index + 1);
    const plain = costs.verifyAt(1);
    const draft = ms(costs.roundMs(1, levels) - plain);
    /** @type {(price: (nodes: number) => number, why: (nodes: number, verify: string) => string) => any[]} */
    const places = (price, why) =>
      sizes.map((nodes) => {
        const y = price(nodes) / plain;
        const words = why(nodes, `${ms(costs.verifyAt(nodes))} to verify`);
        return { x: nodes, y, said: `${counted(nodes, "node")}: ${asNumber(y, 2)} tokens’ time<br>${words}` };
      });
    const round = places(
      (nodes) => costs.roundMs(nodes, levels),
      (_, verify) => `${verify} + ${draft} to draft ${counted(levels, "level")}`,
    );
    const alone = places(
      (nodes) => costs.verifyAt(nodes),
      (nodes, verify) => `${known.has(nodes) ? "measured" : "between measured"}: ${verify}`,
    );
    return [
      scatter("lines", round, {
        line: { color: colours.ink, width: 2, dash: "5px,4px" },
        fill: "tozeroy",
        fillcolor: colours.cell,
      }),
      scatter("lines+markers", alone, {
        line: { color: colours.base, width: 3 },
        marker: {
          color: colours.base,
          opacity: 1,
          size: sizes.map((nodes) => (known.has(nodes) ? 7 : 0)),
          line: { width: 0 },
        },
      }),
    ];
  }

  /**
   * One faint mark for all steps so far that had so many nodes and won so many tokens, larger for more of them.
   * @param {Step[]} steps
   * @param {Palette} colours
   */
  function won(steps, colours) {
    /** @type {Record<string, number>} */
    const counts = {};
    for (const { parents, burst } of steps) {
      const key = `${parents.length} ${burst.length}`;
      counts[key] = (counts[key] ?? 0) + 1;
    }
    const places = Object.entries(counts).map(([key, count]) => {
      const [x, y] = key.split(" ").map(Number);
      return { x, y, said: `${counted(x, "node")} won ${counted(y, "token")}<br>in ${counted(count, "step")} so far` };
    });
    return scatter("markers", places, {
      cliponaxis: false,
      marker: {
        color: colours.tree,
        opacity: 0.4,
        size: Object.values(counts).map((count) => Math.min(20, 5 + 2 * Math.sqrt(count))),
        line: { width: 0 },
      },
    });
  }

  /**
   * The shown step, from its price up to tau.
   * @param {Round} round
   * @param {Step} step
   * @param {Costs} costs
   * @param {Palette} colours
   */
  function chosen({ index, nodes, levels, price, tau }, step, costs, colours) {
    const took = Object.values(step.seconds).reduce((sum, each) => sum + each, 0);
    const said = [
      `step ${index + 1}: ${counted(nodes, "node")} in ${counted(levels, "level")}`,
      `costs ${ms(costs.roundMs(nodes, levels))}, took ${ms(1000 * took)}`,
      `needs ${asNumber(price, 2)} tokens a pass, has ${asNumber(tau, 2)} so far`,
    ].join("<br>");
    const places = [price, tau].map((y) => ({ x: nodes, y, said }));
    return scatter("lines+markers", places, {
      cliponaxis: false,
      line: { color: colours.tree, width: 3 },
      marker: {
        symbol: ["line-ew", "diamond"],
        size: [16, 17],
        color: colours.tree,
        opacity: 1,
        line: { color: colours.tree, width: [3, 0] },
      },
    });
  }

  /**
   * Nodes on a logarithmic axis, and tokens, with a mark at `every` number of them.
   * @param {Palette} colours
   * @param {number} size
   * @param {number} largest
   * @param {number} top
   * @param {number} every
   */
  function costAxes(colours, size, largest, top, every) {
    const axis = { ...axisOf(colours, size), gridcolor: colours.cell };
    return {
      xaxis: {
        ...axis,
        type: "log",
        range: [Math.log10(0.92), Math.log10(largest * 1.05)],
        tickvals: SIZES,
        ticktext: SIZES.map((each) => (each === LARGEST ? `${each} nodes` : `${each}`)),
      },
      yaxis: {
        ...axis,
        range: [0, top],
        tickvals: Array.from({ length: Math.floor(top / every) + 1 }, (_, index) => index * every),
      },
    };
  }

  /**
   * @param {HTMLElement} div
   * @param {Step[]} steps
   * @param {Round} round
   * @param {Costs} costs
   */
  function drawCost(div, steps, round, costs) {
    const room = roomOf(div);
    if (!room) return;
    const { width, height, colours } = room;
    const size = Math.round(Math.max(12, Math.min(22, width / 36)));
    const top = Math.max(LEAST_TOP, ...steps.map((step) => step.burst.length)) + 0.6;
    const traces = [
      ...costLines(costs, round.levels, LARGEST, colours),
      won(steps.slice(0, round.index + 1), colours),
      chosen(round, steps[round.index], costs, colours),
    ];
    const margin = { l: size * 2.4, r: size * 2.4, t: 6, b: size + 14 };
    const every = (height - margin.t - margin.b) / top < 1.4 * size ? 2 : 1;
    const { xaxis, yaxis } = costAxes(colours, size, LARGEST, top, every);
    const { nodes, levels, tau } = round;
    const isLeft = nodes >= LEFTWARD;
    const end = Math.log10(LARGEST);
    const even = Math.min(top - 1, costs.breakEven(LARGEST, levels));
    const here = `<b>${asNumber(tau, 1)} at ${counted(nodes, "node")}</b>`;
    const font = { color: colours.treeInk, size: size * 1.1 };
    const more = { xshift: isLeft ? -12 : 12, bgcolor: colours.surface, borderpad: 1 };
    const annotations = [
      word("verifying alone", [0, 0.5], "left", { color: colours.baseInk, size }),
      word("slower than plain", [end, 0.5], "right", { color: colours.faint, size }),
      word("break-even", [end, even], "right", { color: colours.ink, size }, { yshift: size }),
      word(here, [Math.log10(nodes), tau], isLeft ? "right" : "left", font, more),
    ];
    const axes = { xaxis, yaxis: { ...yaxis, ticklabelstandoff: 6 }, annotations };
    plot(div, room, traces, margin, axes);
  }

  return { LARGEST, costAxes, costLines, drawCost };
})();
