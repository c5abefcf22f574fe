// The result of a grand prix: a table by places, the same as text and as a file, and the chart. Knows the figures of the
// last event.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const TEXTS = { true: "identical", law: "same distribution", lossy: "lossy", false: "DIFFERENT" };
  const percent = (share) => `${T.number(100 * share, 0)} %`;
  const whole = (value) => String(value);

  // Head of the column, the figure of a lane, how the page writes it, and what the head means.
  const COLUMNS = [
    ["place", (lane) => lane.place, whole, "By tokens a second"],
    ["system", (lane) => lane.title, whole, ""],
    ["ratio", (lane) => lane.speedup, (ratio) => `${T.number(ratio, 2)}×`, "Tokens a second by those of token by token"],
    ["tau", (lane) => lane.tau, (tau) => T.number(tau, 2), "Tokens per target forward"],
    ["forwards", (lane) => lane.forwards, whole, "Target forwards after the prompt"],
    ["drafts", (lane) => lane.draft_forwards, whole, "Forwards of a draft network"],
    ["draft", (lane) => lane.draft_share, percent, "Share of its clock spent on drafting"],
    ["verify", (lane) => lane.verify_share, percent, "Share of its clock spent on target forwards after the prompt"],
    ["prefill", (lane) => lane.prefill_share, percent, "Share of its clock spent on reading the prompt"],
    ["other", (lane) => lane.other_share, percent, "Share of its clock spent on accepting and committing"],
    ["text", (lane) => TEXTS[lane.identical], whole, "Against the text of token by token"],
  ];
  // Of the file alone: what the page has no room for.
  const MORE = [
    ["name", (lane) => lane.name],
    ["tokens", (lane) => lane.tokens],
    ["seconds", (lane) => lane.seconds],
    ["tokens_per_s", (lane) => lane.tokens_per_s],
  ];

  T.PrixResult = class {
    constructor(root) {
      this.at = (name) => root.querySelector(`[data-prix-${name}]`);
      const head = this.at("table").tHead.insertRow();
      for (const [name, , , meaning] of COLUMNS) head.append(cell("th", name, { scope: "col", title: meaning }));
      T.splitLegend(this.at("legend"));
      T.copyButton(this.at("copy"), () => this.text());
      const columns = [...COLUMNS, ...MORE];
      this.at("csv").addEventListener("click", () => T.saveCsv("treerace-grand-prix.csv", this.rows(columns)));
      this.clear();
      T.keepDrawn(this.at("split"), () => this.lanes.length && this.draw());
    }

    clear() {
      this.lanes = [];
      this.at("result").dataset.state = "open";
    }

    // `systems` as the first event has them, `lanes` their figures.
    show(systems, lanes) {
      const places = T.places(lanes.map((lane) => lane.speedup));
      this.lanes = lanes
        .map((lane, index) => ({ ...lane, ...systems[index], place: places[index] }))
        .sort((one, other) => one.place - other.place);
      this.baseline = lanes[0];
      this.caption = captionOf(systems[0].trace);
      this.at("result").dataset.state = "known";
      this.at("caption").textContent = this.caption;
      this.at("table").tBodies[0].replaceChildren(...this.lanes.map(row));
      this.draw();
    }

    draw() {
      T.drawSplit(this.at("split"), this.lanes, this.baseline);
    }

    rows(columns) {
      return [columns.map(([name]) => name), ...this.lanes.map((lane) => columns.map(([, figure]) => figure(lane)))];
    }

    // As the page writes it, cells between tabs.
    text() {
      const written = this.lanes.map((lane) => COLUMNS.map(([, figure, write]) => write(figure(lane))));
      const lines = [COLUMNS.map(([name]) => name), ...written].map((cells) => cells.join("\t"));
      return `${lines.join("\n")}\n${this.caption}\n`;
    }
  };

  function cell(tag, text, more = {}) {
    return Object.assign(document.createElement(tag), { textContent: text, ...more });
  }

  function row(lane) {
    const made = document.createElement("tr");
    made.dataset.text = lane.identical;
    for (const [name, figure, write] of COLUMNS) {
      const text = write(figure(lane));
      made.append(name === "system" ? cell("th", text, { scope: "row", title: text }) : cell("td", text));
    }
    return made;
  }

  function captionOf({ pair, hardware, dtype, temperature, seed, max_new_tokens: most }) {
    return (
      `${pair}, ${hardware}, ${dtype}; temperature ${temperature}, seed ${seed}, up to ${most} new tokens. ` +
      "Every system has a clock of its own that counts its own work alone, prefill included; ratios are to token by token."
    );
  }
})(window.TreeRace);
