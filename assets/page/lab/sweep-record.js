// What has arrived of one sweep, and what its charts say of it: a few words for a caption, sentences in a chart's place, the table behind
// it. Knows the messages of engine/measure/curves/sweep.py; draws nothing.

TreeRace.sweepRecord = (() => {
  const { asNumber, asPercent, escapeMarkup, isLevel } = TreeRace.numbers;

  const SWEPT = ["depth", "width", "nodes", "temperature"];
  const FIGURES = [
    "speedup",
    "tau",
    "mean_nodes",
    "draft_share",
    "verify_share",
    "ms_per_token",
    "plain_ms_per_token",
    "tokens",
    "forwards",
    "identical",
    "disturbed",
    "refused",
  ];

  class SweepRecord {
    /** @type {Cell[]} */
    cells = [];
    done = 0; // cells, with the share of the one that runs
    /** @type {number | null | undefined} seconds, once they can be told */
    left = null;
    /** @type {SweepSummary} of all cells so far */
    summary = { best: [], sentence: "", by_depth: [], by_rank: [], verify_ms: {} };

    /** @param {SweepStart} start what is swept */
    constructor(start) {
      this.start = start;
      this.x = start.x;
      this.y = start.y;
      this.total = start.cells;
    }

    /** @param {SweepNews} message */
    add({ cell, cells, summary, done, left }) {
      if (cell) this.cells.push(cell);
      if (cells) this.cells = cells;
      if (summary) this.summary = summary;
      this.done = done;
      this.left = left;
    }

    /**
     * @param {number} x
     * @param {number} y
     */
    cell(x, y) {
      return this.cells.find((each) => each.x === x && each.y === y);
    }

    /** @param {Cell} cell */
    isBest(cell) {
      return this.summary.best.some(({ x, y }) => x === cell.x && y === cell.y);
    }

    /** @param {Cell} cell that is told in words, as Plotly reads them */
    cellWords(cell) {
      const where = `${this.x.name} ${cell.x}, ${this.y.name} ${cell.y}`;
      if (cell.refused) return `${where}<br>${escapeMarkup(cell.refused)}`;
      const words = [
        where,
        `${asNumber(cell.speedup, 2)}× plain decoding’s speed, ${asNumber(cell.tau, 2)} tokens a pass`,
        `${asNumber(cell.mean_nodes, 1)} nodes a tree, ${asNumber(cell.ms_per_token, 2)} ms a token`,
        `${asPercent(cell.draft_share)} of the time drafts, ${asPercent(cell.verify_share)} verifies`,
        escapeMarkup(cell.disturbed),
      ];
      return words.filter(Boolean).join("<br>");
    }

    // The cells that were raced.
    get raced() {
      return this.cells.filter((cell) => !cell.refused);
    }
  }

  /**
   * @param {Cell[]} cells
   * @param {string} what
   * @param {string} unit
   */
  function range(cells, what, unit) {
    const values = cells.map((cell) => cell[what]);
    if (!values.length) return "nothing yet";
    return `${asNumber(Math.min(...values), 2)}${unit} to ${asNumber(Math.max(...values), 2)}${unit}`;
  }

  /**
   * @param {Accepted[]} rows
   * @param {string} kind
   */
  function shares(rows, kind) {
    const share = (/** @type {Accepted} */ row) => Math.round((100 * row.accepted) / row.reached);
    return rows.map((row) => `${kind} ${row[kind]} ${share(row)} %`).join(", ") || "nothing yet";
  }

  /** @param {SweepRecord} record of which the setting is told that all cells share, in a few words */
  function setting({ start: { fixed, grid, max_new_tokens: tokens, prompts } }) {
    const held =
      grid === "shape"
        ? [`≤ ${fixed.nodes} nodes`, `T = ${fixed.temperature}`]
        : [`depth ${fixed.depth}`, `width ${fixed.width}`];
    const several = prompts.length > 1 ? [`${prompts.length} prompts`] : [];
    return [...held, `${tokens} tokens`, ...several].join(" · ");
  }

  /** @param {SweepRecord} record */
  function cellRows({ cells, start }) {
    const keys = [...SWEPT, ...FIGURES];
    return [["system", ...keys], ...cells.map((cell) => [start.system.name, ...keys.map((key) => cell[key])])];
  }

  // What a chart says: a note for its caption, a label in its place, and the table behind it, the head first.
  /** @type {Record<string, (record: SweepRecord) => { note: string, label: string, rows: unknown[][] }>} */
  const CHARTS = {
    speedup: (record) => {
      const { raced, x, y, summary } = record;
      const finding = `by ${x.name} and ${y.name}: ${range(raced, "speedup", "×")}. ${summary.sentence}`;
      return {
        note: setting(record),
        label: `Measured speed over plain decoding ${finding} Arrows choose a cell, Enter races it.`,
        rows: cellRows(record),
      };
    },
    tau: (record) => ({
      note: "papers call it tau",
      label: `Tokens a pass by ${record.x.name} and ${record.y.name}: ${range(record.raced, "tau", "")}.`,
      rows: cellRows(record),
    }),
    cost: ({ raced, start, summary }) => {
      const won = raced.filter((cell) => cell.speedup > 1 && !isLevel(cell.speedup)).length;
      const finding = `${won} of ${raced.length} cells were faster than plain decoding.`;
      const alone = Object.entries(start.costs.verify_ms).map(([nodes, ms]) => [nodes, ms, "timed alone"]);
      const raceMs = Object.entries(summary.verify_ms).map(([nodes, ms]) => [nodes, ms, "median in the races"]);
      return {
        note: "in tokens’ time · ■ a cell",
        label: `Verification time and break-even by nodes: ${finding}`,
        rows: [["nodes", "verify_ms", "source"], ...alone, ...raceMs],
      };
    },
    depth: ({ summary: { by_depth: found } }) => ({
      note: "◆ of rounds",
      label: `Reached guesses that were accepted, by depth: ${shares(found, "depth")}.`,
      rows: [
        ["depth", "reached", "accepted", "rounds"],
        ...found.map((row) => [row.depth, row.reached, row.accepted, row.levels]),
      ],
    }),
    rank: ({ summary: { by_rank: found } }) => ({
      note: "",
      label: `Reached guesses that were accepted, by rank among siblings: ${shares(found, "rank")}.`,
      rows: [["rank", "reached", "accepted"], ...found.map((row) => [row.rank, row.reached, row.accepted])],
    }),
  };

  return { CHARTS, SWEPT, SweepRecord };
})();
