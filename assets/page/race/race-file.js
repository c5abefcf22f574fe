// The race that is shown, as a race file and as a link. Knows the view's systems and steps; writes no file.

TreeRace.raceFile = (() => {
  const { linkTo } = TreeRace.screens;

  const DRAWN = ["t", "has_bonus"]; // what the page adds to a step
  const LONGEST_LINK = 8000; // letters; servers refuse longer ones
  const LONGEST_NAME = 48;

  /** @param {Step} step */
  function traced(step) {
    return Object.fromEntries(Object.entries(step).filter(([name]) => !DRAWN.includes(name)));
  }

  /**
   * A Record in JSON (engine/record/race_file.py). A race that was stopped holds the steps so far.
   * @param {{ systems: RacedSystem[], lanes: { steps: Step[] }[], third?: { system: RacedSystem | null, steps: Step[] },
   *   recorded: string | null, result: RaceMessage | null }} race
   */
  function raceFile({ systems, lanes, third, recorded, result }) {
    const all = systems.map((system, index) => ({ system, steps: lanes[index].steps }));
    if (third?.system) all.splice(1, 0, { system: third.system, steps: third.steps });
    const filed = all.map(({ system: { title, idea, guarantee, costs, trace }, steps }) => {
      return { title, idea, guarantee, costs, trace: { ...trace, steps: steps.map(traced) } };
    });
    const today = new Date().toISOString().slice(0, 10);
    const runs = result && result.runs.length > 1 ? result.runs : [];
    return JSON.stringify({ lanes: filed, recorded: recorded || today, runs, busy: Boolean(result?.busy) });
  }

  /**
   * The settings of that race, as the page's address takes them; "" when the prompt is too long for one.
   * @param {{ systems: RacedSystem[] }} race
   * @param {string} [pair] the name of its pair, where visitors choose one
   */
  function raceLink({ systems: [left, right] }, pair) {
    const { prompt, depth, width, nodes, temperature, max_new_tokens: tokens, seed, constraint } = right.trace;
    const bound = { seed, ...(constraint ? { constraint } : {}), ...(pair ? { pair } : {}), prompt };
    const link = linkTo({ left: left.name, right: right.name, depth, width, nodes, temperature, tokens, ...bound });
    return link.length > LONGEST_LINK ? "" : link;
  }

  /**
   * A file's name out of what the race was of.
   * @param {{ systems: RacedSystem[] }} race
   */
  function raceName({ systems: [, right] }) {
    const words = `${right.name} ${right.trace.prompt}`.toLowerCase().match(/[a-z0-9]+/g) || [];
    return ["treerace", ...words].join("-").slice(0, LONGEST_NAME).replace(/-$/, "");
  }

  return { raceFile, raceLink, raceName };
})();
