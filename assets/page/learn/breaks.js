// One thing broken on purpose: its switch, its race against the right system, how far off its tokens are. Knows nothing of the walk's pages.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const SHAPE = ["depth", "width", "nodes"];
  const FORM = ["prompt", "temperature", "seed", "max_new_tokens"];

  // A distance between 0 and 1 as a person reads it.
  function plain(distance) {
    if (distance === 0) return "0";
    return distance >= 0.001 ? distance.toFixed(3) : distance.toFixed(Math.min(9, Math.ceil(-Math.log10(distance))));
  }

  const { make } = T;
  const press = (button) => document.querySelector(button).click();

  // `breaks`: what there is to break, by name, each with the card of its system; `onChange` hears of every switch.
  T.Breaks = class {
    constructor(root, controls, breaks, onChange) {
      Object.assign(this, { root, controls, breaks, onChange, on: null, busy: false });
      window.addEventListener("treerace", ({ detail }) => this.on && this.raced(detail));
      window.addEventListener("treebreak", ({ detail }) => this.measured(detail));
      document.addEventListener("click", ({ target }) => target.closest?.("#race-halt") && this.halted());
    }

    // Shows the switches of these names; one that is on is alone.
    show(names) {
      const shown = this.on ? [this.on] : names;
      this.root.classList.toggle("several", shown.length > 1);
      this.root.replaceChildren(...shown.map((name) => this.switch(this.breaks[name])));
      if (this.on) this.root.append(this.report);
    }

    switch({ name, title }) {
      const button = make("button", "walk-switch", make("i"), make("span", "", make("em", "", "Break it: "), make("b", "", title)));
      Object.assign(button, { type: "button", role: "switch", ariaChecked: String(this.on === name) });
      button.dataset.name = name;
      button.addEventListener("click", () => (this.on === name ? this.mend() : this.break(name)));
      return button;
    }

    async break(name) {
      const { wrong, effect, suggestion, card } = this.breaks[name];
      const { result, root } = T.view;
      if (root.dataset.state === "waiting" || (root.dataset.state === "racing" && !result)) press("#race-halt"); // it would take this one's place
      this.busy = true; // until it is measured
      this.on = name;
      this.run = null; // its race
      this.parting = null; // the first token that differs, until it is marked
      this.sound = snapshot(T.view);
      this.memory = {};
      this.words = make("p", "walk-says", "Racing the right one on the left and the broken one on the right …");
      this.words.setAttribute("role", "status");
      this.result = make("div", "walk-result");
      const terms = [["broken", wrong], ["so", effect]];
      const list = make("dl", "", ...terms.flatMap(([term, words]) => [make("dt", "", term), make("dd", "", words)]));
      this.report = make("div", "walk-report", list, this.words, this.result);
      this.onChange(name);
      const form = Object.fromEntries(FORM.map((each) => [each, suggestion[each]]));
      const shape = Object.fromEntries(SHAPE.map((each) => [each, card[each]]));
      await this.controls.set({ ...form, ...shape, broken: card.name }, this.memory);
      if (this.on !== name) return;
      const [left, broken] = [T.view.about.systems[suggestion.systems[0]], card];
      [left, broken].forEach((system, index) => T.view.lanes[index].card.show(system));
      this.controls.race();
    }

    // Where the texts part; then the distance is measured, when the race is off the machine.
    raced({ run, systems, divergence, identical, end }) {
      if (systems?.[1].name === this.breaks[this.on].card.name) this.run = run;
      if (!end || run !== this.run) return;
      const { index, left, right } = divergence || {};
      this.parting = index ?? null;
      this.words.textContent =
        identical === true || !divergence
          ? "The texts are the same this time. The distance tells more."
          : `The texts part at token ${index + 1}: “${T.visible(left).rest}” on the left, “${T.visible(right).rest}” on the right.`;
      this.result.replaceChildren(make("p", "walk-busy", "Measuring how far off it is …", this.progress(0), this.cancel()));
      press("#walk-measure");
    }

    // Marks the burst in which each text goes its own way, once both are written.
    part() {
      if (this.parting === null || T.view.root.dataset.state !== "done") return;
      for (const lane of T.view.lanes) {
        const burst = lane.bursts.children[lane.totals.findIndex((total) => total > this.parting) - 1];
        if (!burst) continue;
        burst.classList.add("parted");
        lane.text.scrollTop = burst.offsetTop - lane.text.clientHeight / 2;
      }
      this.parting = null;
    }

    progress(done) {
      const bar = make("progress");
      Object.assign(bar, { max: 1, value: done, ariaLabel: "Measured so far" });
      return bar;
    }

    cancel() {
      const button = make("button", "", "Cancel");
      button.type = "button";
      button.addEventListener("click", () => press("#race-halt"));
      return button;
    }

    measured(message) {
      if (message.break !== this.on) return;
      const bar = this.result.querySelector("progress");
      if (message.sentence === undefined) return bar && (bar.value = message.done);
      this.busy = false;
      const { wrong, right, floor, rows, after, sentence, temperature } = message;
      const parts = [
        make("p", "label", `distance from the target's own distribution, temperature ${temperature}`),
        T.bar("broken", plain(wrong), 100 * wrong, "wrong"),
        T.bar("right", plain(right), 100 * right, "right"),
      ];
      if (floor !== null && floor !== undefined) parts.push(T.bar("by chance", plain(floor), 100 * floor, "floor"));
      parts.push(make("p", "walk-sentence", sentence));
      if (rows?.length) parts.push(examples(rows.slice(0, 3), after));
      this.result.replaceChildren(...parts);
      this.result.scrollIntoView({ block: "nearest" });
    }

    halted() {
      this.busy = false;
      if (this.result?.querySelector("progress")) this.result.replaceChildren(make("p", "", "Stopped. Race again to measure."));
      else if (this.on && !this.result.hasChildNodes()) this.words.textContent = "Stopped.";
    }

    failed() {
      this.busy = false;
      if (this.result.querySelector("progress")) this.result.replaceChildren(make("p", "", "The distance could not be measured."));
    }

    // All as it was: the controls, and the race that was shown.
    async mend() {
      if (!this.on) return;
      if (this.busy) press("#race-halt");
      this.on = null;
      await this.controls.restore(this.memory);
      T.view.describe(T.view.lanes.map((lane) => lane.chosen?.name));
      if (this.sound) T.view.feed({ ...this.sound, run: `${this.sound.run} again` });
      else this.controls.race();
      this.onChange(null);
    }
  };

  function examples(rows, after) {
    const table = make("table", "places");
    const heads = ["next token", "right", "broken"].map((name) => make("th", "", name));
    table.createTHead().append(make("tr", "", ...heads));
    const body = table.createTBody();
    for (const { token, right, wrong } of rows) {
      const { dots, rest } = T.visible(token);
      body.append(make("tr", "", make("th", "", dots + rest), make("td", "", T.share(right)), make("td", "", T.share(wrong))));
    }
    if (after) table.createCaption().textContent = `after “… ${after}”`;
    return table;
  }

  // The race that is shown, as one event that shows it again.
  function snapshot(view) {
    if (!view.result || view.systems.some((system) => system.name.includes("!"))) return null;
    const steps = view.lanes.flatMap((lane, index) => lane.steps.map((step) => [index, step]));
    return { slowdown: 1, ...view.result, start: true, systems: view.systems, recorded: view.recorded, steps };
  }
})(window.TreeRace);
