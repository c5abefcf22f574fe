// The pages of the walk: what each says, what it sets and lights up, and what there is to try. Knows a race by its steps only.

TreeRace.walkPages = (() => {
  const TREE = ".plot:has([data-tree])";

  /**
   * The node's place among its siblings, 0 for the drafter's favourite.
   * @param {Step} step
   * @param {number} node
   */
  const rank = (step, node) => {
    const parent = step.parents[node];
    return step.parents.slice(0, node).filter((other) => other === parent).length;
  };
  /** @param {Step} step */
  const branches = (step) => step.parents.some((_, node) => node > 0 && rank(step, node) > 0);
  /** @param {Step} step */
  const scattered = (step) => step.path.some((node, index) => node !== index + 1);
  /** @param {Step} step */
  const off = (step) => step.path.some((node) => rank(step, node) > 0);

  const MEASURE = { words: "press Measure: this machine draws its own line over the recorded one.", on: "measure" };
  const curve = (/** @type {string} */ name) => ({ lit: "section[data-curve]", curve: name, task: MEASURE });

  // How well a step shows what the page is about; the best one is jumped to, and a step of 0 shows nothing of it.
  /** @type {Record<string, (step: Step) => number>} */
  const telling = {
    tree: (step) => (branches(step) ? 1 + step.path.length + 6 * Number(off(step)) : 0),
    verdict: (step) =>
      branches(step) && step.has_bonus ? Math.min(2, step.path.length) + 3 * Number(off(step)) + 1 : 0,
    trim: (step) => (branches(step) ? 1 + step.path.length + 6 * Number(scattered(step)) : 0),
  };

  /** @param {RacedSystem[]} systems */
  const pairOf = ([, right]) => TreeRace.pairs.titled(right.trace.pair)?.name;

  // `curve`: the measured curve that stands in the race's place. `tells`: which step to jump to; without such steps there is a race.
  // `task`: an action, when it counts, and what it `needs` on the page. `breaks`: the switches that belong here.
  // `choice`: the page is about the choice of pairs, and is there only where visitors have one.
  const START = { left: "vanilla", temperature: 0, seed: 0, max_new_tokens: 80, constraint: "" };
  /** @type {WalkPage[]} */
  const PAGES = [
    {
      title: "One token at a time",
      text:
        "A language model writes a text piece by piece; a piece is called a token. For each token it runs once from end to end, " +
        "a forward, and spends most of that time fetching its own weights from memory. The left lane writes like this: one " +
        "underlined token, one forward.",
      lit: ".lane.left",
      task: { words: "press Race and watch the left lane.", on: "race", needs: ["#race-go"] },
    },
    {
      title: "Guess, then check",
      text:
        "Once the weights are there, looking at eight tokens costs little more than looking at one. So a small, quick drafter " +
        "guesses ahead, and the big model, the target, checks all guesses in one forward and keeps those it would have written " +
        "itself. In the right lane each underlined burst is one forward, and the text is the same.",
      lit: ".lane.right",
      task: {
        words: "click a burst in the right lane to see how it came about.",
        on: "burst",
        when: (lane) => lane === 1,
      },
    },
    {
      title: "Why a chain wastes guesses",
      text:
        "The simplest drafter guesses a chain: one token, then the next, then the next. Where the target wants another word, all " +
        "guesses behind that place go on from a text that was never written. A tree of as many nodes has a second word ready there. " +
        "On easy text that hardly matters; on hard text it does.",
      ...curve("chain"),
    },
    {
      title: "A tree keeps several futures",
      text:
        "Where it is not sure, the drafter can guess two or three tokens side by side and go on behind each of them. That makes a " +
        "tree, and the target still checks all of it in one forward. When the favourite on top is wrong, a rival below may be right.",
      lit: TREE,
      tells: telling.tree,
      picture: "forwards",
      task: {
        needs: ["#race-go", "#dials"],
        words: "set Nodes to 16 and press Race: twice the guesses.",
        on: "race",
        when: (/** @type {RacedSystem[]} */ [, right]) => right.trace.nodes >= 12,
      },
    },
    {
      title: "The mask keeps branches apart",
      text:
        "The target gets all guesses in one row, yet each must be judged as if its own branch were the only text. So it is told who " +
        "may look at whom: every guess sees the text so far, its ancestors and itself. This table is the attention mask.",
      lit: "[data-panel]",
      view: "mask",
      tells: telling.tree,
      picture: "kin",
      breaks: ["mask"],
      task: { words: "point at a row of the mask; its ancestors light up in the tree.", on: "row" },
    },
    {
      title: "Positions go by depth",
      text:
        "A model must also know where in the text a token stands: its position. Rivals compete for the same place, so they share a " +
        "position. It counts the depth in the tree, not the place in the row.",
      lit: TREE,
      tells: telling.tree,
      picture: "positions",
      breaks: ["positions"],
      task: { words: "point at a node of the tree, or at a line below.", on: "node" },
    },
    {
      title: "Accept, and one more for free",
      text:
        "From the root on, the target says which token it writes next. If a branch has it, that guess is accepted and the question " +
        "is asked again behind it. If none has it, the target's own token is written anyway, the bonus: no forward is ever in vain.",
      lit: "[data-sentence]",
      tells: telling.verdict,
      picture: "burst",
      breaks: ["acceptance"],
      task: {
        words: "open “Drafter’s view”: bars are what the drafter believed, marks what the target says.",
        on: "view",
        needs: ["[data-panel]"],
        when: (view) => view === "guess",
      },
    },
    {
      title: "Trimming the cache",
      text:
        "For each token it has read, the model keeps a row of notes, the KV cache, and so reads nothing twice. The forward added a " +
        "row for every guess. Only the root's and the accepted path's may stay; the others tell of words never written.",
      lit: TREE,
      tells: telling.trim,
      picture: "cache",
      breaks: ["trim"],
      task: { words: "press → and see the next forward's rows come and go.", on: "step", needs: [".scrub"] },
    },
    {
      title: "More nodes stop paying",
      text:
        "A larger tree catches more of the target’s words, so tokens a pass climb. But each node is a row that the target must " +
        "compute. The first rows are nearly free, because the forward waits for its weights anyway; the later ones cost time. So " +
        "speed has a peak.",
      ...curve("nodes"),
    },
    {
      title: "Temperature",
      text:
        "At temperature 0 the target always takes its most probable word, and the drafter’s favourite is often the same. The hotter " +
        "it samples, the more often another word comes: then a chain breaks early, and a tree’s second and third guesses count.",
      ...curve("temperature"),
    },
    {
      title: "Many texts at once",
      text:
        "A server writes many sequences in one forward. They share the reading of the weights as guesses do, so the free rows are " +
        "taken already. The more sequences come together, the less guessing gives, until it costs.",
      ...curve("batch"),
    },
    {
      title: "Large models gain the most",
      text:
        "A large model's weights do not fit into the processor's cache. Every forward waits for them, and checks guesses meanwhile. " +
        "A small model has them at hand, so it pays for each guess. The larger one here has six times as many weights.",
      lit: "[data-sizes]",
      choice: true,
      picture: "growth",
      task: {
        words: "switch to the other size at the top and press Race again.",
        on: "race",
        when: (/** @type {RacedSystem[]} */ systems, walk) => pairOf(systems) !== walk.pair,
        needs: ["#race-go", "[data-verdict]"],
      },
    },
    {
      title: "Break it on purpose",
      text:
        "Mistakes that are easily made. Nothing crashes, and the text still reads like a story; only a measurement tells. " +
        "Switch one on, and the right tree races on the left against the broken one on the right.",
      lit: "[data-lanes]",
      breaks: ["mask", "positions", "acceptance", "trim", "constraint"],
      task: { words: "switch one on and see where the texts part.", on: "break" },
    },
  ];

  return { START, PAGES };
})();
