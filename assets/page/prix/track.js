// One track of the grand prix: place, name, course, figures. Knows its own steps; is told the time and its place.

TreeRace.track = (() => {
  const { copyOf, finder, write } = TreeRace.elements;
  const { Steps } = TreeRace.steps;
  const { needsMark } = TreeRace.systemNames;

  class Track extends Steps {
    /**
     * @param {HTMLTemplateElement} template
     * @param {{ title: string, idea: string, guarantee: Guarantee }} system
     */
    constructor(template, system) {
      super();
      this.root = copyOf(template);
      this.at = finder(this.root, "of=");
      this.root.dataset.guarantee = system.guarantee;
      this.at("name").textContent = system.title;
      this.at("mark").textContent = needsMark(system) ? "lossy" : "";
      this.root.title = system.idea;
      this.show(0, 1, 0);
    }

    /**
     * Tokens a second up to this time, its own finish at most.
     * @param {number} time
     */
    speedAt(time) {
      const count = this.stepsAt(time);
      const until = this.ended && count === this.steps.length ? this.lastTime : time;
      return count ? this.totals[count] / until : 0;
    }

    /**
     * What stands on the track at this time.
     * @param {number} time
     * @param {number} total tokens of the whole way
     * @param {number} pacer tokens that the baseline has then
     */
    show(time, total, pacer) {
      const { count, tokens, done, speed, tau, clock } = this.figuresAt(time);
      this.at("run").style.clipPath = `inset(0 ${100 - (100 * tokens) / total}% 0 0 round 4px)`;
      this.at("pacer").style.transform = `translateX(${(100 * pacer) / total}%)`;
      write(this.at("speed"), speed);
      write(this.at("tau"), tau);
      write(this.at("clock"), count ? `${done ? "⚑ " : ""}${clock}` : "–");
      this.root.classList.toggle("done", done);
    }

    /** @param {number} place 0 for none yet */
    place(place) {
      write(this.at("place"), place ? String(place) : "–");
      this.root.classList.toggle("leads", place === 1);
    }
  }

  return { Track };
})();
