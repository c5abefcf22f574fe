// What has arrived of one sweep. Knows the messages of engine/measure/curves/sweep.py; nothing of the page.

TreeRace.sweepRecord = (() => {
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

    // The cells that were raced.
    get raced() {
      return this.cells.filter((cell) => !cell.refused);
    }
  }

  return { SweepRecord };
})();
