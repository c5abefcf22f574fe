// The keys that race without the form, for somebody on a stage: again, the next prompt, another system. Knows the race from outside.

TreeRace.stageKeys = (() => {
  const { pressRace, takePrompt } = TreeRace.form;
  const { addKeys } = TreeRace.keys;

  /** @param {() => { prompt: string }[]} prepared the prompts that suit the pair, in the order in which they come */
  function addStageKeys(prepared) {
    const box = () => /** @type {HTMLTextAreaElement} */ (document.querySelector("#prompt textarea"));

    const next = () => {
      if (TreeRace.view.isLive) return;
      const prompts = prepared();
      const at = prompts.findIndex(({ prompt }) => prompt === box().value);
      takePrompt(prompts[(at + 1) % prompts.length].prompt);
      requestAnimationFrame(pressRace); // the form has the prompt by then
    };

    /** @param {number} by how many places on, among the systems that guess */
    const other = (by) => {
      const { view, take } = TreeRace;
      if (view.isLive) return;
      const names = Object.values(view.about.systems)
        .filter(({ guesses }) => guesses)
        .map(({ name }) => name);
      const at = names.indexOf(view.lanes[1].card.shown);
      take.raceWith(names[(at + by + names.length) % names.length]);
    };

    addKeys(["R", "Enter"], "race again", { r: pressRace, Enter: pressRace }, "race");
    addKeys(["N"], "race the next prepared prompt", { n: next }, "race");
    addKeys(
      ["↑", "↓"],
      "race another system on the right",
      { ArrowUp: () => other(-1), ArrowDown: () => other(1) },
      "race",
    );
  }

  return { addStageKeys };
})();
