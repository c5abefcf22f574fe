// The controls of the race as the walk, the lab and a card set them, and as they are put back. Knows their values; nothing of who sets them.

TreeRace.raceControls = (() => {
  const { press } = TreeRace.form;

  // One click of `button` at a time: a second one would read the controls' values before the first has set them.
  class RaceControls {
    /** @typedef {{ turn: (now: Settings) => Settings, done: () => void }} Turn */
    /** @type {Turn[]} what the next click changes */
    turns = [];
    /** @type {Turn[]} what the last click has changed */
    taken = [];
    busy = false;

    /** @param {string} button hidden; its click hands the values of all controls to `take` and sets them to what that returns */
    constructor(button) {
      this.button = button;
    }

    /** @param {Settings} values of all controls */
    take(values) {
      let now = values;
      this.taken = this.turns.splice(0);
      for (const { turn } of this.taken) now = { ...now, ...turn(now) };
      return now;
    }

    settled() {
      requestAnimationFrame(() => {
        this.busy = false;
        for (const { done } of this.taken.splice(0)) done();
        this.begin();
      });
    }

    begin() {
      if (this.busy || !this.turns.length) return;
      this.busy = true;
      press(this.button);
    }

    /**
     * @param {(now: Settings) => Settings} turn
     * @returns {Promise<void>} done when the controls are set
     */
    change(turn) {
      return new Promise((done) => {
        this.turns.push({ turn, done });
        this.begin();
      });
    }

    /**
     * Sets the controls as `wish` says; `memory` learns what they were before. Another prompt begins a new chat.
     * @param {Settings} wish
     * @param {Memory} memory
     */
    set(wish, memory) {
      if ("prompt" in wish) TreeRace.chat?.drop();
      return this.change((now) => {
        for (const [name, value] of Object.entries(wish)) {
          memory[name] ??= { before: now[name], given: value };
          memory[name].given = value;
        }
        return wish;
      });
    }

    /**
     * Puts back what is still as it was set; what the visitor changed since then stays.
     * @param {Memory} memory
     */
    restore(memory) {
      return this.change((now) => {
        const own = Object.entries(memory).filter(([name, { given }]) => now[name] === given);
        return Object.fromEntries(own.map(([name, { before }]) => [name, before]));
      });
    }
  }

  return { RaceControls };
})();
