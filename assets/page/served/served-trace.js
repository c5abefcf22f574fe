// What a serving engine told of one request, step by step, in a window over the page. Knows counts and their order; there is no clock, no
// tree and no race in it.

TreeRace.servedTrace = (() => {
  const { drawShares } = TreeRace.barPlots;
  const { button, finder, make } = TreeRace.elements;
  const { asNumber, asPercent, counted } = TreeRace.numbers;
  const { axisOf, keepDrawn, lettering, plot, roomOf } = TreeRace.plotBase;

  const MARK = "From vLLM: no clock of TreeRace, order only";
  const MOST_BARS = 200; // steps that are drawn at once
  /** @param {number[]} counts */
  const sum = (counts) => counts.reduce((all, each) => all + each, 0);

  /**
   * What happened in a step.
   * @param {ServedTrace} trace
   * @param {number} index
   */
  function stepWords({ drafted, accepted }, index) {
    const [many, kept] = [drafted[index], accepted[index]];
    return `Step ${index + 1} of ${drafted.length}: ${counted(many, "token")} drafted, ${kept} accepted, then the target’s own token.`;
  }

  /**
   * The figures of the whole request, as a list of name and value.
   * @param {ServedTrace} trace
   */
  function figuresOf({ drafted, accepted, passes, tau }) {
    const [many, kept] = [sum(drafted), sum(accepted)];
    return [
      [passes ? "tokens a pass (tau)" : "tokens a verification with a draft", asNumber(tau, 2)],
      ...(passes ? [["passes", String(passes)]] : []),
      ["verifications with a draft", String(drafted.length)],
      ["drafted", String(many)],
      ["accepted", `${kept} (${asPercent(kept / many)})`],
    ];
  }

  /**
   * Bars of the steps around the shown one: what was drafted, and in it what was accepted.
   * @param {HTMLElement} div
   * @param {ServedTrace} trace
   * @param {number} index
   */
  function drawSteps(div, { drafted, accepted }, index) {
    const room = roomOf(div);
    if (!room) return;
    const { colours } = room;
    const letters = lettering();
    const first = Math.max(0, Math.min(index - MOST_BARS / 2, drafted.length - MOST_BARS));
    const last = Math.min(drafted.length, first + MOST_BARS);
    const places = Array.from({ length: last - first }, (_, at) => first + at + 1);
    const edge = places.map((place) => (place === index + 1 ? colours.ink : colours.faint));
    const width = places.map((place) => (place === index + 1 ? 3 : 1));
    const bar = { type: "bar", x: places, hoverinfo: "skip" };
    const traces = [
      { ...bar, y: drafted.slice(first, last), marker: { color: colours.cell, line: { color: edge, width } } },
      { ...bar, y: accepted.slice(first, last), marker: { color: colours.tree }, width: 0.5 },
    ];
    const [across, up] = ["step", ""].map((title) => ({ ...axisOf(colours, letters, title), nticks: 6 }));
    const axes = {
      barmode: "overlay",
      xaxis: { ...across, showgrid: false, range: [first + 0.4, Math.max(last, first + 4) + 0.6] },
      yaxis: { ...up, gridcolor: colours.cell, range: [0, Math.max(...drafted) + 0.3], tickformat: "d" },
    };
    const margin = { l: letters * 2.6, r: 10, t: 6, b: letters * 2.9 };
    plot(div, room, traces, margin, axes);
  }

  class ServedTraceView {
    /** @param {ServedTrace} trace */
    constructor(trace) {
      this.trace = trace;
      this.step = 0;
      this.root = make("dialog", "served");
      this.at = finder(this.root);
      this.root.setAttribute("aria-label", MARK);
      this.fill();
      this.root.addEventListener("close", () => this.root.remove());
      this.root.addEventListener("keydown", (event) => event.stopPropagation()); // the race behind it has keys too
      /** @type {HTMLElement} */ (document.querySelector("#screen")).append(this.root);
      this.root.showModal();
      keepDrawn(this.root, () => this.draw());
      this.go(0);
    }

    fill() {
      const { model, text } = this.trace;
      const close = button("tool", () => this.root.close(), "✕");
      close.setAttribute("aria-label", "Close");
      const figures = make("dl", "");
      for (const [name, value] of figuresOf(this.trace))
        figures.append(make("div", "", make("dt", "", name), make("dd", "", value)));
      const head = make("header", "", make("h2", "", MARK), close);
      this.root.append(head, make("p", "model", model ? `Model: ${model}` : ""), figures);
      this.root.append(this.figure("steps", "Every step: drafted, and in it accepted"), this.scrubber());
      this.root.append(this.figure("positions", "Accepted, by position in the draft"));
      if (text) this.root.append(make("p", "answer", text));
    }

    /**
     * @param {string} name
     * @param {string} title
     */
    figure(name, title) {
      const canvas = make("div", "canvas");
      canvas.dataset[name] = "";
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", title);
      return make("figure", name, make("figcaption", "", title), canvas);
    }

    scrubber() {
      const range = make("input");
      Object.assign(range, { type: "range", min: 0, max: this.trace.drafted.length - 1, value: 0, step: 1 });
      range.setAttribute("aria-label", "Step of the request");
      range.dataset.range = "";
      range.addEventListener("input", () => this.go(Number(range.value)));
      const words = make("p", "words");
      words.dataset.words = "";
      words.setAttribute("aria-live", "polite");
      return make("div", "steps-of", range, words);
    }

    /** @param {number} step */
    go(step) {
      this.step = step;
      this.at("words").textContent = stepWords(this.trace, step);
      this.at("range").setAttribute("aria-valuetext", stepWords(this.trace, step));
      this.draw();
    }

    draw() {
      drawSteps(this.at("steps"), this.trace, this.step);
      const rows = this.trace.by_position.map(({ depth, ...counts }) => ({ rank: depth, ...counts }));
      drawShares(this.at("positions"), rows, "rank", "position");
    }
  }

  return { ServedTraceView, stepWords };
})();
