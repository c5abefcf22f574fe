// A sweep on the page: what is asked for, the cells as they arrive, and from a cell to its race. Knows the messages of
// engine/measure/curves/sweep.py; leaves the drawing to the plots.

TreeRace.sweepView = (() => {
  const { drawShares } = TreeRace.barPlots;
  const { fillBar, findAll, finder, onChoice } = TreeRace.elements;
  const { drawHeat, drawSweepCost } = TreeRace.heatPlot;
  const { fillSystems, insteadWords, onLacks } = TreeRace.systemNames;
  const { keepDrawn } = TreeRace.plotBase;
  const { saveMenu } = TreeRace.downloads;
  const { goToScreen, screenRoot } = TreeRace.screens;
  const { CHARTS, SWEPT, SweepRecord } = TreeRace.sweepRecord;
  const { ENDED, Run } = TreeRace.runs;

  /** @type {Record<Grid, Record<string, string>>} what the fields of a grid begin with, and its two axes */
  const GRIDS = {
    shape: { x: "depth", y: "width", depth: "1, 2, 3, 4, 5, 6", width: "1, 2, 3, 4", nodes: "16" },
    budget: {
      x: "nodes",
      y: "temperature",
      depth: "6",
      width: "4",
      nodes: "2, 4, 8, 12, 16, 24",
      temperature: "0, 0.4, 0.8, 1.2",
    },
  };
  const PREFERRED = ["tree", "eagle", "dspark", "lookup"]; // what is swept until the visitor chooses: the first that the pair can race
  const INVITATION = "Which tree pays here? Every cell is a race against plain decoding. Press Start.";

  /** @param {string} text such as "1, 2 3"; what is no number stays as it is, for the server to refuse in words */
  function list(text) {
    const each = text.split(/[\s,;]+/).filter(Boolean);
    return each.map((value) => (Number.isNaN(Number(value)) ? value : Number(value)));
  }

  /** @param {number} seconds */
  function duration(seconds) {
    const rounded = Math.max(1, Math.round(seconds));
    return rounded < 60 ? `${rounded} s` : `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
  }

  class SweepView {
    /** @type {SweepRecord | null} */
    measured = null;
    /** @type {{ x: number, y: number } | null} the cell that the keys are on */
    picked = null;
    grid = /** @type {Grid} */ ("shape");

    /**
     * @param {HTMLElement} root
     * @param {{ systems: Record<string, System> }} about
     * @param {(words: string) => void} say shows how the sweep stands
     */
    constructor(root, { systems }, say) {
      this.root = root;
      this.say = say;
      this.systems = systems;
      this.run = new Run("sweep", this);
      this.at = finder(root);
      /** @type {Record<string, HTMLElement>} */
      this.charts = Object.fromEntries(findAll(root, "[data-chart]").map((figure) => [figure.dataset.chart, figure]));
      const drafting = Object.entries(systems).filter(([, { guesses }]) => guesses);
      fillSystems(this.at("system"), Object.fromEntries(drafting), PREFERRED);
      onLacks(() => this.measured || this.say(this.invitation));
      this.choose("shape");
      for (const [name, figure] of Object.entries(this.charts)) {
        const rows = () => (this.measured ? CHARTS[name](this.measured).rows : []);
        saveMenu(figure, this.at("save-template"), `treerace-${name}`, rows);
      }
      this.root.classList.add("blank");
      this.say(this.invitation);
      onChoice(root, "grid", (grid) => this.choose(/** @type {Grid} */ (grid)));
      this.at("race-this").addEventListener("click", () => this.chosen && this.race(this.chosen));
      const canvas = finder(this.charts.speedup)("canvas");
      canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
      keepDrawn(root, () => this.draw());
    }

    // What is swept in place of the usual, and why; "" for the usual.
    get instead() {
      return insteadWords(PREFERRED, this.systems);
    }

    get invitation() {
      return [INVITATION, this.instead].filter(Boolean).join(" ");
    }

    /** @param {Grid} grid */
    choose(grid) {
      this.grid = grid;
      this.root.dataset.grid = screenRoot().dataset.grid = grid;
      for (const name of SWEPT) {
        const several = name === GRIDS[grid].x || name === GRIDS[grid].y;
        this.at(name).value = GRIDS[grid][name] ?? "";
        this.at(name).classList.toggle("one", !several); // its field is as narrow as one number
      }
    }

    /** @param {{ prompt: string, temperature: number, seed: number }} form that all screens share */
    order({ prompt, temperature, seed }) {
      /** @param {string} name */
      const several = (name) => (this.at(name).value.trim() ? list(this.at(name).value) : []);
      const [tokens] = list(this.at("tokens").value);
      const domains = Object.values(TreeRace.pairs.gallery);
      const kinds = domains.length > 1 ? domains.map(([first]) => first) : domains[0]; // a chat model's requests are of one domain
      return {
        prompts: this.at("prompts").value === "one" ? [prompt] : kinds.map((each) => each.prompt),
        system: this.at("system").value,
        grid: this.grid,
        depth: several("depth"),
        width: several("width"),
        nodes: several("nodes"),
        temperature: this.grid === "budget" ? several("temperature") : [temperature],
        max_new_tokens: tokens ?? null,
        seed,
      };
    }

    /** @param {RunEnd} how */
    over(how) {
      const { measured } = this; // of a run that has not begun it is the sweep before
      if (how === "refused") return this.say("Nothing was measured.");
      if (how === "withdrawn") return this.say(measured?.summary.sentence || this.invitation);
      if (!measured) return this.say(`${ENDED[how]}.`);
      const { cells, total, summary } = measured;
      this.say(`${ENDED[how]} after ${cells.length} of ${total} cells. ${summary.sentence}`);
    }

    /** @param {SweepMessage} message */
    feed(message) {
      if (message.start) this.begin(message);
      const { measured } = this;
      if (!measured) return;
      if (!message.start) measured.add(message);
      this.tell(measured);
      if (message.end) this.say(measured.summary.sentence);
      if (message.start || message.cell || message.end) this.draw();
    }

    /** @param {SweepStart} message */
    begin(message) {
      this.measured = new SweepRecord(message);
      this.picked = null;
      this.root.classList.remove("blank");
    }

    /** @param {SweepRecord} measured */
    tell({ cells, total, done, left, summary: { sentence } }) {
      fillBar(this.at("progress"), cells.length, total, done / total);
      const time = left === null || left === undefined ? "" : `, ${duration(left)} left`;
      this.say(`Cell ${Math.min(total, cells.length + 1)} of ${total}${time}. ${sentence}`);
    }

    draw() {
      const { measured } = this;
      if (!measured || !this.root.clientWidth) return;
      /** @param {string} name @returns {any} */
      const canvas = (name) => this.charts[name].querySelector("[data-canvas]");
      drawHeat(canvas("speedup"), measured, "speedup", this.picked);
      drawHeat(canvas("tau"), measured, "tau", this.picked);
      drawSweepCost(canvas("cost"), measured);
      drawShares(canvas("depth"), measured.summary.by_depth, "depth", "depth");
      drawShares(canvas("rank"), measured.summary.by_rank, "rank", "rank among siblings");
      for (const [name, figure] of Object.entries(this.charts)) {
        const { note, label } = CHARTS[name](measured);
        finder(figure)("note").textContent = note;
        canvas(name).setAttribute("aria-label", label);
      }
      this.clickable(canvas("speedup"));
      this.clickable(canvas("tau"));
      this.offer();
    }

    // The cell that a race would take: the one the visitor picked, else the best one.
    get chosen() {
      const { measured } = this;
      const place = this.picked ?? measured?.summary.best[0];
      const cell = place && measured?.cell(place.x, place.y);
      return cell && !cell.refused ? cell : null;
    }

    offer() {
      const button = this.at("race-this");
      const { chosen } = this;
      button.hidden = !chosen;
      if (!chosen) return;
      const { depth, width, nodes, temperature } = chosen;
      const isShape = this.measured?.start.grid === "shape";
      const what = isShape ? `depth ${depth}, width ${width}` : `${nodes} nodes, T = ${temperature}`;
      button.textContent = `Race ${what} ›`;
    }

    /**
     * @param {number} columns
     * @param {number} rows
     */
    move(columns, rows) {
      if (!this.measured) return;
      const { x, y, summary } = this.measured;
      const from = this.picked ?? summary.best[0] ?? { x: x.values[0], y: y.values[0] };
      /** @type {(values: number[], at: number, by: number) => number} */
      const next = (values, at, by) => values[Math.max(0, Math.min(values.length - 1, values.indexOf(at) + by))];
      this.picked = { x: next(x.values, from.x, columns), y: next(y.values, from.y, rows) };
      this.draw();
    }

    /** @param {Cell} cell to which the race's menus and dials are set before going there */
    async race(cell) {
      if (!this.measured) return;
      const { depth, width, nodes, temperature } = cell;
      const { system, seed, prompts } = this.measured.start;
      const lanes = { left: "vanilla", right: system.name, broken: "", untouched: "" };
      const prompt = prompts.length > 1 ? {} : { prompt: prompts[0] };
      await TreeRace.controls.set({ ...lanes, depth, width, nodes, temperature, seed, ...prompt }, {});
      goToScreen("race");
    }

    /** @param {any} canvas */
    clickable(canvas) {
      if (canvas.dataset.listens || !canvas.on) return;
      canvas.dataset.listens = true;
      canvas.on("plotly_click", (/** @type {{ points: { x: number, y: number }[] }} */ { points: [{ x, y }] }) => {
        const { measured } = this;
        const cell = measured?.cell(measured.x.values[x], measured.y.values[y]);
        if (cell && !cell.refused) this.race(cell);
      });
    }

    /** @param {KeyboardEvent} event */
    key(event) {
      /** @type {Record<string, () => void>} */
      const actions = {
        ArrowRight: () => this.move(1, 0),
        ArrowLeft: () => this.move(-1, 0),
        ArrowUp: () => this.move(0, 1),
        ArrowDown: () => this.move(0, -1),
        Enter: () => this.chosen && this.race(this.chosen),
      };
      const action = actions[event.key];
      if (!action || !this.measured) return;
      event.preventDefault();
      action();
    }
  }

  return { SweepView };
})();
