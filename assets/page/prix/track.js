// One track of the grand prix: place, name, course, figures; and who is first, second, third, and who won. Whoever is apart by less than
// clocks can tell is level. A track knows its own steps; it is told the time and its place.

TreeRace.track = (() => {
  const { copyOf, finder, write } = TreeRace.elements;
  const { asNumber, isLevel } = TreeRace.numbers;
  const { Steps } = TreeRace.steps;
  const { needsMark } = TreeRace.systemNames;

  /** @param {number[]} speeds by which each gets its place, behind all that are clearly faster; 0 without a speed */
  function placesOf(speeds) {
    return speeds.map((speed) => {
      const ahead = speeds.filter((other) => other > speed && !isLevel(other / speed));
      return speed ? 1 + ahead.length : 0;
    });
  }

  /**
   * @param {string[]} titles
   * @param {LaneFigures[]} lanes the first one is plain decoding
   */
  function winnerWords(titles, lanes) {
    const speeds = lanes.map((lane) => lane.speedup);
    const most = Math.max(...speeds);
    const leaders = placesOf(speeds).flatMap((place, lane) => (place === 1 ? [lane] : []));
    const names = leaders.map((lane) => titles[lane]);
    if (leaders.length > 1) {
      const pure = leaders.every((lane) => lane === 0 || !/^(lossy|false)$/.test(String(lanes[lane].identical)));
      const but = pure ? "" : " Not all of them wrote the right text.";
      return `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]} are level: up to ${asNumber(most, 1)}× plain decoding.${but}`;
    }
    const [first = 0] = leaders;
    return first ? praise(titles[first], lanes[first]) : "Plain decoding was the fastest.";
  }

  /**
   * What is said of the fastest, which is no victory where the text is another one.
   * @param {string} title
   * @param {LaneFigures} lane
   */
  function praise(title, { speedup, identical }) {
    const ratio = `${asNumber(speedup, 1)}×`;
    if (identical === "lossy") return `${title} is first with ${ratio}, but lossy.`;
    if (identical === false) return `${title} is first with ${ratio}, but its text is wrong.`;
    return `${title} wins: ${ratio} plain decoding.`;
  }

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

    /** @param {number} time up to which tokens a second count, its own finish at most */
    speedAt(time) {
      const count = this.stepsAt(time);
      const until = this.ended && count === this.steps.length ? this.lastTime : time;
      return count ? this.totals[count] / until : 0;
    }

    /**
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

  return { placesOf, winnerWords, Track };
})();
