// The screens of the page: which one is shown, and the menu of them. Knows their names; nothing of what they show.
"use strict";

TreeRace.screens = (() => {
  const { announceResize, button } = TreeRace.elements;

  // The element that holds all screens; its data attributes say what is shown, for the styles.
  const screenRoot = () => /** @type {HTMLElement} */ (document.querySelector("#screen"));

  const shownScreen = () => screenRoot().dataset.screen;

  /**
   * Shows one screen of the page; the others keep what they hold.
   * @param {string} name
   */
  function showScreen(name) {
    screenRoot().dataset.screen = name;
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-screens] button"))) {
      button.toggleAttribute("aria-current", button.dataset.name === name);
    }
    announceResize();
  }

  /**
   * @param {HTMLElement} nav
   * @param {Record<string, string>} screens titles by name; the first one is shown
   */
  function screenMenu(nav, screens) {
    for (const [name, title] of Object.entries(screens)) {
      const choice = button("", () => showScreen(name), title);
      choice.dataset.name = name;
      nav.querySelector("[data-learn]")?.before(choice);
    }
    showScreen(Object.keys(screens)[0]);
  }

  return { screenRoot, shownScreen, showScreen, screenMenu };
})();
