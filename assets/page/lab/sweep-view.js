// A sweep on the page: what is asked for, the cells as they arrive, what they say together. Knows the messages of engine/lab.py;
// leaves the drawing to the plots.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const GRIDS = {
    shape: { x: "depth", y: "width", depth: "1, 2, 3, 4, 5, 6", width: "1, 2, 3, 4", nodes: "16" },
    budget: { x: "nodes", y: "temperature", depth: "6", width: "4", nodes: "2, 4, 8, 12, 16, 24", temperature: "0, 0.4, 0.8, 1.2" },
  };
  const SWEPT = ["depth", "width", "nodes", "temperature"];
  const PROMPTS = { one: "this prompt", each: "one of each kind" };
  const INVITATION = "Which tree pays here? Every cell is a race against plain decoding. Press Start.";
  const FIGURES = [
    "speedup", "tau", "mean_nodes", "draft_share", "verify_share", "ms_per_token", "plain_ms_per_token", "tokens", "forwards", "identical",
    "refused",
  ];

  // What has arrived of one sweep.
  class Measured {
    constructor(start) {
      Object.assign(this, start, { total: start.cells, cells: [], done: 0, left: null });
      this.summarise({ best: [], sentence: "", by_depth: [], by_rank: [], verify_ms: {} });
    }

    summarise({ best, sentence, by_depth: byDepth, by_rank: byRank, verify_ms: verify }) {
      Object.assign(this, { best, sentence, byDepth, byRank, verify });
    }

    add({ cell, cells, summary, done, left }) {
      if (cell) this.cells.push(cell);
      if (cells) this.cells = cells;
      if (summary) this.summarise(summary);
      Object.assign(this, { done, left });
    }

    cell(x, y) {
      return this.cells.find((each) => each.x === x && each.y === y);
    }
  }

  // "1, 2 3" as numbers; what is no number stays as it is, for the server to refuse in words.
  function list(text) {
    const each = text.split(/[\s,;]+/).filter(Boolean);
    return each.map((value) => (Number.isNaN(Number(value)) ? value : Number(value)));
  }

  function duration(seconds) {
    const rounded = Math.max(1, Math.round(seconds));
    return rounded < 60 ? `${rounded} s` : `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
  }

  T.SweepView = class {
    // `say(words)` shows how the sweep stands; `gallery` holds prompts by kind.
    constructor(root, { systems, prompts }, say) {
      Object.assign(this, { root, say, gallery: prompts, measured: null, stopped: null, picked: null });
      this.at = (name) => root.querySelector(`[data-${name}]`);
      this.charts = Object.fromEntries(
        [...root.querySelectorAll("[data-chart]")].map((figure) => [figure.dataset.chart, figure]),
      );
      this.fillForm(systems);
      for (const [name, figure] of Object.entries(this.charts)) {
        T.saveMenu(figure, this.at("save-template"), `treerace-${name}`, () => this.rows(name));
      }
      this.rest();
      this.say(INVITATION);
      this.listen();
    }

    // ---- what is asked for ------------------------------------------------------------------------------------------

    fillForm(systems) {
      const drafting = Object.entries(systems).filter(([, { guesses }]) => guesses);
      T.fillSystems(this.at("system"), Object.fromEntries(drafting), "tree");
      for (const [value, words] of Object.entries(PROMPTS)) this.at("prompts").append(new Option(words, value));
      this.choose("shape");
    }

    choose(grid) {
      this.grid = grid;
      this.root.dataset.grid = document.querySelector("#screen").dataset.grid = grid;
      for (const name of SWEPT) {
        const several = name === GRIDS[grid].x || name === GRIDS[grid].y;
        this.at(name).value = GRIDS[grid][name] ?? "";
        this.at(name).classList.toggle("one", !several); // its field is as narrow as one number
      }
    }

    // The order for the server; `prompt`, `temperature` and `seed` come from the form that all screens share.
    order({ prompt, temperature, seed }) {
      const several = (name) => (this.at(name).value.trim() ? list(this.at(name).value) : []);
      const [tokens] = list(this.at("tokens").value);
      const each = Object.values(this.gallery).map(([first]) => first.prompt);
      return JSON.stringify({
        prompts: this.at("prompts").value === "one" ? [prompt] : each,
        system: this.at("system").value,
        grid: this.grid,
        depth: several("depth"),
        width: several("width"),
        nodes: several("nodes"),
        temperature: this.grid === "budget" ? several("temperature") : [temperature],
        max_new_tokens: tokens ?? null,
        seed,
      });
    }

    // ---- what arrives -----------------------------------------------------------------------------------------------

    // What Start sends.
    pending(form) {
      this.root.dataset.state = "waiting";
      this.say("Waiting for the models …");
      return { order: this.order(form) };
    }

    failed() {
      const refused = this.root.dataset.state === "waiting"; // what is shown is of the sweep before
      this.rest();
      this.say(this.measured && !refused ? this.so("Ended early") : "Nothing was measured.");
    }

    stop() {
      const { state } = this.root.dataset;
      if (state === "done") return;
      this.rest();
      if (state === "waiting") return this.say(this.measured?.sentence || INVITATION);
      this.stopped = this.measured.run;
      this.say(this.so("Stopped"));
    }

    rest() {
      this.root.dataset.state = "done";
      this.root.classList.toggle("blank", !this.measured);
    }

    feed(message) {
      if (message.start) this.begin(message);
      const { measured } = this;
      if (!measured || message.run !== measured.run || message.run === this.stopped) return;
      if (!message.start) measured.add(message);
      if (message.end) this.rest();
      this.tell(message.end);
      if (message.start || message.cell || message.end) this.draw();
    }

    begin(message) {
      this.measured = new Measured(message);
      this.picked = null;
      this.root.dataset.state = "running";
      this.root.classList.remove("blank");
    }

    tell(ended) {
      const { cells, total, done, left, sentence } = this.measured;
      const progress = this.at("progress");
      progress.setAttribute("aria-valuemax", total);
      progress.setAttribute("aria-valuenow", cells.length);
      progress.firstElementChild.style.width = `${(100 * done) / total}%`;
      if (ended) return this.say(sentence);
      const time = left === null || left === undefined ? "" : `, ${duration(left)} left`;
      this.say(`Cell ${Math.min(total, cells.length + 1)} of ${total}${time}. ${sentence}`);
    }

    so(ended) {
      const { cells, total, sentence } = this.measured;
      return `${ended} after ${cells.length} of ${total} cells. ${sentence}`;
    }

    // ---- what is shown ----------------------------------------------------------------------------------------------

    draw() {
      const { measured } = this;
      if (!measured || !this.root.clientWidth) return;
      const canvas = (name) => this.charts[name].querySelector("[data-canvas]");
      T.drawHeat(canvas("speedup"), measured, "speedup", this.picked);
      T.drawHeat(canvas("tau"), measured, "tau", this.picked);
      T.drawSweepCost(canvas("cost"), measured);
      T.drawShares(canvas("depth"), measured.byDepth, "depth", "depth");
      T.drawShares(canvas("rank"), measured.byRank, "rank", "rank among siblings");
      for (const [name, figure] of Object.entries(this.charts)) {
        const words = this.words(name);
        figure.querySelector("[data-note]").textContent = words.note;
        canvas(name).setAttribute("aria-label", words.label);
      }
      this.clickable(canvas("speedup"));
      this.clickable(canvas("tau"));
      this.offer();
    }

    // The finding of a chart: a few words for its caption, and sentences in its place.
    words(name) {
      const { measured } = this;
      const cells = measured.cells.filter((cell) => !cell.refused);
      const grid = `by ${measured.x.name} and ${measured.y.name}`;
      const range = (what, unit) => {
        const values = cells.map((cell) => cell[what]);
        return values.length ? `${T.number(Math.min(...values), 2)}${unit} to ${T.number(Math.max(...values), 2)}${unit}` : "nothing yet";
      };
      const shares = (rows, kind) => rows.map((row) => `${kind} ${row[kind]} ${Math.round((100 * row.accepted) / row.reached)} %`).join(", ");
      const { fixed, grid: kind, max_new_tokens: tokens, prompts } = measured;
      switch (name) {
        case "speedup": {
          const held = kind === "shape" ? [`≤ ${fixed.nodes} nodes`, `T = ${fixed.temperature}`] : [`depth ${fixed.depth}`, `width ${fixed.width}`];
          const setting = [...held, `${tokens} tokens`, prompts.length > 1 ? `${prompts.length} prompts` : ""];
          const finding = `Measured speed over plain decoding ${grid}: ${range("speedup", "×")}. ${measured.sentence}`;
          const label = `${finding} Arrows choose a cell, Enter races it.`;
          return { note: setting.filter(Boolean).join(" · "), label };
        }
        case "tau":
          return { note: "tokens a forward", label: `tau ${grid}: ${range("tau", "")}.` };
        case "cost": {
          const won = cells.filter((cell) => cell.speedup > 1).length;
          const label = `Verification time and break-even by nodes: ${won} of ${cells.length} cells were faster than plain decoding.`;
          return { note: "in tokens’ time · ■ tau of a cell", label };
        }
        case "depth":
          return {
            note: "◆ of rounds",
            label: `Reached guesses that were accepted, by depth: ${shares(measured.byDepth, "depth") || "nothing yet"}.`,
          };
        default:
          return {
            note: "",
            label: `Reached guesses that were accepted, by rank among siblings: ${shares(measured.byRank, "rank") || "nothing yet"}.`,
          };
      }
    }

    // The table behind a chart.
    rows(name) {
      const { measured } = this;
      if (!measured) return [];
      const { byDepth, byRank, costs, verify, cells, system } = measured;
      const timed = (times, source) => Object.entries(times).map(([nodes, ms]) => [nodes, ms, source]);
      const keys = [...SWEPT, ...FIGURES];
      switch (name) {
        case "depth":
          return [["depth", "reached", "accepted", "rounds"], ...byDepth.map((row) => [row.depth, row.reached, row.accepted, row.levels])];
        case "rank":
          return [["rank", "reached", "accepted"], ...byRank.map((row) => [row.rank, row.reached, row.accepted])];
        case "cost":
          return [["nodes", "verify_ms", "source"], ...timed(costs.verify_ms, "timed alone"), ...timed(verify, "median in the races")];
        default:
          return [["system", ...keys], ...cells.map((cell) => [system.name, ...keys.map((key) => cell[key])])];
      }
    }

    // ---- from a cell to the race ------------------------------------------------------------------------------------

    // The cell that a race would take: the one the visitor picked, else the best one.
    get chosen() {
      const { measured } = this;
      const place = this.picked ?? measured?.best[0];
      const cell = place && measured.cell(place.x, place.y);
      return cell && !cell.refused ? cell : null;
    }

    offer() {
      const button = this.at("race-this");
      const { chosen, measured } = this;
      button.hidden = !chosen;
      if (!chosen) return;
      const { depth, width, nodes, temperature } = chosen;
      button.textContent = measured.grid === "shape" ? `Race depth ${depth}, width ${width} ›` : `Race ${nodes} nodes, T = ${temperature} ›`;
    }

    pick(x, y) {
      this.picked = { x, y };
      this.draw();
    }

    move(columns, rows) {
      const { x, y, best } = this.measured;
      const from = this.picked ?? best[0] ?? { x: x.values[0], y: y.values[0] };
      const next = (values, at, by) => values[Math.max(0, Math.min(values.length - 1, values.indexOf(at) + by))];
      this.pick(next(x.values, from.x, columns), next(y.values, from.y, rows));
    }

    // Sets the race's menus and dials to this cell and goes there.
    async race(cell) {
      const { depth, width, nodes, temperature } = cell;
      const { system, seed, prompts } = this.measured;
      const wish = { left: "vanilla", right: system.name, broken: "", depth, width, nodes, temperature, seed };
      await T.walk.controls.set(prompts.length > 1 ? wish : { ...wish, prompt: prompts[0] }, {});
      T.showScreen("race");
    }

    clickable(canvas) {
      if (canvas.dataset.listens || !canvas.on) return;
      canvas.dataset.listens = true;
      canvas.on("plotly_click", ({ points: [{ x, y }] }) => {
        const cell = this.measured.cell(this.measured.x.values[x], this.measured.y.values[y]);
        if (cell && !cell.refused) this.race(cell);
      });
    }

    // ---- what the visitor does --------------------------------------------------------------------------------------

    listen() {
      window.addEventListener("treelab", (event) => this.feed(event.detail));
      this.root.querySelectorAll("[name=grid]").forEach((choice) => {
        choice.addEventListener("change", () => this.choose(choice.value));
      });
      this.at("race-this").addEventListener("click", () => this.chosen && this.race(this.chosen));
      this.charts.speedup.querySelector("[data-canvas]").addEventListener("keydown", (event) => this.key(event));
      T.keepDrawn(this.root, () => this.draw());
    }

    key(event) {
      const action = {
        ArrowRight: () => this.move(1, 0),
        ArrowLeft: () => this.move(-1, 0),
        ArrowUp: () => this.move(0, 1),
        ArrowDown: () => this.move(0, -1),
        Enter: () => this.chosen && this.race(this.chosen),
      }[event.key];
      if (!action || !this.measured) return;
      event.preventDefault();
      action();
    }
  };

  T.mountSweep = function (section, value, server, say) {
    T.sweep = new T.SweepView(section, value, say);
  };
})(window.TreeRace);
