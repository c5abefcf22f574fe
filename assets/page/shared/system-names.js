// Names of systems and parts as the page writes them, and menus of them. Knows titles and promises; nothing of races.
"use strict";

TreeRace.systemNames = (() => {
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
   * @param {HTMLSelectElement} menu
   * @param {Record<string, System>} systems
   * @param {string} chosen
   */
  function fillSystems(menu, systems, chosen) {
    for (const [name, system] of Object.entries(systems)) menu.append(new Option(markedTitle(system), name));
    menu.value = chosen;
  }

  return { needsMark, markedTitle, plainName, fillSystems };
})();
