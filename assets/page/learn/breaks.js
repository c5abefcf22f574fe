// One thing broken on purpose: its switch, its race against the right system, how far off its tokens are. Knows nothing of the walk's pages.

TreeRace.breaks = (() => {
  const { button, make } = TreeRace.elements;
  const { raceable } = TreeRace.systemNames;
  const { asShare, labelOf, visible } = TreeRace.numbers;
  const { shareBar, tableOf } = TreeRace.walkPictures;
  const { Run, onRun } = TreeRace.runs;

  const SHAPE = ["depth", "width", "nodes"];
  const FORM = ["prompt", "temperature", "seed", "max_new_tokens", "constraint"];

  /** @type {(values: Settings, names: string[]) => Settings} */
  const pick = (values, names) => Object.fromEntries(names.map((name) => [name, values[name]]));

  /** @param {Divergence} divergence */
  function parted({ index, left, right }) {
    const [here, there] = [visible(left).rest, visible(right).rest];
    return `The texts part at token ${index + 1}: “${here}” on the left, “${there}” on the right.`;
  }

  /** @param {number} distance between 0 and 1, as a person reads it */
  function plain(distance) {
    if (distance === 0) return "0";
    return distance >= 0.001 ? distance.toFixed(3) : distance.toFixed(Math.min(9, Math.ceil(-Math.log10(distance))));
  }

  class Breaks {
    /** @type {string | null} what is broken now */
    on = null;
    name = ""; // of the broken system
    busy = false; // until it is measured
    /** @type {string | null} its race */
    run = null;
    /** @type {number | null} the first token that differs, until it is marked */
    parting = null;
    /** @type {RaceMessage | null} the race that was shown before */
    sound = null;
    /** @type {Memory} what the controls were before */
    memory = {};

    /**
     * @param {HTMLElement} root
     * @param {Record<string, Break>} breaks what there is to break, by name
     * @param {(name: string | null) => void} onChange told of every switch
     */
    constructor(root, breaks, onChange) {
      this.root = root;
      this.breaks = breaks;
      this.onChange = onChange;
      this.words = make("p");
      this.result = make("div");
      this.report = make("div");
      onRun("race", (message) => this.raced(message));
      this.measuring = new Run("distance", this);
    }

    /** @param {string[]} names of the switches to show; one that is on is alone */
    show(names) {
      const shown = this.on ? [this.on] : names;
      this.root.classList.toggle("several", shown.length > 1);
      this.root.replaceChildren(...shown.map((name) => this.switch(this.breaks[name])));
      if (this.on) this.root.append(this.report);
    }

    /** @param {Break} broken */
    switch({ name, title }) {
      const turn = () => (this.on === name ? this.mend() : this.break(name));
      const words = make("span", "", make("em", "", "Break it: "), make("b", "", title));
      const made = button("walk-switch", turn, make("i"), words);
      Object.assign(made, { role: "switch", ariaChecked: String(this.on === name) });
      made.dataset.name = name;
      return made;
    }

    /** @param {string} name */
    async break(name) {
      const { wrong, effect, suggestion, cards } = this.breaks[name];
      const right = raceable(Object.keys(cards));
      const card = cards[right];
      this.name = card.name;
      if (TreeRace.view.isLive) TreeRace.view.race.stop(); // it would take this one's place
      this.busy = true;
      this.on = name;
      this.run = this.parting = null;
      this.sound = snapshot(TreeRace.view);
      this.memory = {};
      this.words = make("p", "walk-says", "Racing the right one on the left and the broken one on the right …");
      this.words.setAttribute("role", "status");
      this.result = make("div", "walk-result");
      /** @type {(term: string, text: string) => HTMLElement[]} */
      const entry = (term, text) => [make("dt", "", term), make("dd", "", text)];
      const list = make("dl", "", ...entry("broken", wrong), ...entry("so", effect));
      this.report = make("div", "walk-report", list, this.words, this.result);
      this.onChange(name);
      const wish = { ...pick(suggestion, FORM), ...pick(card, SHAPE), untouched: "", broken: card.name };
      await TreeRace.controls.set(wish, this.memory);
      if (this.on !== name) return;
      for (const [index, system] of [TreeRace.view.about.systems[right], card].entries())
        TreeRace.view.lanes[index].card.show(system);
      TreeRace.view.race.start();
    }

    /** @param {RaceMessage} message that tells where the texts part; at the last one the distance is measured */
    raced({ run, systems, divergence, identical, end }) {
      if (!this.on) return;
      if (systems?.[1].name === this.name) this.run = run;
      if (!end || run !== this.run) return;
      this.parting = divergence?.index ?? null;
      const same = identical === true || !divergence;
      this.words.textContent = same ? "The texts are the same this time. The distance tells more." : parted(divergence);
      const cancel = button("", () => this.measuring.stop(), "Cancel");
      const bar = Object.assign(make("progress"), { max: 1, value: 0, ariaLabel: "Measured so far" });
      const wait = make("p", "walk-busy", "Measuring how far off it is …", bar, cancel);
      this.result.replaceChildren(wait);
      this.measuring.start();
    }

    // Marks the burst in which each text goes its own way, once both are written.
    part() {
      const { parting } = this;
      if (parting === null || TreeRace.view.root.dataset.state !== "done") return;
      for (const lane of TreeRace.view.lanes) {
        const burst = /** @type {HTMLElement | undefined} */ (
          lane.bursts.children[lane.totals.findIndex((total) => total > parting) - 1]
        );
        if (!burst) continue;
        burst.classList.add("parted");
        lane.text.scrollTop = burst.offsetTop - lane.text.clientHeight / 2;
      }
      this.parting = null;
    }

    /** @param {BreakMessage} message */
    feed(message) {
      if (message.break !== this.on) return;
      const bar = this.result.querySelector("progress");
      if (!("sentence" in message)) {
        if (bar) bar.value = message.done;
        return;
      }
      this.busy = false;
      const { wrong, right, floor, sentence, temperature } = message;
      const parts = [
        make("p", "label", `distance from the target's own distribution, temperature ${temperature}`),
        shareBar("broken", plain(wrong), 100 * wrong, "wrong"),
        shareBar("right", plain(right), 100 * right, "right"),
      ];
      if (floor !== null && floor !== undefined) parts.push(shareBar("by chance", plain(floor), 100 * floor, "floor"));
      parts.push(make("p", "walk-sentence", sentence));
      if (message.rows?.length) parts.push(examples(message));
      this.result.replaceChildren(...parts);
      this.result.scrollIntoView({ block: "nearest" });
    }

    /** @param {Settings} form */
    order(form) {
      return { broken: this.name, ...pick(form, FORM), ...pick(form, SHAPE) };
    }

    say() {}

    /** @param {RunEnd} how */
    over(how) {
      this.busy = false;
      const stopped = how === "stopped" || how === "withdrawn";
      const words = stopped ? "Stopped. Race again to measure." : "The distance could not be measured.";
      this.result.replaceChildren(make("p", "", words));
    }

    // Stop was pressed before the measuring.
    rest() {
      this.busy = false;
      if (this.on && !this.result.hasChildNodes()) this.words.textContent = "Stopped.";
    }

    // All as it was: the controls, and the race that was shown.
    async mend() {
      if (!this.on) return;
      if (this.busy) TreeRace.runs.stop("race", "distance");
      this.on = null;
      await TreeRace.controls.restore(this.memory);
      TreeRace.view.describe(TreeRace.view.lanes.map((lane) => lane.chosen?.name ?? ""));
      if (this.sound) TreeRace.view.race.show({ ...this.sound, run: `${this.sound.run} again` });
      else TreeRace.view.race.start();
      this.onChange(null);
    }
  }

  /** @param {BreakDistance} distance */
  function examples({ rows = [], after }) {
    const cells = rows
      .slice(0, 3)
      .map(({ token, right, wrong }) => [labelOf(token, ""), asShare(right), asShare(wrong)]);
    const table = tableOf(["next token", "right", "broken"], cells);
    if (after) table.createCaption().textContent = `after “… ${after}”`;
    return table;
  }

  /**
   * The race that is shown, as one event that shows it again.
   * @param {RaceView} view
   * @returns {RaceMessage | null}
   */
  function snapshot(view) {
    if (!view.result || view.systems.some((system) => system.name.includes("!"))) return null;
    /** @type {[number, Step][]} */
    const steps = view.lanes.flatMap((lane, index) =>
      lane.steps.map((step) => /** @type {[number, Step]} */ ([index, step])),
    );
    return {
      ...view.result,
      slowdown: view.speeds.fitting,
      start: true,
      systems: view.systems,
      recorded: view.recorded,
      steps,
    };
  }

  return { Breaks };
})();
