// The form that all screens share, from outside: writes into it, finds its Start, sets the race's controls and puts them back. Knows
// Gradio's elements by their ids, and values; nothing of who sets them.

TreeRace.form = (() => {
  const { findAll } = TreeRace.elements;

  /**
   * Writes into a Gradio text box as if it had been typed.
   * @param {string} selector
   * @param {string} text
   */
  function fill(selector, text) {
    const box = /** @type {HTMLTextAreaElement} */ (document.querySelector(selector));
    box.value = text;
    box.dispatchEvent(new Event("input", { bubbles: true }));
    box.scrollTop = 0;
  }

  const promptBox = () => /** @type {HTMLTextAreaElement} */ (document.querySelector("#prompt textarea"));

  /** @param {string} prompt that begins a new chat */
  function takePrompt(prompt) {
    TreeRace.chat?.drop();
    fill("#prompt textarea", prompt);
  }

  // What starts the shown screen.
  const goButton = () => findAll(document, ".go").find((go) => go.offsetParent);

  /** @param {string} selector of a button */
  function press(selector) {
    /** @type {HTMLElement | null} */ (document.querySelector(selector))?.click();
  }

  // Starts a race, from wherever its button is hidden; none while one is on its way.
  function pressRace() {
    if (!TreeRace.view.isLive) TreeRace.view.race.start();
  }

  const pressGo = () => goButton()?.click();

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

    // Puts back what is still as it was set; what the visitor changed since then stays.
    /** @param {Memory} memory */
    restore(memory) {
      return this.change((now) => {
        const own = Object.entries(memory).filter(([name, { given }]) => now[name] === given);
        return Object.fromEntries(own.map(([name, { before }]) => [name, before]));
      });
    }
  }

  return { fill, goButton, press, pressGo, pressRace, promptBox, takePrompt, RaceControls };
})();
