// What a serving engine told of one request, step by step, in a window over the page. Knows counts and their order; there is no clock, no
// tree and no race in it.

TreeRace.servedTrace = (() => {
  const { drawShares } = TreeRace.barPlots;
  const { copyOf, finder, make } = TreeRace.elements;
  const { asNumber, asPercent, counted } = TreeRace.numbers;
  const { axisOf, keepDrawn, lettering, plot, roomOf } = TreeRace.plotBase;
  const { screenRoot } = TreeRace.screens;

  const MOST_BARS = 200; // steps that are drawn at once
  /** @param {number[]} counts */
  const sum = (counts) => counts.reduce((all, each) => all + each, 0);

  /**
   * @param {ServedTrace} trace
   * @param {number} index
   */
  function stepWords({ drafted, accepted }, index) {
    const [many, kept] = [drafted[index], accepted[index]];
    return `Step ${index + 1} of ${drafted.length}: ${counted(many, "token")} drafted, ${kept} accepted, then the target’s own token.`;
  }

  /** @param {ServedTrace} trace of a whole request */
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
    /**
     * @param {HTMLTemplateElement} template of the window
     * @param {ServedTrace} trace
     */
    constructor(template, trace) {
      const { drafted, model, text } = trace;
      this.trace = trace;
      this.step = 0;
      /** @type {HTMLDialogElement} */
      this.root = copyOf(template);
      this.at = finder(this.root);
      this.at("model").textContent = model ? `Model: ${model}` : "";
      const figures = figuresOf(trace).map(([name, value]) =>
        make("div", "", make("dt", "", name), make("dd", "", value)),
      );
      this.at("figures").append(...figures);
      this.at("answer").textContent = text;
      this.at("answer").hidden = !text;
      this.at("range").max = drafted.length - 1;
      this.at("range").addEventListener("input", () => this.go(Number(this.at("range").value)));
      this.at("close").addEventListener("click", () => this.root.close());
      this.root.addEventListener("close", () => this.root.remove());
      this.root.addEventListener("keydown", (event) => event.stopPropagation()); // the race behind it has keys too
      screenRoot().append(this.root);
      this.root.showModal();
      keepDrawn(this.root, () => this.draw());
      this.go(0);
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
