// What the pair lacks on which the visitor's next run is: by system and by part of a mix, what each one needs. Knows names; races nothing.

TreeRace.lacks = (() => {
  const { whenThere } = TreeRace.elements;

  /** @type {Lacks} */
  const NOTHING = { systems: {}, drafter: {}, policy: {}, acceptance: {} };

  // Of a page without pairs, such as a replay, nothing is known.
  const lacks = () => TreeRace.pairs?.spoken?.lacks ?? NOTHING;

  /**
   * Calls `hear` once the pairs are there, and whenever what the pair lacks has changed.
   * @param {() => unknown} hear
   */
  function onLacks(hear) {
    let before = "";
    const follow = () => {
      const now = JSON.stringify(lacks());
      if (now === before) return;
      before = now;
      hear();
    };
    whenThere(
      () => TreeRace.pairs,
      () => {
        follow();
        TreeRace.pairs.addEventListener("change", follow);
      },
    );
  }

  /**
   * The first of these systems that the pair can race; the very first where it can race none.
   * @param {string[]} names
   */
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

  return { lacks, onLacks, raceable, insteadWords };
})();
