// The strip between the lanes and the plots: who leads, how it ended, what is to be said. Knows words; where they come from is verdict.js.

TreeRace.raceStrip = (() => {
  const { branchWords } = TreeRace.stepWords;
  const { finder, write } = TreeRace.elements;
  const { refuseUnheard } = TreeRace.runs;
  const { leadOf, verdictOf, writeTheSame } = TreeRace.verdict;

  /** @type {Record<RunEnd, [words: string, kind?: string]>} */
  const ENDS = {
    refused: ["Nothing was raced."],
    withdrawn: ["Pick a prompt and press Race."],
    failed: ["The race ended early. What was written so far stays.", "early"],
    stopped: ["Stopped. Press Race to start again, or look at the steps so far."],
    lost: ["Part of the race was lost on its way here. Press Race again.", "early"],
  };

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
      this.at("runs").textContent = this.at("runs").title = runs;
      this.at("outcome").textContent = outcome;
      this.at("outcome").dataset.hue = winner;
      this.at("words").textContent = words;
      this.at("verdict").dataset.kind = kind;
    }

    /** @param {boolean} gone the server does not answer, so that a run of which it has not told will not begin */
    away(gone) {
      this.at("away").hidden = !gone;
      if (gone) refuseUnheard();
    }

    /** @param {RunEnd} how a race ended without its result */
    ended(how) {
      this.say(...ENDS[how]);
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
     * @param {Step[]} steps of the lane whose trees are drawn
     */
    verdict(result, systems, steps) {
      const lossy = systems.some((system) => system.guarantee === "lossy");
      const { words, kind, outcome, winner, runs } = verdictOf(result, lossy);
      this.say(words, kind, outcome, winner, [branchWords(steps), runs].filter(Boolean).join(" "));
    }
  }

  return { RaceStrip };
})();
