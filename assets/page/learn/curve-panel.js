// A curve of the walk, beside its card: the recorded one at once, and this machine's over it when it was measured here. Knows the messages
// of engine/measure/curves/curves.py; leaves the drawing to the plots.

TreeRace.curvePanel = (() => {
  const { drawCurve } = TreeRace.curvePlot;
  const { fillBar, finder, make } = TreeRace.elements;
  const { counted } = TreeRace.numbers;
  const { keepDrawn } = TreeRace.plotBase;
  const { Tip, TreePointing } = TreeRace.pointing;
  const { recordedWords } = TreeRace.recordedRace;
  const { drawTree } = TreeRace.treePlot;
  const { ENDED, Run, onRun } = TreeRace.runs;
  const { answered } = TreeRace.presence;

  /** @typedef {{ title: string, key: string, unit: string, floor: number | null, text?: string }} Picture */
  const TAU = { title: "Tokens a pass", key: "tau", unit: "", floor: null };
  const SPEED = { title: "Speed, plain decoding is 1×", key: "speedup", unit: "×", floor: 1 };
  /** @type {Record<string, Picture[]>} the two pictures of each curve */
  const PICTURES = {
    nodes: [TAU, SPEED],
    temperature: [TAU, SPEED],
    chain: [
      { ...TAU, title: "Tokens a pass, easy text", text: "easy" },
      { ...TAU, title: "Tokens a pass, hard text", text: "hard" },
    ],
    batch: [SPEED, { title: "Tokens a second, all sequences", key: "tokens_per_s", unit: "", floor: null }],
  };
  const DOUBLING = ["nodes", "batch"]; // curves over powers of two
  const HUES = ["tree", "base", "ink"]; // of a curve's lines, in their order
  const CHAINS = ["base", "tree", "ink"]; // where a chain comes first

  class CurvePanel {
    /** @type {Curve | null} the recorded one */
    recorded = null;
    /** @type {Curve | null} this machine's, as far as it was measured */
    measured = null;
    name = ""; // of the curve that is shown, "" for none

    /**
     * @param {HTMLElement} root
     * @param {(name: string) => Answer<{ curve: Curve }>} ask the server for a recorded curve
     * @param {() => void} onMeasured
     */
    constructor(root, ask, onMeasured) {
      this.root = root;
      this.ask = ask;
      this.onMeasured = onMeasured;
      this.at = finder(root, "curve-");
      this.tip = new Tip(root);
      this.canvases = ["first", "second"].map((name) => this.at(name));
      this.run = new Run("curve", this);
      this.at("measure").addEventListener("click", () => (this.run.isOpen ? this.run.stop() : this.run.start()));
      onRun("curve", () => this.button()); // the last message is drawn before the run is over
      keepDrawn(this.at("plots"), () => this.draw());
    }

    /** @param {string} name of a curve, "" hides the panel */
    async show(name) {
      if (name === this.name) return;
      if (this.run.isOpen) this.run.forget();
      this.name = name;
      this.root.hidden = !name;
      this.recorded = this.measured = null;
      this.at("trees").replaceChildren();
      this.tell();
      if (!name) return;
      const { curve, refused } = await answered(this.ask(name));
      if (name !== this.name) return;
      if (refused) return this.say(refused);
      this.recorded = curve;
      this.tell();
      this.grow(curve.trees);
    }

    order() {
      this.measured = null;
      return { curve: this.name };
    }

    /** @param {string} words */
    say(words) {
      this.at("origin").textContent = words;
      this.button();
    }

    /** @param {RunEnd} how */
    over(how) {
      this.say(`${ENDED[how]}. Press again to measure.`);
      fillBar(this.at("progress"), 0, 1);
    }

    /** @param {CurveMessage} message */
    feed(message) {
      if (message.start || message.end) this.measured = /** @type {Curve} */ (message);
      if (message.point && this.measured) this.measured.lines[message.line].points.push(message.point);
      fillBar(this.at("progress"), message.done, 1);
      if (message.start) this.say("Measuring on this machine …");
      if (!message.end) return this.draw();
      this.tell();
      if (message.trees.length) this.grow(message.trees);
      this.onMeasured();
    }

    button() {
      this.at("measure").textContent = this.run.isOpen ? "Stop" : "Measure on this machine";
    }

    // The finding, and where and when it was measured.
    tell() {
      const { measured, recorded } = this;
      const shown = measured ?? recorded;
      this.at("finding").textContent = shown?.finding ?? "";
      const day = (/** @type {Curve} */ curve) => `${curve.pair}, ${recordedWords(curve.recorded, curve.hardware)}`;
      const here = measured && `Measured here: ${measured.pair}, ${measured.hardware}.`;
      const before = recorded && `${here ? "Thin: " : ""}${day(recorded)}.`;
      this.at("origin").textContent = [here, before].filter(Boolean).join(" ");
      this.at("origin").title = recorded ? recorded.command : "";
      fillBar(this.at("progress"), 0, 1);
      this.button();
      this.draw();
    }

    draw() {
      const pictures = PICTURES[this.name];
      if (!pictures || !this.root.clientWidth) return;
      const shown = this.measured ?? this.recorded;
      for (const [index, canvas] of this.canvases.entries()) {
        const picture = pictures[index];
        this.at(`${index ? "second" : "first"}-title`).textContent = picture.title;
        const before = this.measured && this.recorded ? this.lines(this.recorded, picture, true) : [];
        const lines = [...before, ...(shown ? this.lines(shown, picture, false) : [])];
        drawCurve(canvas, lines, {
          ...picture,
          digits: 1,
          peak: picture.key === "speedup" && this.name === "nodes",
          doubling: DOUBLING.includes(this.name),
          axis: shown?.axis ?? "",
        });
        canvas.setAttribute("aria-label", `${picture.title} by ${shown?.axis ?? ""}. ${shown?.finding ?? ""}`);
      }
    }

    /**
     * @param {Curve} curve
     * @param {Picture} picture
     * @param {boolean} faint
     */
    lines({ lines }, { key, text }, faint) {
      const own = lines.filter((line) => !text || line.text === text);
      const hues = own[0]?.title.includes("chain") ? CHAINS : HUES;
      const drawn = own.map(({ title, points }, index) => ({
        title,
        hue: hues[index],
        faint,
        points: points.map((point) => ({ x: point.x, y: Number(point[key]) })),
      }));
      if (key !== "tokens_per_s" || !own.length) return drawn;
      const points = own[0].points.map((point) => ({ x: point.x, y: Number(point.plain_tokens_per_s) }));
      return [...drawn, { title: "plain decoding", hue: "base", faint, points }];
    }

    /** @param {{ title: string, nodes: number, step: Step }[]} trees drafted at one place of a text, side by side */
    grow(trees) {
      const figures = trees.map(({ title, nodes, step }) => {
        const canvas = make("div", "canvas");
        canvas.setAttribute("role", "img");
        const tokens = counted(step.burst.length, "token");
        canvas.setAttribute("aria-label", `${title}, ${nodes} nodes: ${tokens} from this pass`);
        new TreePointing(canvas, this.tip, () => step).alone();
        keepDrawn(canvas, () => drawTree(canvas, step));
        const caption = make("figcaption", "", make("b", "", `${nodes} nodes`), `${title}, ${tokens}`);
        return make("figure", "plot", caption, canvas);
      });
      this.at("trees").replaceChildren(...figures);
    }
  }

  return { CurvePanel };
})();
