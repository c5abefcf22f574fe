// What was recorded, shown again: a race, or the run that a screen begins with. Says where and when it was run. Knows runs and their
// messages; nothing of what they mean.

TreeRace.recordedRace = (() => {
  const { answered } = TreeRace.presence;
  const { isCalm } = TreeRace.elements;

  /**
   * @param {string | null} day null for a live race, which gets no words
   * @param {string} hardware
   */
  function recordedWords(day, hardware) {
    if (day === null) return "";
    const date = day && `, ${new Date(day).toUTCString().slice(5, 16).replace(/^0/, "")}`; // as in 5 Jan 2026
    return `recorded on ${hardware}${date}`;
  }

  /**
   * On which model a race was run, and where and when it was recorded. A live race names its model where visitors choose one; a
   * recorded one always does, for it may be another than the page's.
   * @param {string | null} day null for a live race
   * @param {{ pair: string, hardware: string }} trace
   */
  function originWords(day, { pair, hardware }) {
    const size = TreeRace.pairs?.titled(pair)?.size;
    const model = size ? `${size} model` : day === null ? "" : pair;
    return [model, recordedWords(day, hardware)].filter(Boolean).join(", ");
  }

  /** @param {RaceMessage} event played, or shown at its end where motion is not wanted */
  function showRecorded(event) {
    TreeRace.view.race.show(event);
    if (isCalm()) TreeRace.view.skip();
  }

  /**
   * Shows the recorded messages in the run, unless a visitor was faster. Returns their model, where and when they were recorded, or null.
   * @param {{ isFresh: boolean, show(message: any): void }} run
   * @param {(name: string) => Answer<Example>} ask the server
   * @param {string} name
   */
  async function showExample(run, ask, name) {
    const example = await answered(ask(name));
    if (example.refused || !run.isFresh) return null;
    const id = `example-${name}`;
    for (const [index, message] of example.messages.entries()) run.show({ ...message, run: id, seq: index + 1 });
    return originWords(example.recorded, example);
  }

  return { originWords, recordedWords, showExample, showRecorded };
})();
