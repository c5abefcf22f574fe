// The keys of the race: play, steps, speeds. Knows what the race view can be told; nothing of what is shown.

TreeRace.raceKeys = (() => {
  const { addKeys } = TreeRace.keys;

  /** @param {RaceView} view */
  function addRaceKeys(view) {
    /** @type {(keys: string[], words: string, actions: Record<string, () => void>) => void} */
    const add = (keys, words, actions) => addKeys(keys, words, actions, "race");
    add(["Space"], "play, pause, play again", { " ": () => view.toggle() });
    add(["←", "→"], "one step back or on", {
      ArrowLeft: () => view.go(view.step - 1),
      ArrowRight: () => view.go(view.step + 1),
    });
    add(["Home", "End"], "first or last step", { Home: () => view.go(0), End: () => view.go(Infinity) });
    add(["S"], "the step, told as a story; Escape leaves it", { s: () => view.slowStart.tellShown() });
    add(["Tab", "↑", "↓"], "in the tree, the mask or the burst: node after node", {});
    const { names, radios } = view.speeds;
    add(
      radios.map((_, index) => String(index + 1)),
      `speed: ${names.join(", ")}`,
      Object.fromEntries(radios.map((each, index) => [index + 1, () => each.click()])),
    );
  }

  return { addRaceKeys };
})();
