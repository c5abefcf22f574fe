// What the charts of a sweep say: a few words for a caption, sentences in a chart's place, the table behind it. Knows a sweep's record;
// draws nothing.

TreeRace.sweepWords = (() => {
  const { asNumber, isLevel } = TreeRace.numbers;

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

  return { SWEPT, chartRows, chartWords };
})();
