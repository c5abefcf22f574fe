// The strip between the lanes and the plots: who leads, how it ended, what is to be said. Knows words; where they come from is verdict.js.
"use strict";

TreeRace.raceStrip = (() => {
  const { finder, write } = TreeRace.elements;
  const { leadOf, verdictOf, writeTheSame } = TreeRace.verdict;

  const WAITING = "Waiting for the models …";

  class RaceStrip {
    /** @param {HTMLElement} root */
    constructor(root) {
      this.at = finder(root);
    }

    /**
     * @param {string} words
     * @param {string} kind
     * @param {string} outcome
     * @param {number | string} winner the lane whose colour the outcome has
     * @param {string} runs how often it was measured, and what disturbed that
     */
    say(words, kind = "", outcome = "", winner = 1, runs = "") {
      this.at("runs").textContent = runs;
      this.at("outcome").textContent = outcome;
      this.at("outcome").dataset.hue = winner;
      this.at("words").textContent = words;
      this.at("verdict").dataset.kind = kind;
    }

    /**
     * @param {string} words where the race stands among others, "" when the device is all its own
     * @param {boolean} isWaiting it has not begun
     * @param {boolean} [isOpen] it has not ended
     */
    stands(words, isWaiting, isOpen) {
      if (isWaiting) this.say(words || WAITING);
      else if (isOpen) this.say(words);
    }

    /** @param {boolean} begun whether there is a part of the race to look at */
    failed(begun) {
      if (begun) this.say("The race ended early. What was written so far stays.", "different");
      else this.say("Nothing was raced.");
    }

    /**
     * @param {[number, number]} tokens of the left and the right lane
     * @param {RacedSystem[]} systems
     * @param {{ lane: number, seconds: number, time: number } | null} finish the lane that alone has ended
     */
    lead(tokens, systems, finish) {
      const titles = systems.map((system) => system.title);
      const { hue, ratio, margin } = leadOf(tokens, titles, finish && { ...finish, same: writeTheSame(systems) });
      this.at("lead").dataset.hue = hue;
      write(this.at("ratio"), ratio);
      write(this.at("margin"), margin);
    }

    /**
     * @param {RaceMessage} result
     * @param {RacedSystem[]} systems
     */
    verdict(result, systems) {
      const lossy = systems.some((system) => system.guarantee === "lossy");
      const { words, kind, outcome, winner, runs } = verdictOf(result, lossy);
      this.say(words, kind, outcome, winner, runs);
    }
  }

  return { RaceStrip };
})();
