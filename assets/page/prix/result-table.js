// The result of a grand prix: a table by places, the same as text and as a file, and the chart. Knows the figures of the
// last event.

TreeRace.resultTable = (() => {
  const { copyButton, saveCsv } = TreeRace.downloads;
  const { button, finder, make } = TreeRace.elements;
  const { asNumber, asPercent } = TreeRace.numbers;
  const { placesOf } = TreeRace.track;
  const { keepDrawn } = TreeRace.plotBase;
  const { drawSplit, splitLegend } = TreeRace.barPlots;

  /** @type {Record<string, string>} */
  const TEXTS = { true: "identical", law: "same distribution", lossy: "lossy", false: "DIFFERENT" };
  /** @typedef {{ name: string, figure: (lane: RankedLane) => any, write: (value: any) => string, meaning: string }} Column */

  /** @param {unknown} value */
  const whole = (value) => String(value);

  /**
   * @param {string} name the head of the column
   * @param {(lane: RankedLane) => any} figure of a lane
   * @param {(value: any) => string} write the figure as the page has it
   * @param {string} meaning of the head
   * @returns {Column}
   */
  const column = (name, figure, write = whole, meaning = "") => ({ name, figure, write, meaning });
  const times = (/** @type {number} */ ratio) => `${asNumber(ratio, 2)}×`;
  const hundredths = (/** @type {number} */ tau) => asNumber(tau, 2);

  const COLUMNS = [
    column("place", (lane) => lane.place, whole, "By tokens a second; whoever is less than 5 % apart is level"),
    column("system", (lane) => lane.title),
    column("ratio", (lane) => lane.speedup, times, "Tokens a second by those of token by token"),
    column("tokens a pass", (lane) => lane.tau, hundredths, "Tokens for each target forward; papers call it tau"),
    column(
      "by branches",
      (lane) => lane.branch_tokens ?? 0,
      whole,
      "Tokens that came of branches: the drafter’s favourites alone would have missed them",
    ),
    column("forwards", (lane) => lane.forwards, whole, "Target forwards after the prompt"),
    column("drafts", (lane) => lane.draft_forwards, whole, "Forwards of a draft network"),
    column("draft", (lane) => lane.draft_share, asPercent, "Share of its clock spent on drafting"),
    column(
      "verify",
      (lane) => lane.verify_share,
      asPercent,
      "Share of its clock spent on target forwards after the prompt",
    ),
    column("prefill", (lane) => lane.prefill_share, asPercent, "Share of its clock spent on reading the prompt"),
    column("other", (lane) => lane.other_share, asPercent, "Share of its clock spent on accepting and committing"),
    column("text", (lane) => TEXTS[String(lane.identical)], whole, "Against the text of token by token"),
  ];
  // Of the file alone: what the page has no room for.
  const MORE = [
    column("name", (lane) => lane.name),
    column("favourites_tau", (lane) => lane.favourites_tau ?? ""),
    column("deeper_steps", (lane) => lane.deeper_steps ?? ""),
    column("least", (lane) => lane.least),
    column("most", (lane) => lane.most),
    column("tokens", (lane) => lane.tokens),
    column("seconds", (lane) => lane.seconds),
    column("tokens_per_s", (lane) => lane.tokens_per_s),
  ];

  class ResultTable {
    /**
     * @param {HTMLElement} root
     * @param {(lane: number) => void} open a lane of the race beside the baseline
     */
    constructor(root, open) {
      this.open = open;
      this.at = finder(root, "prix-");
      /** @type {RankedLane[]} by place */
      this.lanes = [];
      /** @type {LaneFigures | null} */
      this.baseline = null;
      this.caption = "";
      const heads = COLUMNS.map(({ name, meaning: title }) =>
        Object.assign(make("th", "", name), { scope: "col", title }),
      );
      this.at("table").tHead.append(make("tr", "", ...heads));
      splitLegend(this.at("legend"));
      copyButton(this.at("copy"), () => this.text());
      const columns = [...COLUMNS, ...MORE];
      this.at("csv").addEventListener("click", () => saveCsv("treerace-grand-prix.csv", this.rows(columns)));
      this.clear();
      keepDrawn(this.at("split"), () => this.draw());
    }

    clear() {
      this.lanes = [];
      this.baseline = null;
      this.at("table").tBodies[0].replaceChildren();
      this.at("result").dataset.state = "open";
    }

    /**
     * `systems` as the first event has them, and the last event with their figures.
     * @param {RacedSystem[]} systems
     * @param {RaceMessage} end
     */
    show(systems, { lanes, runs, disturbed }) {
      const ranks = placesOf(lanes.map((lane) => lane.speedup));
      this.lanes = lanes
        .map((lane, index) => ({ ...lane, ...systems[index], place: ranks[index], lane: index }))
        .sort((one, other) => other.speedup - one.speedup);
      this.baseline = lanes[0];
      this.caption = captionOf(systems[0].trace, runs.length, disturbed);
      this.at("result").dataset.state = "known";
      this.at("caption").textContent = this.at("caption").title = this.caption;
      this.at("table").tBodies[0].replaceChildren(...this.lanes.map((lane) => this.row(lane)));
      this.draw();
    }

    /** @param {RankedLane} lane */
    row(lane) {
      const cells = COLUMNS.map(({ name, figure, write }) => {
        const text = write(figure(lane));
        if (name !== "system") return make("td", "", text);
        const head = lane.lane ? button("open-lane", () => this.open(lane.lane), text) : text;
        const title = lane.lane ? `Open ${text} beside token by token, step by step` : text;
        return Object.assign(make("th", "", head), { scope: "row", title });
      });
      const made = make("tr", "", ...cells);
      made.dataset.text = String(lane.identical);
      return made;
    }

    draw() {
      if (this.baseline) drawSplit(this.at("split"), this.lanes, this.baseline);
    }

    /** @param {Column[]} columns */
    rows(columns) {
      return [columns.map(({ name }) => name), ...this.lanes.map((lane) => columns.map(({ figure }) => figure(lane)))];
    }

    // As the page writes it, cells between tabs.
    text() {
      const written = this.lanes.map((lane) => COLUMNS.map(({ figure, write }) => write(figure(lane))));
      const lines = [COLUMNS.map(({ name }) => name), ...written].map((cells) => cells.join("\t"));
      return `${lines.join("\n")}\n${this.caption}\n`;
    }
  }

  /**
   * @param {Trace} trace
   * @param {number} runs
   * @param {string} disturbed
   */
  function captionOf({ pair, hardware, dtype, temperature, seed, max_new_tokens: most }, runs, disturbed) {
    const medians = runs > 1 ? ` Ratios are medians of ${runs} runs, all else is of the run nearest to them.` : "";
    return (
      `${pair}, ${hardware}, ${dtype}; temperature ${temperature}, seed ${seed}, up to ${most} new tokens. ` +
      "Every system has a clock of its own that counts its own work alone, prefill included; ratios are to token by token." +
      `${medians}${disturbed && ` ${disturbed}`}`
    );
  }

  return { ResultTable };
})();
