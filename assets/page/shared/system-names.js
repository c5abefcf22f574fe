// Names of systems and parts as the page writes them, menus of them, and what the pair lacks for each on which the visitor's next run is.
// Knows titles, promises and needs; races nothing.

TreeRace.systemNames = (() => {
  const { whenThere } = TreeRace.elements;

  /** @type {Lacks} */
  const NOTHING = { systems: {}, drafter: {}, policy: {}, acceptance: {} };

  // Of a page without pairs, such as a replay, nothing is known.
  const lacks = () => TreeRace.pairs?.spoken?.lacks ?? NOTHING;

  // Calls `hear` once the pairs are there, and whenever what the pair lacks has changed.
  /** @param {() => unknown} hear */
  function onLacks(hear) {
    let before = "";
    const follow = () => {
      const now = JSON.stringify(lacks());
      if (now === before) return;
      before = now;
      hear();
    };
    onPairs(follow);
  }

  // Calls `hear` once the pairs are there, and whenever they or the choice of them has changed.
  /** @param {() => unknown} hear */
  function onPairs(hear) {
    whenThere(
      () => TreeRace.pairs,
      () => {
        hear();
        TreeRace.pairs.addEventListener("change", hear);
      },
    );
  }

  // The first of these systems that the pair can race; the very first where it can race none.
  /** @param {string[]} names */
  const raceable = (names) => names.find((name) => !(name in lacks().systems)) ?? names[0];

  /**
   * Why another system stands in a preferred one's place, in a sentence; "" where the preferred one itself is there.
   * @param {string[]} names
   * @param {Record<string, System>} systems
   */
  function insteadWords(names, systems) {
    const lack = lacks().systems[names[0]];
    if (!lack) return "";
    return `“${systems[names[0]].title}” needs ${lack.needs}, so “${systems[raceable(names)].title}” takes its place.`;
  }

  // Whether a lossy system must be marked as such, for its title does not say so.
  /** @param {{ title: string, guarantee: string }} system */
  const needsMark = ({ title, guarantee }) => guarantee === "lossy" && !title.includes("lossy");

  /** @param {{ title: string, guarantee: string }} system */
  const markedTitle = (system) => (needsMark(system) ? `${system.title} · lossy` : system.title);

  /**
   * Entries that the pair lacks something for say what they need, and cannot be chosen.
   * @param {HTMLSelectElement} menu
   * @param {Record<string, Lack>} lacking by value
   */
  function markOptions(menu, lacking) {
    for (const option of menu.options) {
      option.dataset.title ??= option.text;
      const { title } = option.dataset;
      const lack = lacking[option.value];
      option.disabled = Boolean(lack);
      option.text = lack ? `${title} · needs ${lack.needs}` : title;
    }
  }

  /**
   * A menu of systems to race. Until the visitor has chosen, and where the choice is gone, it names the first of the `preferred` that the
   * pair can race.
   * @param {HTMLSelectElement} menu
   * @param {Record<string, System>} systems
   * @param {string[]} preferred
   */
  function fillSystems(menu, systems, preferred) {
    let isOwn = false;
    for (const [name, system] of Object.entries(systems)) menu.append(new Option(markedTitle(system), name));
    menu.value = preferred[0];
    menu.addEventListener("change", () => {
      isOwn = true;
    });
    onLacks(() => {
      markOptions(menu, lacks().systems);
      if (!isOwn || menu.selectedOptions[0]?.disabled) menu.value = raceable(preferred);
    });
  }

  return { fillSystems, insteadWords, lacks, markOptions, markedTitle, needsMark, onLacks, onPairs, raceable };
})();
