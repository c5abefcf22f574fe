// What the walk sees of the race: whether it fits the page, the step that tells most, the step and the node that the visitor went to.
// Hears of it by the race's "change", and looks once in the frame after.

TreeRace.raceWatcher = (() => {
  const { inNextFrame } = TreeRace.elements;

  const PATIENCE_MS = 1500; // for a race that may be on its way, before one is begun

  class RaceWatcher {
    /** @type {string | null} the race that was there when the page was opened */
    run = null;
    /** @type {string | null} the step that the picture is of */
    shown = null;
    since = 0; // when the page was opened
    due = false; // a jump to the step that tells most
    asked = false; // for a race
    played = false; // when it last looked
    /** @type {Map<string, number>} tau of the races that were shown, by system and guesses */
    taus = new Map();
    /** @type {Map<string, { title: string, speedup: number }>} the last race on every size of model */
    gains = new Map();

    /** @type {number | null} the node that is pointed at, or was last */
    node = null;
    hears = false; // of the race, from the first page on

    /** @param {Walk} walk */
    constructor(walk) {
      this.walk = walk;
    }

    // A page is opened, which knows nothing of the race yet.
    begin() {
      if (!this.hears) this.hear();
      this.since = performance.now();
      this.run = TreeRace.view.run;
      this.due = Boolean(this.walk.page.tells);
      this.asked = false;
      this.shown = null;
      this.soon();
      setTimeout(this.soon, PATIENCE_MS + 1); // by then a race has come, or one is needed
    }

    soon = inNextFrame(() => this.look());

    look() {
      const { breaks, isOpen } = this.walk;
      if (!isOpen) return;
      if (breaks.on) return breaks.part();
      this.need();
      this.jump();
      this.follow();
      this.gain();
    }

    hear() {
      this.hears = true;
      const { pairs, view } = TreeRace;
      const { pointing } = view;
      view.addEventListener("change", this.soon);
      pairs.addEventListener("change", () => this.walk.isOpen && this.walk.page.choice && this.walk.draw());
      pointing.addEventListener("point", () => this.walk.isOpen && pointing.node !== null && this.point(pointing.node));
    }

    /** @param {number} node that the card's picture and the race's lights follow */
    point(node) {
      const { walk } = this;
      const step = TreeRace.view.steps[TreeRace.view.step];
      if (walk.breaks.on || !(node < step?.parents.length)) return;
      walk.did("node");
      walk.did("row");
      if (node === this.node) return;
      this.node = node;
      TreeRace.view.pointing.point(node);
      walk.draw();
    }

    // Keeps what a race gained that is over, by the size of its model.
    gain() {
      const { result, root, systems } = TreeRace.view;
      const size = result && root.dataset.state === "done" && TreeRace.pairs.titled(systems[1].trace.pair)?.size;
      if (!size || this.gains.get(size)?.speedup === result.speedup) return;
      this.gains.set(size, { title: systems[1].title, speedup: result.speedup });
      this.walk.draw();
    }

    // Whether the race has what the page is about.
    get fits() {
      const { run, systems, lanes } = TreeRace.view;
      const { tells } = this.walk.page;
      if (!run || !tells || systems.some(({ name }) => name.includes("!"))) return false;
      return lanes[1].steps.some((step) => tells(step) > 0);
    }

    // A page that needs a tree shows a recorded race with one where none is there: nothing that the visitor asks for has to wait for it.
    need() {
      const { page } = this.walk;
      const { about, run, root } = TreeRace.view;
      const patience = run ? 0 : PATIENCE_MS;
      const running = ["waiting", "racing"].includes(root.dataset.state ?? "");
      const coming = run !== this.run || running || performance.now() - this.since < patience;
      if (!page.tells || this.asked || this.fits || coming) return;
      this.asked = true;
      const isWanted = () => this.walk.page === page && !this.fits && !TreeRace.view.isLive;
      TreeRace.take.example(about.systems[this.walk.taught[0]].title, isWanted);
    }

    // To the step that tells most: at once in a race that was there, at its end in one that began on this page.
    jump() {
      const { view } = TreeRace;
      const { tells } = this.walk.page;
      if (!this.due || !tells || !this.fits) return;
      const whole = view.result?.start; // it came as one event, from a file or from before a break
      const over = view.root.dataset.state === "done" || (view.result && view.run === this.run);
      if (!whole && !over) return;
      this.due = false;
      const scores = view.lanes[1].steps.map(tells);
      view.pick(1, scores.indexOf(Math.max(...scores)));
      this.show();
    }

    // Keeps the picture at the step that is shown; a step that the visitor went to counts.
    follow() {
      const { view } = TreeRace;
      const played = view.playing || this.played;
      this.played = view.playing;
      if (this.shown === this.here) return;
      if (view.run !== this.run && !this.shown?.startsWith(String(view.run))) this.due = Boolean(this.walk.page.tells);
      if (this.shown !== null && !played) this.walk.did("step");
      this.show();
    }

    get here() {
      return `${TreeRace.view.run} ${TreeRace.view.focus} ${TreeRace.view.step}`;
    }

    show() {
      this.shown = this.here;
      const { systems, result } = TreeRace.view;
      if (this.fits && result) {
        const { title, trace } = systems[1];
        this.taus.set(`${title}, ${trace.nodes - 1} guesses`, result.lanes[1].tau);
      }
      this.node = null;
      this.walk.draw();
    }
  }

  return { RaceWatcher };
})();
