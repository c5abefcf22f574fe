// The slow start: a race begins with the story of its best rescue, once in a visit or when it is asked for. Knows the race view;
// draws nothing.

TreeRace.slowStart = (() => {
  const { isCalm, withStore } = TreeRace.elements;
  const { StoryView } = TreeRace.storyView;
  const { tellingOf, tells } = TreeRace.storyScript;

  const NAME = "treerace-told";
  const ENOUGH = 4; // steps of the lane among which the telling one is looked for, where the lane takes long
  const PATIENCE = 2500; // milliseconds that a live race may take until the telling step is looked for

  // What was told in this visit; a page from the disk may have no store.
  const told = () => withStore("sessionStorage", (store) => store.getItem(NAME)) ?? "";

  /** @param {"recorded" | "live"} kind; where nothing is kept, it is told again */
  const remember = (kind) => withStore("sessionStorage", (store) => store.setItem(NAME, `${told()} ${kind}`));

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
      this.view.strip.say("");
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

    /** @param {boolean} tells whether a story comes first, where motion is wanted */
    wait(tells) {
      this.waiting = tells && !isCalm();
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
      const told = {
        step: steps[index],
        before: trace.prompt + earlier.join(""),
        guarantee,
        causal: name.endsWith("!mask"),
      };
      this.at(index ? steps[index - 1].t : 0);
      this.story.tell(
        told,
        () => {
          this.at(steps[index].t);
          then();
        },
        asked,
      );
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
