// The story of one step over the race: played, paused, scrubbed, left at any time; and when it is told. The story knows one step; its slow
// start knows the race view.

TreeRace.storyView = (() => {
  const { draw, finder, isCalm, withStore, write } = TreeRace.elements;
  const { Player } = TreeRace.player;
  const { StoryPointing, Tip } = TreeRace.pointing;
  const { actor } = TreeRace.storyParts;
  const { drawStoryCache, drawStoryMask } = TreeRace.storyRows;
  const { scriptOf, tellingOf, tells } = TreeRace.storyScript;
  const { drawStoryTree } = TreeRace.storyTree;
  const { plainWidth } = TreeRace.numbers;

  const NARROW = 640; // pixels; below them the pictures stand below each other
  const STILL = 0.05; // seconds before a scene's end, where its picture is whole

  const NAME = "treerace-told";
  const ENOUGH = 4; // steps of the lane among which the telling one is looked for, where the lane takes long
  const PATIENCE = 2500; // milliseconds that a live race may take until the telling step is looked for

  // What was told in this visit; a page from the disk may have no store.
  const told = () => withStore("sessionStorage", (store) => store.getItem(NAME)) ?? "";

  /** @param {"recorded" | "live"} kind; where nothing is kept, it is told again */
  const remember = (kind) => withStore("sessionStorage", (store) => store.setItem(NAME, `${told()} ${kind}`));

  // A step, the text so far, what its system promises, and whether its mask is broken.
  /** @typedef {{ step: Step, before: string, guarantee: Guarantee, causal: boolean }} Told */

  /**
   * Where everything stands, in pixels of the stage.
   * @param {number} width
   * @param {number} height
   */
  function placesOf(width, height) {
    const narrow = width < NARROW;
    const small = Math.max(13, Math.min(26, width / (narrow ? 26 : 68)));
    const size = narrow ? width / 17 : Math.min(width / 34, height / 11);
    const top = 2.1 * size;
    const strip = Math.max(5.2 * small, 0.13 * height);
    const line = { x: 2, y: 0, width: width - 4, height: top };
    const cache = { x: 2, y: height - strip, width: width - 4, height: strip };
    const room = height - top - strip - small;
    if (narrow) {
      const tree = { x: 0, y: top, width, height: 0.58 * room };
      const mask = { x: 2, y: top + 0.62 * room, width: width - 4, height: 0.38 * room };
      return { small, size, largest: Math.max(13, width / 24), line, cache, tree, mask };
    }
    const tree = { x: 0, y: top, width: 0.64 * width, height: room };
    const mask = { x: 0.69 * width, y: top, width: 0.31 * width - 2, height: room };
    return { small, size, largest: Math.min(width / 44, height / 14), line, cache, tree, mask };
  }

  class StoryView {
    /** @type {Told | null} */
    told = null;
    /** @type {ReturnType<typeof scriptOf> | null} */
    script = null;
    /** @type {((time: number) => void)[]} */
    actors = [];
    /** @type {() => void} */
    after = () => {};

    /** @param {HTMLElement} race the screen that the story covers */
    constructor(race) {
      this.race = race;
      /** @type {HTMLElement} */
      this.root = finder(race)("story");
      this.at = finder(this.root, "story-");
      /** @type {HTMLElement} */
      this.stage = this.at("stage");
      this.player = new Player({ fitting: 1, rateAt: () => 1 }, this); // in seconds of the story
      this.pointing = new StoryPointing(this.stage, new Tip(this.root), () => this.told?.step);
      this.at("skip").addEventListener("click", () => this.leave());
      this.at("play").addEventListener("click", () => this.toggle());
      this.at("scrub").addEventListener("input", () => this.player.seek(Number(this.at("scrub").value)));
      document.addEventListener("keydown", (event) => this.key(event), { capture: true }); // before the race's own keys
      new ResizeObserver(() => this.isOpen && this.build()).observe(this.stage);
      document.fonts.addEventListener("loadingdone", () => this.isOpen && this.build()); // words were measured in another face
    }

    get isOpen() {
      return this.told !== null;
    }

    /**
     * @param {Told} told
     * @param {boolean} asked by the visitor, who then has the keys in it
     * @param {() => void} then called when it is over or left, not when something else takes its place
     */
    tell(told, asked, then) {
      this.told = told;
      this.after = then;
      this.script = scriptOf(told.step, told.guarantee);
      this.root.hidden = false;
      this.covers(true);
      this.at("scrub").max = this.script.length;
      this.player.reset();
      this.at("words").setAttribute("aria-live", asked ? "polite" : "off");
      this.build();
      if (asked) this.at("play").focus({ preventScroll: true });
      if (isCalm()) this.player.seek(this.stillAfter(0));
      else this.player.play();
    }

    /** @param {boolean} covered nothing below can be reached */
    covers(covered) {
      for (const part of this.race.children) if (part !== this.root) part.toggleAttribute("inert", covered);
      this.race.toggleAttribute("data-telling", covered);
    }

    // Ends without a word: something else is shown.
    close() {
      if (!this.isOpen) return;
      this.pointing.point(null);
      this.told = null;
      this.player.reset();
      this.covers(false);
      this.root.hidden = true;
      this.stage.replaceChildren();
    }

    leave() {
      const { after } = this;
      this.close();
      after();
    }

    toggle() {
      const { player } = this;
      if (player.playing) player.pause();
      else if (!isCalm()) player.play();
      else if (player.time >= this.horizon - 2 * STILL) this.leave();
      else player.seek(this.stillAfter(player.time));
    }

    isOver = true; // all of it is there

    get horizon() {
      return this.script?.length ?? 0;
    }

    ended() {
      this.leave();
    }

    // When each picture is whole.
    get stills() {
      return this.script?.scenes.map((scene) => scene.to - STILL) ?? [];
    }

    /** @param {number} time */
    stillAfter(time) {
      return this.stills.find((still) => still > time + STILL / 2) ?? this.horizon - STILL;
    }

    build() {
      const { told, script, stage } = this;
      const [width, height] = [stage.clientWidth, stage.clientHeight];
      if (!told || !script || !width || !height) return;
      const { fontFamily } = getComputedStyle(stage);
      /** @type {(text: string, size: number, weight?: number) => number} */
      const measure = (text, size, weight = 700) => plainWidth(text, `${weight} ${size}px ${fontFamily}`);
      const { small, size, largest, line, tree, mask, cache } = placesOf(width, height);
      const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
      stage.replaceChildren(svg);
      const { step, before, causal } = told;
      this.actors = [];
      /** @type {StoryStage["animate"]} */
      const animate = (...given) => this.actors.push(actor(...given));
      const drawn = { svg, step, script, before, causal, size, largest, small, measure, animate };
      const judgedAt = drawStoryTree(drawn, line, tree);
      drawStoryMask(drawn, judgedAt, mask);
      drawStoryCache(drawn, judgedAt, cache);
      this.pointing.light();
      this.show();
    }

    show() {
      const { time } = this.player;
      for (const act of this.actors) act(time);
      const scene = this.script?.scenes.findLast(({ from }) => from <= time);
      if (scene) write(this.at("words"), scene.words);
      this.at("scrub").value = time;
      this.at("scrub").setAttribute("aria-valuetext", scene?.words ?? "");
    }

    // The next node or the last one, of which something is said.
    /** @param {number} by */
    point(by) {
      this.player.pause();
      this.pointing.move(by);
    }

    // What the button does next.
    changed() {
      const still = isCalm() ? ["›", "Next picture"] : ["▶", "Play the story"];
      const [sign, name] = this.player.playing ? ["❚❚", "Pause the story"] : still;
      this.at("play").textContent = sign;
      this.at("play").setAttribute("aria-label", name);
    }

    /** @param {KeyboardEvent} event */
    key(event) {
      const { target, key } = event;
      if (!this.isOpen || !this.root.getClientRects().length || event.ctrlKey || event.metaKey || event.altKey) return;
      if (target instanceof Element && (target.closest(TreeRace.keys.TYPING) || document.querySelector("dialog[open]")))
        return;
      const { time } = this.player;
      const onButton = target instanceof Element && target.closest("button, [role=button], summary");
      /** @type {Record<string, (() => void) | false>} */
      const actions = {
        Escape: () => this.leave(),
        " ": !onButton && (() => this.toggle()),
        ArrowRight: () => this.player.seek(this.stillAfter(time)),
        ArrowLeft: () => this.player.seek(this.stills.findLast((still) => still < time - STILL / 2) ?? 0),
        ArrowDown: () => this.point(1),
        ArrowUp: () => this.point(-1),
      };
      const action = actions[key];
      if (!action) return;
      event.preventDefault();
      event.stopPropagation();
      action();
    }
  }

  // A race begins with the story of its best rescue, once in a visit or when it is asked for.
  class SlowStart {
    waiting = false; // for the steps among which one is told
    since = 0; // when it began to wait, in milliseconds

    /** @param {RaceView} view */
    constructor(view) {
      this.view = view;
      this.story = new StoryView(view.root);
      view.at("tell").addEventListener("click", () => this.tellShown());
    }

    get isTelling() {
      return this.story.isOpen;
    }

    // The race begins: at once, or with a story of the step that tells most.
    begin() {
      this.view.strip.say({});
      this.view.root.dataset.state = "racing";
      this.wait(!told().includes(this.kind) && this.view.systems.every(({ guarantee }) => guarantee !== "text"));
    }

    /** @returns {"live" | "recorded"} */
    get kind() {
      return this.view.recorded === null ? "live" : "recorded";
    }

    // The race from its start, with the story again.
    again() {
      this.view.player.reset();
      this.wait(true);
    }

    /** @param {boolean} isTold whether a story comes first, where motion is wanted */
    wait(isTold) {
      this.waiting = isTold && !isCalm();
      this.since = performance.now();
      if (this.waiting) this.look();
      else this.view.player.play();
    }

    // More steps have arrived, or all.
    look() {
      const { steps, result, lanes, focus } = this.view;
      const isLong = steps.length >= ENOUGH && performance.now() - this.since > PATIENCE;
      if (!this.waiting || !(result || lanes[focus].ended || isLong)) return;
      this.waiting = false;
      const index = tellingOf(steps);
      if (index < 0) return this.view.player.play();
      this.tell(index, false, () => {
        remember(this.kind);
        this.view.player.reset();
        this.view.player.play();
      });
    }

    // The step that is shown, or the next one with a guess; the race goes on afterwards if it was playing.
    tellShown() {
      const { view } = this;
      const from = Math.max(0, view.step);
      const ahead = view.steps.findIndex((step, index) => index >= from && tells(step) > 0);
      const index = ahead >= 0 ? ahead : view.steps.findLastIndex((step) => tells(step) > 0);
      if (index < 0) return;
      const { playing } = view;
      const asker = document.activeElement;
      if (playing) view.player.pause();
      this.tell(index, true, () => {
        if (asker instanceof HTMLElement) asker.focus({ preventScroll: true });
        if (playing) view.player.play();
        else view.draw(true);
      });
    }

    /**
     * Tells a step of the lane whose trees are drawn. Behind it the race stands at the step before, and then at the step itself.
     * @param {number} index
     * @param {boolean} asked
     * @param {() => void} then
     */
    tell(index, asked, then) {
      const { view } = this;
      const { steps, focus } = view;
      const { trace, guarantee, name } = view.systems[focus];
      const earlier = steps.slice(0, index).flatMap((step) => step.pieces);
      const before = trace.prompt + earlier.join("");
      this.at(index ? steps[index - 1].t : 0);
      this.story.tell({ step: steps[index], before, guarantee, causal: name.endsWith("!mask") }, asked, () => {
        this.at(steps[index].t);
        then();
      });
    }

    /** @param {number} time on the lanes' clocks */
    at(time) {
      this.view.player.time = time;
      this.view.show(false, performance.now());
    }

    // Something else is shown now.
    cancel() {
      this.waiting = false;
      this.story.close();
    }
  }

  return { SlowStart };
})();
