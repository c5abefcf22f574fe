// Plays races on their lanes' clocks, at one of four speeds. Knows time, radios and how far the clocks may run; nothing of what is shown.
"use strict";

TreeRace.player = (() => {
  const { make } = TreeRace.elements;
  const { LEEWAY } = TreeRace.steps;
  const SPEEDS = { "0.1×": 10, "0.25×": 4, "1×": 1, "4×": 0.25 }; // seconds on the page for each second on the clocks
  const LONGEST = 0.25; // seconds of a frame; a page that was hidden goes on where it was

  /**
   * What a speed means, in words.
   * @param {number} rate
   */
  function speedWords(rate) {
    if (rate === 1) return "real time";
    return rate > 1 ? "slow motion, clocks show the measured time" : "four times as fast, clocks as measured";
  }

  class Speeds {
    /**
     * Radios of that name in `home`, the first one chosen; `words` takes what the chosen one means.
     * @param {HTMLElement} home
     * @param {string} name
     * @param {HTMLElement} words
     */
    constructor(home, name, words) {
      this.words = words;
      this.chosen = false; // by the visitor
      this.radios = Object.entries(SPEEDS).map(([speed, rate], index) => {
        const radio = make("input");
        Object.assign(radio, { type: "radio", name, value: rate, checked: !index });
        radio.addEventListener("change", () => {
          this.chosen = true;
          this.say();
        });
        home.append(make("label", "", radio, make("span", "", speed)));
        return radio;
      });
    }

    get names() {
      return Object.keys(SPEEDS);
    }

    get rate() {
      return Number(this.radios.find((each) => each.checked)?.value);
    }

    set rate(rate) {
      for (const radio of this.radios) radio.checked = Number(radio.value) === rate;
    }

    /**
     * The speed for a race that begins, unless the visitor has chosen one.
     * @param {number} rate
     */
    suggest(rate) {
      if (!this.chosen) this.rate = rate;
      this.say();
    }

    say() {
      this.words.textContent = speedWords(this.rate);
    }
  }

  class Player {
    /**
     * `race.show(animate, now)` draws the time that is reached, `race.ended()` is called when a played race is over.
     * @param {{ rate: number }} speeds
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

    /**
     * Stands still at this time.
     * @param {number} time
     */
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
      this.time = Math.min(this.race.horizon, this.time + passed / this.speeds.rate);
      this.race.show(true, now);
      if (this.atEnd) this.race.ended();
      this.wait(); // also when it has ended: the next frame forgets this one
    }
  }

  return { Speeds, Player, speedWords };
})();
