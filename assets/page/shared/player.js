// How fast a race is played: the four speeds, what they mean in words, and the clocks' time that passes. Knows radios; nothing of races.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const SPEEDS = { "0.1×": 10, "0.25×": 4, "1×": 1, "4×": 0.25 }; // seconds on the page for each second on the clocks
  const LONGEST = 0.25; // seconds of a frame; a page that was hidden goes on where it was

  T.Pace = class {
    // Radios of that name in `home`, the first one chosen; `words` takes what the chosen one means.
    constructor(home, name, words) {
      this.words = words;
      this.chosen = false; // by the visitor
      this.radios = Object.entries(SPEEDS).map(([speed, value], index) => {
        const radio = Object.assign(document.createElement("input"), { type: "radio", name, value, checked: !index });
        radio.addEventListener("change", () => {
          this.chosen = true;
          this.say();
        });
        home.append(T.make("label", "", radio, T.make("span", "", speed)));
        return radio;
      });
    }

    get rate() {
      return Number(this.radios.find((each) => each.checked).value);
    }

    // The speed for a race that begins, unless the visitor has chosen one.
    suggest(rate) {
      if (!this.chosen) this.radios.find((each) => Number(each.value) === rate).checked = true;
      this.say();
    }

    say() {
      const { rate } = this;
      const slow = "slow motion, clocks show the measured time";
      this.words.textContent = rate === 1 ? "real time" : rate > 1 ? slow : "four times as fast, clocks as measured";
    }

    // Seconds on the clocks since the frame before.
    passed(now) {
      const seconds = Math.min(LONGEST, (now - (this.last ?? now)) / 1000);
      this.last = now;
      return seconds / this.rate;
    }
  };
})(window.TreeRace);
