// What a step's branches won: against the drafter's favourites alone, the chain of each node's first-ranked child. Knows steps; nothing
// of the page. engine/record/trace.py says the same of a trace.

TreeRace.branches = (() => {
  const NTH = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"];

  /**
   * How many guesses the favourites alone would have kept.
   * @param {Step} step
   */
  function favouritesKept({ favourites = [], path }) {
    const parted = favourites.findIndex((node, depth) => node !== path[depth]);
    return parted < 0 ? Math.min(favourites.length, path.length) : parted;
  }

  /**
   * Tokens that the step emitted because its tree has branches. The favourites alone would have emitted one behind those kept.
   * A piece of a server's text has no tree.
   * @param {Step} step
   */
  const branchTokens = (step) => (step.parents.length ? Math.max(0, step.burst.length - favouritesKept(step) - 1) : 0);

  /**
   * Whether all favourites were right and a chain with as many guesses would have had more of them.
   * @param {Step} step
   */
  function couldGoDeeper(step) {
    const { favourites = [], parents, end } = step;
    const allKept = favourites.length > 0 && favouritesKept(step) === favourites.length;
    return allKept && !end && favourites.length < parents.length - 1;
  }

  /**
   * Where a branch won: the favourite that was wrong, what a chain keeps, which branch kept how many. null where none won.
   * @param {Step} step
   */
  function rescueIn(step) {
    if (!branchTokens(step)) return null;
    const kept = favouritesKept(step);
    const { favourites, parents, path, score, texts } = step;
    const above = kept ? path[kept - 1] : 0;
    const rivals = parents.flatMap((parent, node) => (node && parent === above ? [node] : []));
    const place = rivals.sort((a, b) => score[b] - score[a] || a - b).indexOf(path[kept]);
    return { favourite: texts[favourites[kept]], kept, branch: NTH[place] ?? `${place + 1}th`, won: path.length };
  }

  /**
   * The step in which branches won most, the first of equals; -1 where they won nothing.
   * @param {Step[]} steps
   */
  function rescueOf(steps) {
    const won = steps.map(branchTokens);
    const most = Math.max(0, ...won);
    return most ? won.indexOf(most) : -1;
  }

  /**
   * What a lane's branches gave, as a sentence; "" for a lane that never branched.
   * @param {Step[]} steps
   */
  function branchWords(steps) {
    if (!steps.some(({ parents, favourites = [] }) => favourites.length < parents.length - 1)) return "";
    const sum = (/** @type {(step: Step) => number} */ of) => steps.reduce((total, step) => total + of(step), 0);
    const tokens = sum(({ burst }) => burst.length);
    const won = sum(branchTokens);
    const deeper = sum((step) => Number(couldGoDeeper(step)));
    const words = won
      ? `Its branches won ${won} of ${tokens} tokens.`
      : "No branch won here: its favourites alone would have kept as much.";
    if (!deeper) return words;
    return `${words} In ${deeper} of ${steps.length} steps a chain of as many guesses could have gone deeper.`;
  }

  return { branchTokens, branchWords, couldGoDeeper, favouritesKept, rescueIn, rescueOf };
})();
