// The controls of the race as the walk sets them, and as it puts them back. Knows their values; nothing of pages.
window.TreeRace = window.TreeRace || {};

(function (T) {
  // `button` is hidden; a click on it hands the values of all controls, by name, to `take` and sets them to what that returns. One click at a
  // time: a second one would read the values before the first has set them.
  T.Controls = class {
    constructor(button) {
      Object.assign(this, { button, turns: [], taken: [], busy: false });
    }

    take(values) {
      let now = values;
      this.taken = this.turns.splice(0);
      for (const { turn } of this.taken) now = { ...now, ...turn(now) };
      return now;
    }

    settled() {
      requestAnimationFrame(() => {
        this.busy = false;
        this.taken.splice(0).forEach(({ done }) => done());
        this.begin();
      });
    }

    begin() {
      if (this.busy || !this.turns.length) return;
      this.busy = true;
      document.querySelector(this.button).click();
    }

    change(turn) {
      return new Promise((done) => {
        this.turns.push({ turn, done });
        this.begin();
      });
    }

    // Presses Race. While the last race is still being cancelled a press is not heard, so it is repeated until one is.
    async race() {
      const { run, root } = T.view;
      for (let tries = 0; tries < 100 && run === T.view.run && root.dataset.state !== "waiting"; tries++) {
        document.querySelector("#race-go").click();
        await new Promise((done) => setTimeout(done, 100));
      }
    }

    // Sets the controls as `wish` says; `memory` learns what they were before.
    set(wish, memory) {
      return this.change((now) => {
        for (const [name, value] of Object.entries(wish)) {
          if (!(name in memory)) memory[name] = { before: now[name] };
          memory[name].given = value;
        }
        return wish;
      });
    }

    // Puts back what is still as it was set; what the visitor changed since then stays.
    restore(memory) {
      return this.change((now) => {
        const own = Object.entries(memory).filter(([name, { given }]) => now[name] === given);
        return Object.fromEntries(own.map(([name, { before }]) => [name, before]));
      });
    }
  };
})(window.TreeRace);
