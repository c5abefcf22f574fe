// How a race stands and how it ended, in words out of figures and titles, and the strip between the lanes and the plots that says so.

TreeRace.raceStrip = (() => {
  const { finder, write } = TreeRace.elements;
  const { asNumber, isLevel, visible } = TreeRace.numbers;
  const { refuseUnheard } = TreeRace.runs;
  const { branchWords } = TreeRace.stepWords;

  const LEAST = 3; // tokens of both lanes before one is said to lead
  const TELLING = 12; // tokens of both lanes before a race says how fast
  const REPEATS = "The text repeats itself, which makes guessing easy.";

  // A lane that has ended while the other still writes. `same` says that both texts will be the same.
  /** @typedef {{ lane: number, seconds: number, time: number, same: boolean }} Finish */

  /**
   * The lane that alone has ended, when the lanes have taken `counts` steps.
   * @param {{ ended: boolean, steps: { t: number }[] }[]} lanes
   * @param {number[]} counts
   * @param {number} time
   */
  function finisherOf(lanes, counts, time) {
    const done = lanes.map(({ ended, steps }, index) => ended && counts[index] === steps.length);
    const lane = done.indexOf(true);
    return lane < 0 || done.every(Boolean) ? null : { lane, seconds: lanes[lane].steps[counts[lane] - 1].t, time };
  }

  /**
   * Who leads, by the tokens of the left and the right lane. Once one has ended it is by their tokens a second, which goes on smoothly.
   * @param {[number, number]} tokens
   * @param {string[]} titles
   * @param {Finish | null} [finish]
   */
  function leadOf(tokens, titles, finish = null) {
    const speeds = finish
      ? tokens.map((count, lane) => count / (lane === finish.lane ? finish.seconds : finish.time))
      : tokens;
    const leader = speeds[1] >= speeds[0] ? 1 : 0;
    const [most, least] = [Math.max(...speeds), Math.min(...speeds)];
    const started = Math.min(...tokens) >= LEAST;
    const level = isLevel(most / least);
    const ratio = level ? "level" : `${asNumber(most / least, 1)}× ahead`;
    const by = most - least;
    const margin = level ? "" : `${titles[leader]}, by ${by === 1 ? "1 token" : `${by} tokens`}`;
    return {
      hue: level ? "" : leader,
      ratio: started ? ratio : "",
      margin: finish ? finishOf(tokens, finish) : started ? margin : "",
    };
  }

  /**
   * The lane that has ended, and how far the other is. Where both write the same text, the other takes at least the time that it has
   * taken: so many times as long is certain. It is rounded down.
   * @param {[number, number]} tokens
   * @param {Finish} finish
   */
  function finishOf(tokens, { lane, seconds, time, same }) {
    const certain = Math.floor((10 * time) / seconds) / 10;
    const way = same ? ` of ${tokens[lane]}` : " tokens";
    const bound = same && certain > 1 ? `: at least ${asNumber(certain, 1)}×` : "";
    return `done in ${asNumber(seconds, 2)} s, the other at ${tokens[1 - lane]}${way}${bound}`;
  }

  /** @param {string} text */
  const quoted = (text) => `“${visible(text).rest || "␣"}”`;

  /**
   * @param {RaceMessage} result
   * @param {boolean} lossy one of the systems is
   * @returns {[words: string, kind: string]}
   */
  function comparison({ identical, divergence, lanes, finished }, lossy) {
    const least = Math.min(...lanes.map((lane) => lane.tokens));
    if (identical === true && finished === false) return [`stopped; identical so far: ${least} tokens`, "identical"];
    if (identical === true) return [`identical: ${lanes[1].tokens} of ${lanes[0].tokens} tokens`, "identical"];
    if (identical === "law") return ["same distribution, other tokens", "law"];
    if (identical === "failed") return ["the other server failed, so there is nothing to compare", "early"];
    const early = "stopped; the same text so far, compared by text";
    const whole = "the same text: compared by text, not by tokens";
    if (identical === "text") return [finished === false ? early : whole, "identical"];
    const { index, left, right, words } = /** @type {Divergence} */ (divergence);
    const both = `${index + 1} on: ${quoted(left)} or ${quoted(right)}`;
    if (identical === "other text") return [`other text, compared by text, from character ${both}`, "different"];
    const where = `from token ${both}`;
    if (lossy || identical === "lossy") return [`lossy: other text ${where}`, "lossy"];
    return [words ? `not identical ${where}. ${words}` : `not identical ${where}`, "different"];
  }

  // How often a race was measured: between which ratios its headline lies, and what disturbed its clocks.
  /** @param {RaceMessage} result */
  function runsOf({ again, runs, speedup, least, most, disturbed }) {
    const ends = speedup >= 1 ? [least, most] : [1 / most, 1 / least];
    const [low, high] = ends.map((ratio) => asNumber(ratio, 1));
    const first = "The first run; it runs again, unseen, for a median.";
    const spread = runs.length > 1 ? `${low} to ${high} in ${runs.length} runs.` : "";
    return [again ? first : spread, disturbed].filter(Boolean).join(" ");
  }

  /**
   * How much faster, which lane has the winner's colour, and whether the texts are the same.
   * @param {RaceMessage} result
   * @param {boolean} lossy
   */
  function verdictOf(result, lossy) {
    const { speedup } = result;
    const faster = speedup >= 1;
    const short = Math.min(...result.lanes.map((lane) => lane.tokens)) < TELLING;
    const none = result.identical === "failed" || short;
    const level = isLevel(speedup);
    const ratio = asNumber(faster ? speedup : 1 / speedup, 1);
    const [words, kind] = comparison(result, lossy);
    return {
      words: short && result.finished !== false ? `${words}; too short a text to say how fast` : words,
      kind,
      runs: none
        ? ""
        : [result.lanes.some(({ repeats }) => repeats) && REPEATS, runsOf(result)].filter(Boolean).join(" "),
      outcome: none ? "" : level ? "level" : `${ratio}× ${faster ? "faster" : "slower"}`,
      winner: none || level ? "" : Number(faster),
    };
  }

  // Whether both lanes promise the same tokens. At temperature 0 the same distribution is the same text.
  /** @param {RacedSystem[]} systems */
  function writeTheSame(systems) {
    return systems.every(
      ({ guarantee, trace }) => guarantee === "tokens" || (guarantee === "law" && !trace.temperature),
    );
  }

  /** @type {Record<RunEnd, { words: string, kind?: string }>} */
  const ENDS = {
    refused: { words: "Nothing was raced." },
    withdrawn: { words: "Pick a prompt and press Race." },
    failed: { words: "The race ended early. What was written so far stays.", kind: "early" },
    stopped: { words: "Stopped. Press Race to start again, or look at the steps so far." },
    lost: { words: "Part of the race was lost on its way here. Press Race again.", kind: "early" },
  };

  class RaceStrip {
    /** @param {HTMLElement} root */
    constructor(root) {
      this.at = finder(root);
    }

    /** @param {Partial<ReturnType<typeof verdictOf>>} verdict whose outcome has the colour of the winner's lane */
    say({ words = "", kind = "", outcome = "", winner = 1, runs = "" }) {
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
      this.say(ENDS[how]);
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

    /** @param {RaceView} race of which the result is told, where there is one, and what the drawn trees' branches won */
    verdict({ result, systems, steps }) {
      if (!result) return;
      const lossy = systems.some((system) => system.guarantee === "lossy");
      const verdict = verdictOf(result, lossy);
      this.say({ ...verdict, runs: [branchWords(steps), verdict.runs].filter(Boolean).join(" ") });
    }
  }

  return { finisherOf, leadOf, runsOf, verdictOf, writeTheSame, RaceStrip };
})();
