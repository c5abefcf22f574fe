// How a race stands and how it ended, in words. Knows figures and titles; shows nothing.
"use strict";

TreeRace.verdict = (() => {
  const { asNumber, isLevel } = TreeRace.numbers;
  const { visible } = TreeRace.text;
  const LEAST = 3; // tokens of both lanes before one is said to lead

  /**
   * Who leads, by the tokens of the left and the right lane.
   * @param {[number, number]} tokens
   * @param {string[]} titles
   */
  function leadOf([left, right], titles) {
    const leader = right >= left ? 1 : 0;
    const [most, least] = [Math.max(left, right), Math.min(left, right)];
    const started = least >= LEAST;
    const level = isLevel(most / least);
    return {
      hue: level ? "" : leader,
      ratio: started ? (level ? "level" : `${asNumber(most / least, 1)}× ahead`) : "",
      margin: started && !level ? `${titles[leader]}, by ${most - least} tokens` : "",
    };
  }

  /** @param {string} text */
  const quoted = (text) => `“${visible(text).rest || "␣"}”`;

  /**
   * Whether the texts are the same.
   * @param {RaceMessage} result
   * @param {boolean} lossy one of the systems is
   * @returns {[words: string, kind: string]}
   */
  function comparison({ identical, divergence, lanes, finished }, lossy) {
    const both = Math.min(...lanes.map((lane) => lane.tokens));
    if (identical === true && finished === false) return [`stopped; identical so far: ${both} tokens`, "identical"];
    if (identical === true) return [`identical: ${lanes[1].tokens} of ${lanes[0].tokens} tokens`, "identical"];
    if (identical === "law") return ["same distribution, other tokens", "law"];
    const { index, left, right } = /** @type {Divergence} */ (divergence);
    const where = `from token ${index + 1} on: ${quoted(left)} or ${quoted(right)}`;
    if (lossy || identical === "lossy") return [`lossy: other text ${where}`, "lossy"];
    return [`not identical ${where}`, "different"];
  }

  /**
   * How much faster, which lane has the winner's colour, and whether the texts are the same.
   * @param {RaceMessage} result
   * @param {boolean} lossy
   */
  function verdictOf(result, lossy) {
    const { speedup } = result;
    const faster = speedup >= 1;
    const level = isLevel(speedup);
    const ratio = asNumber(faster ? speedup : 1 / speedup, 1);
    const [words, kind] = comparison(result, lossy);
    return {
      words,
      kind,
      outcome: level ? "level" : `${ratio}× ${faster ? "faster" : "slower"}`,
      winner: level ? "" : Number(faster),
    };
  }

  return { leadOf, verdictOf };
})();
