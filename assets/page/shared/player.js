// Plays races on their lanes' clocks, at a pace that people can follow. Knows time, radios and how far the clocks may run; nothing of
// what is shown.

TreeRace.player = (() => {
  const { make } = TreeRace.elements;
  const { LEEWAY } = TreeRace.steps;
  const WATCHED = 10; // seconds on the page that a race takes at the speed 1×
  const REAL = "real time";
  /** @type {Record<string, number>} how many times as fast as what can be followed */
  const SPEEDS = { "½×": 0.5, "1×": 1, "2×": 2, [REAL]: 0 };
  const BEGINNING = 0.4; // of the mean speed, at a race's start; with GROWTH the mean is 1
  const GROWTH = 1.61;
  const LONGEST = 0.25; // seconds of a frame; a page that was hidden goes on where it was

  /** @param {number} value above 1, of which two digits can be said */
  function sayable(value) {
    const unit = 10 ** Math.max(0, Math.floor(Math.log10(value)) - 1);
    return String(Math.round(value / unit) * unit);
  }

  /** @param {number} rate seconds on the page for each second on the clocks */
  function speedWords(rate) {
    if (Math.abs(rate - 1) < 0.05) return REAL;
    const pace = rate > 1 ? `about 1/${sayable(rate)} of real time` : `about ${sayable(1 / rate)} times real time`;
    return `${pace}; clocks as measured`;
  }

  // How much faster than on average a race is played, by the share of it that is over: faster and faster, to its end.
  /** @param {number} share */
  const haste = (share) => BEGINNING + GROWTH * Math.max(0, Math.min(1, share));

  class Speeds {
    names = Object.keys(SPEEDS);
    fitting = 1; // seconds on the page for each second on the clocks, so that the race can be followed

    /**
     * Radios of that name in `home`; `words` takes what the chosen one means.
     * @param {HTMLElement} home
     * @param {string} name
     * @param {HTMLElement} words
     */
    constructor(home, name, words) {
      this.words = words;
      this.radios = this.names.map((speed) => {
        const radio = make("input");
        Object.assign(radio, { type: "radio", name, value: speed, checked: speed === "1×" });
        radio.addEventListener("change", () => this.say());
        home.append(make("label", "", radio, make("span", "", speed)));
        return radio;
      });
    }

    get chosen() {
      return this.radios.find((each) => each.checked)?.value ?? REAL;
    }

    // Seconds on the page for each second on the clocks, over the whole race.
    get rate() {
      return this.chosen === REAL ? 1 : this.fitting / SPEEDS[this.chosen];
    }

    /** @param {number} share of the race that is over */
    rateAt(share) {
      return this.chosen === REAL || this.fitting === 1 ? this.rate : this.rate / haste(share);
    }

    // The pace at which the race that begins can be followed.
    /** @param {number} rate seconds on the page for each second on the clocks */
    suggest(rate) {
      this.fitting = rate;
      this.say();
    }

    /**
     * The pace that a message tells, if it tells one. At a race's end a stall is known, so it may play faster; slower only behind a story.
     * @param {{ start?: unknown, slowdown?: number }} message
     * @param {boolean} playing
     */
    take({ start, slowdown = 0 }, playing) {
      if (slowdown && (start || !playing || slowdown < this.fitting)) this.suggest(slowdown);
    }

    say() {
      this.words.textContent = speedWords(this.rate);
    }
  }

  class Player {
    /**
     * `race.show(animate, now)` draws the time that is reached, `race.ended()` is called when a played race is over.
     * @param {{ fitting: number, rateAt(share: number): number }} speeds
     * @param {{ horizon: number, isOver: boolean, show(animate: boolean, now: number): void, ended(): void, changed(): void }} race
     */
    constructor(speeds, race) {
      this.speeds = speeds;
      this.race = race;
      this.time = 0; // seconds on the lanes' clocks
      this.playing = false;
      this.waiting = false; // for a frame
      /** @type {number | null} when the last frame was played */
      this.last = null;
    }

    reset() {
      this.time = 0;
      this.playing = false;
    }

    // All has arrived, and the clocks have reached it.
    get atEnd() {
      return this.race.isOver && this.time >= this.race.horizon - LEEWAY;
    }

    play() {
      this.playing = true;
      this.race.changed();
      this.wait();
    }

    pause() {
      this.playing = false;
      this.race.changed();
    }

    again() {
      this.time = 0;
      this.play();
    }

    toggle() {
      if (this.playing) this.pause();
      else if (this.atEnd) this.again();
      else this.play();
    }

    /** @param {number} time at which the race stands still */
    seek(time) {
      this.time = Math.min(time, this.race.horizon);
      this.pause();
      this.race.show(false, performance.now());
    }

    /**
     * Stands still where one of these steps was done, the first or the last at most.
     * @param {{ t: number }[]} steps
     * @param {number} index
     */
    scrub(steps, index) {
      const at = Math.max(0, Math.min(steps.length - 1, index));
      if (steps[at]) this.seek(steps[at].t);
    }

    // To the end, without playing there.
    skip() {
      this.time = this.race.horizon;
      this.race.show(false, performance.now());
      this.race.ended();
    }

    wait() {
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame((now) => this.frame(now));
    }

    /** @param {number} now milliseconds, as the browser counts frames */
    frame(now) {
      this.waiting = false;
      const passed = Math.min(LONGEST, (now - (this.last ?? now)) / 1000);
      this.last = this.playing ? now : null;
      if (!this.playing) return;
      const whole = Math.max(this.race.horizon, WATCHED / this.speeds.fitting); // seconds on the clocks, as far as is known
      this.time = Math.min(this.race.horizon, this.time + passed / this.speeds.rateAt(this.time / whole));
      this.race.show(true, now);
      if (this.atEnd) this.race.ended();
      this.wait(); // also when it has ended: the next frame forgets this one
    }
  }

  return { Speeds, Player, haste, speedWords };
})();
