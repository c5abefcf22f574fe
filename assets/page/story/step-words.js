// A step in plain words: what was guessed, what was kept, why it ended there, and what its branches won against the drafter's favourites
// alone, the chain of each node's first-ranked child. Knows steps; nothing of the page. engine/record/trace.py says the same of a trace.

TreeRace.stepWords = (() => {
  const { visible } = TreeRace.numbers;
  const { depthsOf } = TreeRace.steps;

  const NTH = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"];

  // How many guesses the favourites alone would have kept.
  /** @param {Step} step */
  function favouritesKept({ favourites = [], path }) {
    const parted = favourites.findIndex((node, depth) => node !== path[depth]);
    return parted < 0 ? Math.min(favourites.length, path.length) : parted;
  }

  // Tokens that the step emitted because its tree has branches. The favourites alone would have emitted one behind those kept.
  // A piece of a server's text has no tree.
  /** @param {Step} step */
  const branchTokens = (step) => (step.parents.length ? Math.max(0, step.burst.length - favouritesKept(step) - 1) : 0);

  // Whether all favourites were right and a chain with as many guesses would have had more of them.
  /** @param {Step} step */
  function couldGoDeeper(step) {
    const { favourites = [], parents, end } = step;
    const allKept = favourites.length > 0 && favouritesKept(step) === favourites.length;
    return allKept && !end && favourites.length < parents.length - 1;
  }

  // Where a branch won: the favourite that was wrong, what a chain keeps, which branch kept how many. null where none won.
  /** @param {Step} step */
  function rescueIn(step) {
    if (!branchTokens(step)) return null;
    const kept = favouritesKept(step);
    const { favourites, parents, path, score, texts } = step;
    const above = kept ? path[kept - 1] : 0;
    const rivals = parents.flatMap((parent, node) => (node && parent === above ? [node] : []));
    const place = rivals.sort((a, b) => score[b] - score[a] || a - b).indexOf(path[kept]);
    return { favourite: texts[favourites[kept]], kept, branch: NTH[place] ?? `${place + 1}th`, won: path.length };
  }

  // The step in which branches won most, the first of equals; -1 where they won nothing.
  /** @param {Step[]} steps */
  function rescueOf(steps) {
    const won = steps.map(branchTokens);
    const most = Math.max(0, ...won);
    return most ? won.indexOf(most) : -1;
  }

  // What a lane's branches gave, as a sentence; "" for a lane that never branched.
  /** @param {Step[]} steps */
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

  /** @type {Record<string, string>} */
  const ENDINGS = {
    "": "",
    stop: " The stop token ended the text.",
    length: " The length limit ended the text.",
    context: " The context window was full.",
    failed: "", // another server says why
  };

  // The text in quotes. Line breaks, tabs and a text of spaces get visible signs; “…” stands for an incomplete character.
  /** @param {string} text */
  function quoted(text) {
    const inner = text.replace(/^ +| +$/g, "") || "␣".repeat(text.length) || "…";
    return `“${visible(inner).rest}”`;
  }

  /** @param {Step} step told to a reader who has never seen a tree */
  function sentence(step) {
    const ending = again(step) + (ENDINGS[step.end] ?? ` It ended here: ${step.end}.`);
    const { length } = step.parents;
    if (length === 0) return arrived(step) + ending;
    if (length === 1) return `${silence(step)}${ending}`;
    const unused = step.unused ? ` ${step.unused}` : "";
    if (!step.has_bonus) return `${kept(step)}.${ending}${unused}`;
    const own = `then the target's own ${quoted(step.bonus_text)}.`;
    const rescue = rescueWords(step);
    if (rescue) return `${rescue}, ${own}${ending}${unused}`;
    return `${kept(step)}, ${own} ${reason(step)}${chainWords(step)}${ending}${unused}`;
  }

  /** @param {Step} step without a guess */
  function silence({ silence: why, bonus_text: text }) {
    return why
      ? `No guesses, so one token, ${quoted(text)}. ${why}`
      : `No guesses: one forward of the target, one token, ${quoted(text)}.`;
  }

  // Where a branch won: what a chain would have kept, and which branch kept more. "" where none did.
  /** @param {Step} step */
  function rescueWords(step) {
    const rescue = rescueIn(step);
    if (!rescue) return "";
    const { favourite, kept, branch, won } = rescue;
    const text = step.path.map((node) => step.texts[node]).join("");
    return `Favourite ${quoted(favourite)} was wrong. A chain keeps ${kept} here, the ${branch} branch ${won}: ${quoted(text)}`;
  }

  // What a chain makes of a step in which no branch won, "" where the tree is a chain or nothing was kept.
  /** @param {Step} step */
  function chainWords(step) {
    const { favourites = [], parents, path } = step;
    if (favourites.length >= parents.length - 1 || !path.length) return "";
    if (couldGoDeeper(step)) return " A chain of as many guesses could have gone deeper.";
    return ` A chain keeps ${favouritesKept(step)} here too.`;
  }

  // What layers with states read a second time, "" for nothing.
  /** @param {Step} step */
  function again({ replayed }) {
    if (!replayed) return "";
    const count = replayed === 1 ? "1 token was" : `${replayed} tokens were`;
    return ` ${count} replayed, because the target's state stood behind other guesses.`;
  }

  /** @param {Step} step that another server took */
  function arrived({ pieces, seconds, bonus_text: note }) {
    const text = pieces.join("");
    const after = 1000 * Object.values(seconds).reduce((sum, each) => sum + each, 0);
    const words = text ? `The server sent ${quoted(text)} after ${after.toFixed(0)} ms.` : "No more text came.";
    return `${words} ${note}`.trimEnd();
  }

  /** @param {Step} step */
  function kept({ parents, path, burst, texts }) {
    const guesses = parents.length - 1;
    const count = guesses === 1 ? "1 guess" : `${guesses} guesses`;
    if (!path.length) return `${count}, none accepted`;
    const text = path.slice(0, burst.length).map((node) => texts[node]);
    const cut = burst.length < path.length ? `, ${burst.length} kept` : "";
    return `${count}, ${path.length} accepted${cut}: ${quoted(text.join(""))}`;
  }

  /** @param {Step} step whose accepted path went no further */
  function reason({ parents, path, tokens, bonus, bonus_text: wanted }) {
    const last = path.at(-1) ?? 0;
    const rivals = parents.flatMap((parent, node) => (parent === last ? [node] : []));
    if (!rivals.length) {
      const depths = depthsOf(parents);
      const atEnd = depths[last] === Math.max(...depths);
      return atEnd ? "The path reached the tree's last level." : "The path reached the end of its branch.";
    }
    if (rivals.some((node) => tokens[node] === bonus)) {
      return "The rule turned down every branch and the target drew for itself.";
    }
    return `The target wanted ${quoted(wanted)} and no branch had it.`;
  }

  // Of the guesses that the target came to judge, the one about which drafter and target agreed least.
  /** @param {Step} step */
  function estimate({ texts, q, p, verdicts }) {
    const off = verdicts.map((verdict, at) => (/^(accepted|rejected)$/.test(verdict) ? Math.abs(q[at] - p[at]) : -1));
    const node = off.indexOf(Math.max(...off));
    if (!(off[node] >= 0)) return "Nothing was guessed in this step.";
    return `The drafter gave ${quoted(texts[node])} ${percent(q[node])}, the target ${percent(p[node])}.`;
  }

  // The share as "61 %". It never reads 0 % or 100 % where that is only rounding.
  /** @param {number} share */
  function percent(share) {
    if (share > 0 && share < 0.005) return "under 1 %";
    if (share >= 0.995 && share < 1) return "over 99 %";
    return `${(100 * share).toFixed(0)} %`;
  }

  return { branchTokens, branchWords, couldGoDeeper, estimate, favouritesKept, quoted, rescueIn, rescueOf, sentence };
})();
