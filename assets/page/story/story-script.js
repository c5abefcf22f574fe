// The story of one step as a script: six scenes, what each says, when each node grows. Knows one step; draws nothing.

TreeRace.storyScript = (() => {
  const { rescueIn, rescueOf } = TreeRace.stepWords;
  const { depthsOf } = TreeRace.steps;

  const GUESSING = 1.6; // seconds of the first scene
  const MOST = 24; // guesses that can be read from the back of a room

  /** @type {Record<string, string>} what is promised of the text */
  const PROMISES = {
    tokens: "Nothing changes in the text: it only comes sooner.",
    law: "The text stays just as likely as before: it only comes sooner.",
    lossy: "This system is lossy: its text may be another one.",
  };

  /** @param {Step} step */
  const branches = ({ favourites = [], parents }) => favourites.length > 0 && favourites.length < parents.length - 1;

  /**
   * @param {Step} step
   * @param {number} shoots
   */
  function guessWords(step, shoots) {
    if (branches(step))
      return `${step.draft_forwards ? "A small model" : "A table"} guesses ahead. Where it is unsure, it branches.`;
    if (!step.draft_forwards) return "What may come next is guessed, without running a model.";
    return shoots === 1 ? "A small model guesses ahead, in one go." : "A small model guesses ahead, word by word.";
  }

  /** @param {Step} step */
  function chosenWords(step) {
    if (!step.path.length) return "It would have written another word: no guess is right.";
    const rescue = rescueIn(step);
    if (rescue) {
      const { favourite, kept, branch, won } = rescue;
      const words = kept === 1 ? "1 word" : `${kept} words`;
      return `Favourite “${favourite.trim()}” is wrong: a chain keeps ${words}, the ${branch} branch ${won}.`;
    }
    return `It marks the words it would have written itself${step.has_bonus ? ", and adds one" : ""}.`;
  }

  /** @param {Step} step */
  function dropWords(step) {
    const wrong = step.parents.length - 1 - step.path.length;
    if (!wrong) return "This time every guess is right: nothing is thrown away.";
    return wrong === 1 ? "The wrong guess is thrown away." : "Wrong guesses are thrown away.";
  }

  /** @param {Step} step */
  function joinWords(step) {
    const count = step.burst.length;
    return count === 1
      ? "One token joins the text, as without guesses."
      : `${count} tokens join the text at once, from one run of the large model.`;
  }

  /**
   * @param {Step} step
   * @param {Guarantee} guarantee of its system
   */
  function scriptOf(step, guarantee) {
    const levels = depthsOf(step.parents);
    const deepest = Math.max(...levels);
    const shoots = Math.max(1, Math.min(deepest, step.draft_forwards)); // one a draft forward, at most one a level
    const count = step.parents.length - 1;
    const checked = count === 1 ? "the guess" : `all ${count} guesses at once,`;
    /** @type {[name: Scene["name"], seconds: number, words: string][]} */
    const planned = [
      ["guess", GUESSING, guessWords(step, shoots)],
      ["check", 1.3, `The large model checks ${checked} in one run.`],
      ["choose", 1.1, chosenWords(step)],
      ["drop", 0.7, dropWords(step)],
      ["join", 1.2, joinWords(step)],
      ["same", 1.1, PROMISES[guarantee] ?? PROMISES.tokens],
    ];
    let at = 0;
    const scenes = planned.map(([name, seconds, words]) => {
      const from = at;
      at += seconds;
      return { name, from, to: at, words };
    });
    const each = (GUESSING - 0.25) / shoots;
    const shootOf = (/** @type {number} */ level) => Math.floor(((level - 1) * shoots) / deepest);
    const sprouts = levels.map((level) => (level ? 0.15 + each * shootOf(level) : 0)); // seconds
    return { scenes, sprouts, shoot: Math.min(0.6, each), shoots, length: at };
  }

  // How well a step tells the story: some guesses are right, some are wrong, all can be read. 0 tells nothing.
  /** @param {Step} step */
  function tells(step) {
    const count = step.parents.length - 1;
    if (count < 1) return 0;
    const wrong = count - step.path.length;
    const readable = count <= MOST ? 1 : 0.1;
    return readable * (1 + Math.min(3, step.path.length) * 2 + Math.min(4, wrong) + Number(step.has_bonus));
  }

  // The step in which branches won most; without one the step that tells most, -1 when none has a guess.
  /** @param {Step[]} steps */
  function tellingOf(steps) {
    const rescue = rescueOf(steps);
    if (rescue >= 0) return rescue;
    const scores = steps.map(tells);
    const best = Math.max(0, ...scores);
    return best ? scores.indexOf(best) : -1;
  }

  return { scriptOf, tellingOf, tells };
})();
