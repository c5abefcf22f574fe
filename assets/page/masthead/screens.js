// The screens of the page: which one is shown, and the menu of them. Knows their names; nothing of what they show.

TreeRace.screens = (() => {
  const { onReturn, read, write } = TreeRace.address;
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
   * Shows a screen, to which Back comes back.
   * @param {string} name
   */
  function goToScreen(name) {
    const isNew = name !== shownScreen();
    showScreen(name);
    if (isNew) write({ screen: name === first ? null : name }, true);
  }

  let first = ""; // the screen that an address names by naming none

  /**
   * @param {HTMLElement} nav
   * @param {Record<string, string>} screens titles by name; the first one is shown where the address names none
   */
  function screenMenu(nav, screens) {
    for (const [name, title] of Object.entries(screens)) {
      const choice = button("", () => goToScreen(name), title);
      choice.dataset.name = name;
      nav.querySelector("[data-learn]")?.before(choice);
    }
    [first] = Object.keys(screens);
    const follow = () => {
      const named = read("screen") ?? first;
      showScreen(named in screens ? named : first);
      TreeRace.walk?.follow();
    };
    onReturn(follow);
    follow();
  }

  return { goToScreen, screenRoot, shownScreen, showScreen, screenMenu };
})();
