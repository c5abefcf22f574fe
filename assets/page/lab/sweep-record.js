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
    sentence = "";
    /** @type {Cell[]} */
    best = [];
    /** @type {Accepted[]} */
    byDepth = [];
    /** @type {Accepted[]} */
    byRank = [];
    /** @type {Record<number, number>} milliseconds by nodes, the median in the races */
    verify = {};

    /** @param {SweepStart} start */
    constructor(start) {
      this.system = start.system;
      this.grid = start.grid;
      this.x = start.x;
      this.y = start.y;
      this.fixed = start.fixed;
      this.costs = start.costs;
      this.prompts = start.prompts;
      this.tokens = start.max_new_tokens;
      this.seed = start.seed;
      this.total = start.cells;
    }

    /** @param {SweepSummary} summary */
    summarise({ best, sentence, by_depth: byDepth, by_rank: byRank, verify_ms: verify }) {
      this.best = best;
      this.sentence = sentence;
      this.byDepth = byDepth;
      this.byRank = byRank;
      this.verify = verify;
    }

    /** @param {{ cell?: Cell, cells?: Cell[], summary?: SweepSummary, done: number, left?: number }} message */
    add({ cell, cells, summary, done, left }) {
      if (cell) this.cells.push(cell);
      if (cells) this.cells = cells;
      if (summary) this.summarise(summary);
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
      return this.best.some(({ x, y }) => x === cell.x && y === cell.y);
    }

    /**
     * A cell in words, as Plotly reads them.
     * @param {Cell} cell
     */
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
   * From the least to the most of a figure.
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

  /**
   * The setting that all cells share, in a few words.
   * @param {SweepRecord} record
   */
  function setting({ fixed, grid, tokens, prompts }) {
    const held =
      grid === "shape"
        ? [`≤ ${fixed.nodes} nodes`, `T = ${fixed.temperature}`]
        : [`depth ${fixed.depth}`, `width ${fixed.width}`];
    if (prompts.length > 1) return [...held, `${tokens} tokens`, `${prompts.length} prompts`].join(" · ");
    return [...held, `${tokens} tokens`].join(" · ");
  }

  /**
   * The finding of a chart: a note for its caption, and a label in its place.
   * @param {SweepRecord} record
   * @param {string} chart
   */
  function chartWords(record, chart) {
    const { raced, x, y, byDepth, byRank, sentence } = record;
    const grid = `by ${x.name} and ${y.name}`;
    switch (chart) {
      case "speedup": {
        const finding = `Measured speed over plain decoding ${grid}: ${range(raced, "speedup", "×")}. ${sentence}`;
        return { note: setting(record), label: `${finding} Arrows choose a cell, Enter races it.` };
      }
      case "tau":
        return { note: "papers call it tau", label: `Tokens a pass ${grid}: ${range(raced, "tau", "")}.` };
      case "cost": {
        const won = raced.filter((cell) => cell.speedup > 1 && !isLevel(cell.speedup)).length;
        const finding = `${won} of ${raced.length} cells were faster than plain decoding.`;
        return {
          note: "in tokens’ time · ■ a cell",
          label: `Verification time and break-even by nodes: ${finding}`,
        };
      }
      case "depth":
        return {
          note: "◆ of rounds",
          label: `Reached guesses that were accepted, by depth: ${shares(byDepth, "depth")}.`,
        };
      default:
        return {
          note: "",
          label: `Reached guesses that were accepted, by rank among siblings: ${shares(byRank, "rank")}.`,
        };
    }
  }

  /**
   * The table behind a chart, the head first.
   * @param {SweepRecord} record
   * @param {string} chart
   * @returns {unknown[][]}
   */
  function chartRows({ byDepth, byRank, costs, verify, cells, system }, chart) {
    /** @type {(times: Record<number, number>, source: string) => unknown[][]} */
    const timed = (times, source) => Object.entries(times).map(([nodes, ms]) => [nodes, ms, source]);
    const keys = [...SWEPT, ...FIGURES];
    switch (chart) {
      case "depth":
        return [
          ["depth", "reached", "accepted", "rounds"],
          ...byDepth.map((row) => [row.depth, row.reached, row.accepted, row.levels]),
        ];
      case "rank":
        return [["rank", "reached", "accepted"], ...byRank.map((row) => [row.rank, row.reached, row.accepted])];
      case "cost":
        return [
          ["nodes", "verify_ms", "source"],
          ...timed(costs.verify_ms, "timed alone"),
          ...timed(verify, "median in the races"),
        ];
      default:
        return [["system", ...keys], ...cells.map((cell) => [system.name, ...keys.map((key) => cell[key])])];
    }
  }

  return { SWEPT, SweepRecord, chartRows, chartWords };
})();
