// Names of systems and parts as the page writes them, and menus of them. Knows titles and promises; nothing of races.

TreeRace.systemNames = (() => {
  const { lacks, onLacks, raceable } = TreeRace.lacks;

  /** @type {WeakMap<HTMLOptionElement, string>} what an entry says where nothing is needed */
  const titles = new WeakMap();

  /**
   * Whether a lossy system must be marked as such, for its title does not say so.
   * @param {{ title: string, guarantee: string }} system
   */
  const needsMark = ({ title, guarantee }) => guarantee === "lossy" && !title.includes("lossy");

  /** @param {{ title: string, guarantee: string }} system */
  const markedTitle = (system) => (needsMark(system) ? `${system.title} · lossy` : system.title);

  /** @param {string} name */
  const plainName = (name) => name.replace(/_/g, " ");

  /**
   * Entries that the pair lacks something for say what they need, and cannot be chosen.
   * @param {HTMLSelectElement} menu
   * @param {Record<string, Lack>} lacking by value
   */
  function markOptions(menu, lacking) {
    for (const option of menu.options) {
      const title = titles.get(option) ?? option.text;
      titles.set(option, title);
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

  return { needsMark, markedTitle, plainName, fillSystems, markOptions };
})();
