// The race on the page: feeds the lanes, plays them on their own clocks, moves over the steps.
// Knows the events of the wire; asks the server for nothing.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const REDRAW_MS = 250; // while playing
  const LONG = 150; // letters of a sentence that are too many for two lines of its usual size
  const INVITATION = "Pick a prompt and press Race.";
  const MIX = { title: "your own mix", idea: "A drafter, a tree policy and an acceptance rule of your choice." };
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  T.RaceView = class {
    // `about`: the systems by name and a sentence for every part; `look(name)` asks the server about a system.
    constructor(root, about, look) {
      this.about = about;
      this.at = (name) => root.querySelector(`[data-${name}]`);
      this.root = root;
      this.pace = new T.Pace(this.at("rates"), "rate", this.at("pace"));
      this.lanes = ["left", "right"].map((side, index) => {
        const lane = this.at("lane-template").content.firstElementChild.cloneNode(true);
        lane.classList.add(side);
        this.at("lanes").append(lane);
        return new T.Lane(lane, index, about.parts, look, (step) => this.pick(index, step));
      });
      this.panel = new T.Panel(this.at("panel"));
      this.clear();
      this.say(INVITATION);
      this.listen();
      requestAnimationFrame((now) => this.frame(now));
    }

    clear() {
      this.run = null;
      this.stopped = null; // the run that takes no more steps
      this.result = null;
      this.told = false; // how it ended
      this.recorded = null; // the day of a race that is over, "" when nobody noted it; null for a live one
      this.systems = [];
      this.costs = [];
      this.picked = null; // the lane whose trees the visitor wants to see
      this.time = 0; // seconds on the lanes' clocks
      this.total = 1;
      this.playing = false;
      this.step = -1;
      this.drawnStep = -1;
      this.drawnAt = -Infinity;
    }

    say(words, kind = "", outcome = "", winner = 1) {
      this.at("outcome").textContent = outcome;
      this.at("outcome").dataset.hue = winner;
      this.at("words").textContent = words;
      this.at("verdict").dataset.kind = kind;
    }

    // ---- what arrives ---------------------------------------------------------------------------------------------

    // The menus name these systems. What has been raced keeps its description.
    describe(names) {
      names.forEach((name, index) => {
        const system = this.about.systems[name];
        this.lanes[index].choose(system);
        if (!this.run) this.lanes[index].describe(system || MIX);
      });
    }

    // The menus' choice.
    chosen({ left, right }) {
      this.describe([left, right]);
    }

    // The right lane's mix by name, whose shape the dials take; one out of a link brings its own along.
    mixed({ system }) {
      return { system: this.lanes[1].mix.restored ? "" : system };
    }

    pending() {
      this.lanes.forEach((lane) => lane.card.open(false));
      this.pause();
      this.root.dataset.state = "waiting";
      this.say("Waiting for the models …");
    }

    failed() {
      this.told = true;
      this.sign();
      if (this.result) this.verdict();
      else this.say("Nothing was raced.");
    }

    stop() {
      this.halt();
      if (this.result && this.atEnd) return;
      this.say(this.run ? "Stopped. Press Race to start again, or look at the steps so far." : INVITATION);
    }

    feed(message) {
      if (message.start) this.begin(message);
      if (message.run !== this.run || message.run === this.stopped) return;
      if (message.lost) return this.broken();
      for (const [lane, step] of message.steps || []) this.lanes[lane].push(step);
      this.atFocus();
      if (message.end) this.result = message;
      const ended = this.lanes.filter((lane) => lane.ended);
      if (ended.length) this.total = Math.max(1, ...this.lanes.map((lane) => lane.tokens));
    }

    halt() {
      this.stopped = this.run;
      this.told = true;
      this.pause();
    }

    // A race with a hole in it would show text that nobody wrote.
    broken() {
      this.halt();
      this.say("Part of the race was lost on its way here. Press Race again.", "different");
    }

    begin(message) {
      this.clear();
      this.run = message.run;
      this.systems = message.systems;
      this.recorded = message.end ? message.recorded : null;
      this.at("recorded").textContent = T.recordedWords(this.recorded, this.systems[0].trace.hardware);
      this.costs = this.systems.map((system) => new T.Costs(system.costs));
      this.total = this.systems[0].trace.max_new_tokens;
      this.lanes.forEach((lane, index) => {
        const system = this.systems[index];
        lane.reset(system.trace.prompt);
        lane.describe(system);
        lane.card.race(system.name);
      });
      this.pace.suggest(message.slowdown);
      this.say("");
      this.play();
    }

    // The lane whose trees are drawn: the one that was picked, else the right one unless only the left one drafts.
    get focus() {
      return this.picked ?? (this.lanes[0].drafts && !this.lanes[1].drafts ? 0 : 1);
    }

    atFocus() {
      const { focus } = this;
      this.at("plots").dataset.lane = focus;
      this.root.querySelector(`[name=focus][value="${focus}"]`).checked = true;
      this.at("scrub").max = Math.max(0, this.steps.length - 1);
      this.at("scrub").disabled = this.steps.length === 0;
    }

    get steps() {
      return this.lanes[this.focus].steps;
    }

    get horizon() {
      return T.horizon(this.lanes);
    }

    get atEnd() {
      const over = this.result !== null || (this.run !== null && this.stopped === this.run);
      return over && this.time >= this.horizon - 1e-9;
    }

    // ---- playback -------------------------------------------------------------------------------------------------

    frame(now) {
      const passed = this.pace.passed(now);
      if (window.Plotly && !this.canDraw) {
        this.canDraw = true; // its script may arrive after the first steps
        this.draw(true);
      }
      if (this.playing && this.run) {
        this.time = Math.min(this.horizon, this.time + passed);
        this.update(true, now);
        if (this.atEnd) this.finish();
      }
      requestAnimationFrame((next) => this.frame(next));
    }

    finish() {
      this.told = true;
      this.pause();
      if (this.result) this.verdict();
      this.draw(true);
    }

    play() {
      this.playing = true;
      this.sign();
    }

    pause() {
      this.playing = false;
      this.sign();
    }

    // What the play button does next, and whether the strip says who leads or how it ended.
    sign() {
      const [sign, name] = this.playing ? ["❚❚", "Pause"] : this.atEnd ? ["↻", "Play again"] : ["▶", "Play"];
      this.at("sign").textContent = sign;
      this.at("play").setAttribute("aria-label", name);
      this.root.dataset.state = this.told && !this.playing ? "done" : "racing";
    }

    toggle() {
      if (!this.steps.length) return;
      if (this.playing) return this.pause();
      if (this.atEnd) this.time = 0;
      this.play();
    }

    go(index) {
      const at = Math.max(0, Math.min(this.steps.length - 1, index));
      if (this.steps[at]) this.seek(this.steps[at].t);
    }

    // Looks at a lane's trees: at this step, or at the one it is in now.
    pick(lane, index) {
      this.picked = lane;
      this.lanes[1 - lane].mark(-1);
      this.atFocus();
      if (index !== undefined) return this.go(index);
      this.update(false, performance.now());
      this.draw(true);
    }

    seek(time) {
      this.time = Math.min(time, this.horizon);
      this.pause();
      this.update(false, performance.now());
      this.draw(true);
    }

    // To the end, without playing there.
    skip() {
      this.time = this.horizon;
      this.update(false, performance.now());
      this.finish();
    }

    // ---- what is shown --------------------------------------------------------------------------------------------

    update(animate, now) {
      const counts = this.lanes.map((lane) => lane.stepsAt(this.time));
      const tokens = this.lanes.map((lane, index) => lane.totals[counts[index]]);
      const longer = this.lanes.filter((lane, index) => lane.show(counts[index], animate && !calm.matches));
      this.lanes.forEach((lane, index) => lane.figures(counts[index], this.time, this.total, tokens[1 - index]));
      this.lead(tokens);
      longer.forEach((lane) => lane.toEnd());
      this.step = counts[this.focus] - 1;
      if (now - this.drawnAt >= REDRAW_MS) this.draw(false);
    }

    lead([left, right]) {
      const leader = right >= left ? 1 : 0;
      const [most, least] = [Math.max(left, right), Math.min(left, right)];
      const started = least >= 3;
      const level = T.isLevel(most / least);
      this.at("lead").dataset.hue = level ? "" : leader;
      this.at("ratio").textContent = !started ? "" : level ? "level" : `${T.number(most / least, 1)}× ahead`;
      this.at("margin").textContent = started && !level ? `${this.systems[leader].title}, by ${most - least} tokens` : "";
    }

    draw(force) {
      if (this.step === this.drawnStep && !force) return;
      this.drawnStep = this.step;
      this.drawnAt = performance.now();
      const step = this.steps[this.step];
      this.root.classList.toggle("blank", !step);
      if (!step) return;
      const place = `step ${this.step + 1} of ${this.steps.length}`;
      this.at("step").textContent = place;
      this.at("scrub").value = this.step;
      this.at("scrub").setAttribute("aria-valuetext", `${place}: ${step.sentence}`);
      this.at("sentence").textContent = step.sentence;
      this.at("sentence").classList.toggle("long", step.sentence.length > LONG);
      this.lanes[this.focus].mark(this.step);
      this.at("tree").setAttribute("aria-label", `Draft tree of step ${this.step + 1}: ${step.sentence}`);
      this.panel.causal = this.systems[this.focus].name.endsWith("!mask");
      T.drawTree(this.at("tree"), step);
      const beside = () => this.panel.draw(this.steps, this.drawnStep, this.costs[this.focus]);
      if (force) beside();
      else requestAnimationFrame(() => this.steps[this.drawnStep] && beside()); // two plots are too much for one frame
    }

    // How it ended: how much faster, and whether the texts are the same.
    verdict() {
      const { speedup, identical, divergence, lanes, finished } = this.result;
      const faster = speedup >= 1;
      const ratio = T.number(faster ? speedup : 1 / speedup, 1);
      const outcome = T.isLevel(speedup) ? "level" : `${ratio}× ${faster ? "faster" : "slower"}`;
      const say = (words, kind) => this.say(words, kind, outcome, T.isLevel(speedup) ? "" : Number(faster));
      const both = Math.min(...lanes.map((lane) => lane.tokens));
      if (identical === true && finished === false) return say(`stopped; identical so far: ${both} tokens`, "identical");
      if (identical === true) return say(`identical: ${lanes[1].tokens} of ${lanes[0].tokens} tokens`, "identical");
      if (identical === "law") return say("same distribution, other tokens", "law");
      const { index, left, right } = divergence;
      const where = `from token ${index + 1} on: ${quoted(left)} or ${quoted(right)}`;
      const lossy = identical === "lossy" || this.systems.some((system) => system.guarantee === "lossy");
      if (lossy) return say(`lossy: other text ${where}`, "lossy");
      return say(`not identical ${where}`, "different");
    }

    // ---- what the visitor does ------------------------------------------------------------------------------------

    listen() {
      window.addEventListener("treerace", (event) => this.feed(event.detail));
      this.at("scrub").addEventListener("input", (event) => this.go(Number(event.target.value)));
      this.at("back").addEventListener("click", () => this.go(this.step - 1));
      this.at("next").addEventListener("click", () => this.go(this.step + 1));
      this.at("play").addEventListener("click", () => this.toggle());
      this.root.querySelectorAll("[name=focus]").forEach((choice) => {
        choice.addEventListener("change", () => this.pick(Number(choice.value)));
      });
      this.keys();
      T.keepDrawn(this.at("tree"), () => this.run && this.draw(true));
    }

    keys() {
      const add = (keys, words, actions) => T.addKeys(keys, words, actions, "race");
      add(["Space"], "play, pause, play again", { " ": () => this.toggle() });
      add(["←", "→"], "one step back or on", {
        ArrowLeft: () => this.go(this.step - 1),
        ArrowRight: () => this.go(this.step + 1),
      });
      add(["Home", "End"], "first or last step", { Home: () => this.go(0), End: () => this.go(Infinity) });
      const { radios } = this.pace;
      const speeds = radios.map((each) => each.nextElementSibling.textContent);
      add(
        radios.map((_, index) => String(index + 1)),
        `speed: ${speeds.join(", ")}`,
        Object.fromEntries(radios.map((each, index) => [index + 1, () => each.click()])),
      );
    }
  };

  function quoted(text) {
    const { rest } = T.visible(text);
    return `“${rest || "␣"}”`;
  }

  // `value`: the systems, their parts, and the names of the two lanes' systems.
  T.mountRace = function (element, value, server) {
    const { lanes, ...about } = value;
    T.view = new T.RaceView(element.querySelector("[data-race]"), about, server.look);
    T.view.describe(lanes);
  };
})(window.TreeRace);
