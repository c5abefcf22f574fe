// The race on the page: feeds the lanes, has them played on their own clocks, moves over the steps.
// Knows the events of the wire; asks the server for nothing. Says "change" when anything about the shown race has changed.

TreeRace.raceView = (() => {
  const { mountTurns } = TreeRace.earlierTurns;
  const { copyOf, finder, isCalm, onChoice, showInItsFonts } = TreeRace.elements;
  const { Lane, ThirdLane } = TreeRace.lane;
  const { Player, Speeds } = TreeRace.player;
  const { keepDrawn } = TreeRace.plotBase;
  const { Pointing } = TreeRace.pointing;
  const { RaceControls } = TreeRace.form;
  const { addKeys } = TreeRace.keys;
  const { RaceStrip, finisherOf } = TreeRace.raceStrip;
  const { originWords } = TreeRace.recordedRace;
  const { Costs } = TreeRace.roundCosts;
  const { SlowStart } = TreeRace.storyView;
  const { StepView } = TreeRace.stepView;
  const { tellingOf } = TreeRace.storyScript;
  const { MIX } = TreeRace.systemCard;
  const { horizon, retimed } = TreeRace.steps;
  const { Run } = TreeRace.runs;

  class RaceView extends EventTarget {
    /** @type {string | null} the run that is shown */
    run = null;
    /** @type {RaceMessage | null} */
    result = null;
    told = false; // how it ended
    /** @type {string | null} the day of a race that is over, "" when nobody noted it; null for a live one */
    recorded = null;
    /** @type {RacedSystem[]} */
    systems = [];
    /** @type {Costs[]} */
    costs = [];
    /** @type {number | null} the lane whose trees the visitor wants to see */
    picked = null;
    total = 1; // tokens of the whole way
    step = -1; // that is shown

    /**
     * @param {HTMLElement} root
     * @param {{ systems: Record<string, System>, parts: Parts }} about systems by name, and a sentence for every part
     * @param {Look} [look] asks the server about a system
     */
    constructor(root, about, look) {
      super();
      this.about = about;
      this.root = root;
      this.at = finder(root);
      this.speeds = new Speeds(this.at("rates"), "rate", this.at("pace"));
      this.player = new Player(this.speeds, this);
      this.lanes = ["left", "right"].map((side, index) => {
        const lane = copyOf(this.at("lane-template"));
        lane.classList.add(side);
        this.at("lanes").append(lane);
        return new Lane(lane, index, about.parts, look, (step) => this.pick(index, step));
      });
      this.third = new ThirdLane(root);
      this.strip = new RaceStrip(root);
      this.showTurns = mountTurns(this.at("turns"));
      this.stepView = new StepView(root, () => this.tell());
      this.race = new Run("race", this);
      this.strip.ended("withdrawn");
      this.slowStart = new SlowStart(this);
      this.pointing = new Pointing(this);
      this.listen();
    }

    clear() {
      this.run = this.result = this.recorded = this.picked = null;
      this.told = false;
      this.systems = [];
      this.costs = [];
      this.total = 1;
      this.step = -1;
      this.stepView.forget();
      this.slowStart.cancel();
      this.player.reset();
    }

    tell() {
      this.dispatchEvent(new Event("change"));
    }

    /** @param {string[]} names that the menus have now; what has been raced keeps its description */
    describe(names) {
      for (const [index, name] of names.entries()) {
        const system = this.about.systems[name];
        this.lanes[index].choose(system);
        if (!this.run) this.lanes[index].describe(system || MIX);
      }
    }

    /** @param {{ left: string, right: string }} names that the menus have now */
    chosen({ left, right }) {
      this.describe([left, right]);
    }

    // The right lane's mix by name, whose shape the dials take; one out of a link brings its own along.
    /** @param {{ right_mix: string }} asked */
    mixed({ right_mix: name }) {
      return { right_mix: this.lanes[1].mix.restored ? "" : name, ...TreeRace.pairs.asked() };
    }

    /** @param {Settings} form */
    order(form) {
      const { left, right, left_mix, right_mix, broken, ...settings } = form;
      const mixed = [left === "mix" ? left_mix : left, right === "mix" ? right_mix : right];
      const systems = broken ? [broken.split("!")[0], broken] : mixed;
      const [third, full] = ["chain", "full"].map((box) => !broken && this.at(box).checked);
      this.dispatchEvent(new CustomEvent("asked", { detail: form }));
      this.third.expect(third);
      for (const lane of this.lanes) lane.card.open(false);
      this.player.pause();
      this.root.dataset.state = "waiting";
      this.tell();
      return { ...settings, systems, third, full, turns: TreeRace.chat?.turns ?? [] };
    }

    /** @param {string} words */
    say(words) {
      this.strip.say({ words });
    }

    /** @param {string} place where a race that has begun stands among others, "" when the device is all its own */
    stands(place) {
      if (!this.result) this.strip.say({ words: place });
    }

    /** @param {RunEnd} how; the race before stays as it was where the visitor wants no other */
    over(how) {
      const isShown = this.run === this.race.id;
      if (isShown && this.result && how !== "stopped") return; // it ran again, unseen
      this.told = true;
      this.player.pause();
      this.third.expect(true);
      if (how === "withdrawn" && this.result) this.strip.verdict(this);
      else if (!isShown || !this.result || !this.atEnd) this.strip.ended(how);
    }

    // Stop was pressed after the race: what is still played stands still.
    rest() {
      if (this.playing) this.over("stopped");
    }

    /** @param {RaceMessage} whole of all lanes */
    feed(whole) {
      const message = this.third.taken(whole);
      if (message.start) this.begin(message);
      this.speeds.take(message, this.playing);
      for (const [lane, step] of message.steps || []) this.lanes[lane].push(step);
      this.atFocus();
      const over = this.atEnd;
      if (message.again || message.end) this.result = retimed(this.lanes, message);
      if (this.lanes.some((lane) => lane.ended)) this.total = Math.max(1, ...this.lanes.map((lane) => lane.tokens));
      this.slowStart.look();
      if (message.end && this.told) return over ? this.player.skip() : this.ended();
      this.tell();
    }

    /** @param {RaceMessage} message */
    begin(message) {
      this.clear();
      this.run = message.run;
      this.systems = message.systems;
      this.recorded = message.end ? message.recorded : null;
      this.at("recorded").textContent = originWords(this.recorded, this.systems[0].trace);
      this.showTurns(this.systems[0].trace.turns);
      this.costs = this.systems.map((system) => new Costs(system.costs));
      this.total = this.systems[0].trace.max_new_tokens;
      for (const [index, lane] of this.lanes.entries()) {
        const system = this.systems[index];
        lane.reset(system.trace.prompt, system.trace.chat);
        lane.describe(system);
        lane.card.race(system, this.recorded !== null);
      }
      this.slowStart.begin();
    }

    // The lane whose trees are drawn: the one that was picked, else the right one unless only the left one drafts.
    get focus() {
      return this.picked ?? (this.lanes[0].drafts && !this.lanes[1].drafts ? 0 : 1);
    }

    atFocus() {
      const { focus } = this;
      this.at("plots").dataset.lane = focus;
      /** @type {any} */ (this.root.querySelector(`[name=focus][value="${focus}"]`)).checked = true;
      this.at("scrub").max = Math.max(0, this.steps.length - 1);
      this.at("scrub").disabled = this.steps.length === 0;
    }

    get steps() {
      return this.lanes[this.focus].steps;
    }

    get time() {
      return this.player.time;
    }

    get playing() {
      return this.player.playing;
    }

    get atEnd() {
      return this.player.atEnd;
    }

    get clockedLanes() {
      return this.third.system ? [...this.lanes, this.third] : this.lanes;
    }

    get horizon() {
      return horizon(this.clockedLanes);
    }

    get isOver() {
      return this.result !== null || (this.run !== null && !this.race.isOpen);
    }

    // A race is on its way, or steps of it are.
    get isLive() {
      return this.race.isOpen && (this.race.state === "asked" || !this.result);
    }

    ended() {
      this.told = true;
      this.player.pause();
      this.strip.verdict(this);
      const telling = this.atEnd ? tellingOf(this.steps) : -1;
      if (telling >= 0) this.step = telling; // the lanes stand at their end
      this.draw(true);
    }

    // What the play button does next, and whether the strip says who leads or how it ended.
    changed() {
      this.slowStart.cancel();
      const [sign, name] = this.playing ? ["❚❚", "Pause"] : this.atEnd ? ["↻", "Play again"] : ["▶", "Play"];
      this.at("sign").textContent = sign;
      this.at("play").setAttribute("aria-label", name);
      this.root.dataset.state = this.told && !this.playing ? "done" : "racing";
      this.tell();
    }

    toggle() {
      if (this.steps.length) this.player.toggle();
    }

    /** @param {number} index */
    go(index) {
      if (!this.steps.length) return;
      this.player.scrub(this.steps, index);
      this.draw(true);
    }

    /**
     * Looks at a lane's trees: at this step, or at the one it is in now.
     * @param {number} lane
     * @param {number} [index]
     */
    pick(lane, index) {
      this.picked = lane;
      this.lanes[1 - lane].mark(-1);
      this.atFocus();
      if (index !== undefined) return this.go(index);
      this.show(false, performance.now());
      this.draw(true);
    }

    skip() {
      this.player.skip();
    }

    /**
     * @param {boolean} animate
     * @param {number} now
     */
    show(animate, now) {
      const { time, total } = this;
      const counts = this.lanes.map((lane) => lane.stepsAt(time));
      const tokens = this.lanes.map((lane, index) => lane.totals[counts[index]]);
      const longer = this.lanes.filter((lane, index) => lane.show(counts[index], animate && !isCalm()));
      for (const lane of this.clockedLanes) lane.showFigures(time, total);
      for (const [index, lane] of this.lanes.entries()) lane.placeRival(tokens[1 - index] / total);
      this.strip.lead([tokens[0], tokens[1]], this.systems, finisherOf(this.lanes, counts, time));
      for (const lane of longer) lane.toEnd();
      this.step = counts[this.focus] - 1;
      if (this.stepView.isDue(now)) this.draw(false);
      if (longer.length) this.tell();
    }

    /** @param {boolean} force also the step that is drawn already */
    draw(force) {
      if (this.step === this.stepView.index && !force) return;
      const { focus, step, steps } = this;
      this.root.classList.toggle("blank", !steps[step]?.parents.length);
      if (steps[step]) this.lanes[focus].mark(step);
      this.stepView.draw({ steps, index: step, costs: this.costs[focus], system: this.systems[focus]?.name });
    }

    listen() {
      this.at("scrub").addEventListener("input", () => this.go(Number(this.at("scrub").value)));
      this.at("back").addEventListener("click", () => this.go(this.step - 1));
      this.at("next").addEventListener("click", () => this.go(this.step + 1));
      this.at("play").addEventListener("click", () => this.toggle());
      onChoice(this.root, "focus", (lane) => this.pick(Number(lane)));
      keepDrawn(this.at("tree"), () => this.run && this.draw(true));
      /** @type {(keys: string[], words: string, actions: Record<string, () => void>) => void} */
      const add = (keys, words, actions) => addKeys(keys, words, actions, "race");
      add(["Space"], "play, pause, play again", { " ": () => this.toggle() });
      add(["←", "→"], "one step back or on", {
        ArrowLeft: () => this.go(this.step - 1),
        ArrowRight: () => this.go(this.step + 1),
      });
      add(["Home", "End"], "first or last step", { Home: () => this.go(0), End: () => this.go(Infinity) });
      add(["S"], "the step, told as a story; Escape leaves it", { s: () => this.slowStart.tellShown() });
      add(["Tab", "↑", "↓"], "in the tree, the mask or the burst: node after node", {});
      const { names, radios } = this.speeds;
      add(
        radios.map((_, index) => String(index + 1)),
        `speed: ${names.join(", ")}`,
        Object.fromEntries(radios.map((each, index) => [index + 1, () => each.click()])),
      );
    }
  }

  /**
   * @param {HTMLElement} element
   * @param {{ systems: Record<string, System>, parts: Parts, lanes: string[] }} value with the two lanes' systems by name
   * @param {{ look: Look }} server
   */
  function mountRace(element, { lanes, ...about }, server) {
    const root = /** @type {HTMLElement} */ (element.querySelector("[data-race]"));
    TreeRace.view = new RaceView(root, about, server.look);
    TreeRace.view.describe(lanes);
    TreeRace.controls = new RaceControls("#race-set");
    TreeRace.presence.watch((there) => TreeRace.view.strip.away(!there));
    for (const choice of ["chain", "full"]) TreeRace.view.at(`with-${choice}`).hidden = false;
    showInItsFonts(root);
  }

  return { RaceView, mountRace };
})();
