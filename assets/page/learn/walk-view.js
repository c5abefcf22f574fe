// The guided walk: a card beside the race that goes from page to page, sets the controls, and sees what the visitor does.
// Asks the server for nothing but races; what the race shows is seen by its watcher.

TreeRace.walkView = (() => {
  const { goToScreen, read, screenRoot, showScreen, shownScreen, write } = TreeRace.screens;
  const { Breaks } = TreeRace.breaks;
  const { CurvePanel } = TreeRace.curvePanel;
  const { announceResize, button, finder, isCalm, make, whenThere } = TreeRace.elements;
  const { pressRace } = TreeRace.form;
  const { TYPING } = TreeRace.keys;
  const { insteadWords, onLacks, raceable } = TreeRace.systemNames;
  const { RaceWatcher } = TreeRace.raceWatcher;
  const { Spotlight } = TreeRace.spotlight;
  const { PAGES, START } = TreeRace.walkPages;
  const { PICTURES } = TreeRace.walkPictures;
  const { onRun } = TreeRace.runs;

  const narrow = window.matchMedia("(max-width: 900px)");

  /** @type {(selector: string) => HTMLElement | null} */
  const find = (selector) => document.querySelector(selector);
  const learnButton = () => find("button[data-learn]");

  class WalkView {
    index = 0; // of the page
    /** @type {WalkPage[]} */
    pages = [];
    /** @type {HTMLButtonElement[]} */
    dots = [];
    pair = ""; // that was chosen when the page was opened
    /** @type {Memory} what the controls were before */
    memory = {};
    /** @type {string | null} the right lane's system, as the walk has set it */
    right = null;
    /** @type {Set<WalkPage>} pages whose task was done */
    done = new Set();

    /**
     * @param {HTMLElement} element
     * @param {WalkAbout} about
     * @param {WalkServer} server
     */
    constructor(element, { breaks, taught }, server) {
      const part = finder(element);
      /** @type {HTMLElement} */
      this.root = part("walk");
      this.at = finder(this.root);
      this.taught = taught;
      this.light = new Spotlight(part("light"));
      this.watcher = new RaceWatcher(this);
      this.curve = new CurvePanel(part("curve"), server.load_recorded_curve, () => this.did("measure"));
      this.breaks = new Breaks(this.at("breaks"), breaks, (name) => this.broke(name));
      onLacks(() => this.isOpen && this.setRight());
      this.listen();
    }

    // The pages that this visitor has.
    lay() {
      this.pages = PAGES.filter(({ choice }) => !choice || TreeRace.pairs.offered.length);
      this.dots = this.pages.map(({ title }, index) => {
        const dot = button("", () => this.go(index));
        return Object.assign(dot, { ariaLabel: `Page ${index + 1}: ${title}`, title });
      });
      this.at("dots").replaceChildren(...this.dots.map((dot) => make("li", "", dot)));
    }

    get page() {
      return this.pages[this.index];
    }

    get isOpen() {
      return !this.root.hidden;
    }

    open(index = this.index) {
      showScreen("race");
      write({ learn: index + 1, screen: null }, true);
      this.memory = {};
      this.lay();
      this.root.hidden = false;
      this.laidOut(true);
      const [[{ prompt }]] = Object.values(TreeRace.pairs.gallery);
      TreeRace.controls.set({ ...START, prompt }, this.memory);
      this.go(index);
      this.at("body").focus({ preventScroll: true });
    }

    async close() {
      await this.breaks.mend();
      this.root.hidden = true;
      this.right = null;
      this.showCurve("");
      this.light.follow(null);
      this.laidOut(false);
      write({ learn: null });
      learnButton()?.focus();
      const { about, lanes } = TreeRace.view;
      for (const [index, side] of ["left", "right"].entries()) {
        const { chosen, mix } = lanes[index];
        const before = this.memory[side]?.before;
        lanes[index].chosen = about.systems[before] ? chosen : mix.parts; // a mix begins with these again
      }
      await TreeRace.controls.restore(this.memory);
      for (const lane of lanes) lane.card.open(false);
    }

    /** @param {boolean} open */
    laidOut(open) {
      screenRoot().toggleAttribute("data-learn", open);
      learnButton()?.setAttribute("aria-pressed", String(open));
      announceResize();
    }

    /** @param {string} name of a curve, "" for none */
    showCurve(name) {
      screenRoot().toggleAttribute("data-curve", Boolean(name));
      this.curve.show(name);
      announceResize();
    }

    /** @param {number} index */
    async go(index) {
      await this.breaks.mend();
      this.index = Math.max(0, Math.min(this.pages.length - 1, index));
      this.pair = TreeRace.pairs.name;
      const { title, text, task, view } = this.page;
      this.at("place").textContent = `Learn · ${this.index + 1} of ${this.pages.length}`;
      this.at("title").textContent = title;
      this.at("text").textContent = text;
      this.at("words").textContent = task.words;
      this.at("back").disabled = this.index === 0;
      this.at("next").textContent = this.index === this.pages.length - 1 ? "Finish" : "Next ›";
      this.at("body").scrollTop = 0;
      this.showCurve(this.page.curve ?? "");
      this.tick();
      this.begin();
      this.breaks.show(this.page.breaks || []);
      write({ learn: this.index + 1 });
      if (view) this.choose(view);
      if (narrow.matches) find(this.page.lit)?.scrollIntoView({ behavior: isCalm() ? "auto" : "smooth" });
      await this.setRight();
    }

    // The right lane races the tree that this pair has; the card says so where it is not the usual one.
    setRight() {
      const right = raceable(this.taught);
      this.at("instead").textContent = insteadWords(this.taught, TreeRace.view.about.systems);
      const shape = right === this.right ? {} : shapeOf(right);
      this.right = right;
      return TreeRace.controls.set({ right, ...shape }, this.memory);
    }

    // What the page knows of the race so far: nothing.
    begin() {
      this.watcher.node = null;
      this.shine();
      this.watcher.begin();
    }

    shine() {
      if (this.breaks.on) this.light.follow(find("[data-lanes]"), [find("[data-verdict]")]);
      else this.light.follow(find(this.page.lit), (this.page.task.needs || []).map(find));
    }

    /** @param {string} view */
    choose(view) {
      const choice = find(`[data-panel] [name=view][value=${view}]`);
      if (choice instanceof HTMLInputElement && !choice.checked) choice.click();
    }

    draw() {
      const { view } = TreeRace;
      const step = view.steps[view.step];
      const picture = PICTURES[this.page.picture ?? ""];
      const home = this.at("picture");
      const held = [...home.querySelectorAll("button, [tabindex]")].indexOf(document.activeElement);
      const node = this.watcher.node ?? step?.path.at(-1) ?? 0;
      const onNode = (/** @type {number} */ at) => this.watcher.point(at);
      const { gains, taus } = this.watcher;
      const about = { steps: view.steps, taus, node, onNode, pairs: TreeRace.pairs.offered, gains };
      const isDue = this.page.choice || (step && this.watcher.fits);
      const hasStory = !this.page.curve && step?.parents.length > 1;
      if (!view.slowStart.isTelling) this.at("story").hidden = !hasStory; // else the focus could not come back
      home.replaceChildren(...(picture && isDue ? picture(step, about) : []));
      if (held >= 0) home.querySelectorAll("button, [tabindex]")[held]?.focus({ preventScroll: true });
    }

    /**
     * @param {string} what
     * @param {unknown} [detail]
     */
    did(what, detail) {
      if (!this.isOpen) return;
      const { on, when } = this.page.task;
      if (on !== what || (when && !when(detail, this)) || this.done.has(this.page)) return;
      this.done.add(this.page);
      this.tick();
    }

    tick() {
      this.at("done").textContent = this.done.has(this.page) ? "done ✓" : "";
      for (const [index, dot] of this.dots.entries()) {
        dot.parentElement?.classList.toggle("done", this.done.has(this.pages[index]));
        if (index === this.index) dot.setAttribute("aria-current", "step");
        else dot.removeAttribute("aria-current");
      }
    }

    /** @param {string | null} name */
    broke(name) {
      this.root.toggleAttribute("data-breaking", Boolean(name));
      screenRoot().toggleAttribute("data-broken", Boolean(name));
      if (name) this.did("break");
      else this.begin();
      this.breaks.show(this.page.breaks || []);
      this.shine();
      this.at("breaks").querySelector("[data-name]")?.focus({ preventScroll: true });
    }

    // Goes on, or closes behind the last page.
    next() {
      if (this.index < this.pages.length - 1) this.go(this.index + 1);
      else this.close();
    }

    listen() {
      this.at("next").addEventListener("click", () => this.next());
      this.at("back").addEventListener("click", () => this.go(this.index - 1));
      this.at("close").addEventListener("click", () => this.close());
      this.at("story").addEventListener("click", () => TreeRace.view.slowStart.tellShown());
      this.at("walk-race").addEventListener("click", pressRace);
      onRun("race", (message) => {
        if (message.start && !message.recorded && !this.breaks.on) this.did("race", message.systems);
      });
      document.addEventListener("change", ({ target }) => {
        if (target instanceof HTMLInputElement && target.name === "view") this.did("view", target.value);
      });
      document.addEventListener("click", ({ target }) => target instanceof Element && this.clicked(target));
      document.addEventListener("keydown", (event) => this.key(event), { capture: true }); // before the stage leaves at Escape
    }

    /** @param {Element} target */
    clicked(target) {
      if (target.closest("button[data-learn]")) this.called();
      const burst = target.closest(".lane .burst");
      if (burst) this.did("burst", burst.closest(".lane.right") ? 1 : 0);
    }

    // The address names a page of the walk, or none.
    follow() {
      const index = Number(read("learn")) - 1;
      if (!this.isOpen && index >= 0) this.open(index);
      else if (this.isOpen && index < 0 && shownScreen() === "race") this.close();
      else if (this.isOpen && index >= 0 && index !== this.index) this.go(index);
    }

    // The button in the head: opens, comes back from another screen, or closes.
    called() {
      if (!this.isOpen) this.open();
      else if (shownScreen() !== "race") goToScreen("race");
      else this.close();
    }

    /** @param {KeyboardEvent} event */
    key(event) {
      const { target } = event;
      if (!this.isOpen || shownScreen() !== "race" || !(target instanceof Element) || target.closest(TYPING)) return;
      /** @type {Record<string, () => unknown>} */
      const actions = {
        PageDown: () => this.index < this.pages.length - 1 && this.go(this.index + 1),
        PageUp: () => this.index > 0 && this.go(this.index - 1),
        Escape: () => this.root.contains(target) && !("stage" in screenRoot().dataset) && this.close(),
      };
      const action = actions[event.key];
      if (!action) return;
      if (event.key !== "Escape") event.preventDefault();
      action();
    }
  }

  /** @param {string} name */
  function shapeOf(name) {
    const { depth, width, nodes } = TreeRace.view.about.systems[name];
    return { depth, width, nodes, untouched: "" };
  }

  /** @param {ConstructorParameters<typeof WalkView>} given */
  function mountWalk(...given) {
    const walk = new WalkView(...given);
    TreeRace.walk = walk;
    const wanted = Number(read("learn"));
    if (!Number.isInteger(wanted) || wanted < 1) return;
    whenThere(
      () => TreeRace.view && find("#race-set"),
      () => walk.follow(),
    );
  }

  return { WalkView, mountWalk };
})();
