// The recorded run that a screen begins with, until a visitor runs one or chooses what to run. Knows runs and their messages; nothing of what they mean.

TreeRace.example = (() => {
  const { answered } = TreeRace.answers;

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
    return TreeRace.recordedRace.originWords(example.recorded, example);
  }

  return { showExample };
})();
