// Questions to the server outside of a run. Knows that no answer is an answer too.

TreeRace.answers = (() => {
  /**
   * What was asked of the server; without an answer, a refusal as the server words its own.
   * @template Answer
   * @param {Promise<Answer>} asked
   * @returns {Promise<Answer & { refused?: string }>}
   */
  const answered = (asked) =>
    asked.catch(() => /** @type {any} */ ({ refused: "The server did not answer. Try again." }));

  // Questions of one place on the page, such as a card's or a field's: what was asked last is answered alone.
  class Questions {
    /** @type {Promise<unknown> | undefined} what was asked last */
    asked = undefined;

    /**
     * What was asked, as `answered`; null where another question was asked meanwhile, or this one dropped.
     * @template Answer
     * @param {Promise<Answer>} asked
     */
    async last(asked) {
      this.asked = asked;
      const answer = await answered(asked);
      return asked === this.asked ? answer : null;
    }

    // Nobody waits for an answer any more.
    drop() {
      this.asked = undefined;
    }
  }

  return { Questions, answered };
})();
