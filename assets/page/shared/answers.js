// Questions to the server outside of a run. Knows that no answer is an answer too.
"use strict";

TreeRace.answers = (() => {
  /**
   * What was asked of the server; without an answer, a refusal as the server words its own.
   * @template Answer
   * @param {Promise<Answer>} asked
   * @returns {Promise<Answer & { refused?: string }>}
   */
  const answered = (asked) =>
    asked.catch(() => /** @type {any} */ ({ refused: "The server did not answer. Try again." }));

  return { answered };
})();
