// The screens of the page, and what its address holds: the screen, Learn's page, the step and the form. Back and Forward go between screens,
// and a link comes back to all of it. Knows names and numbers; what they mean, the screens know.

TreeRace.screens = (() => {
  const { announceResize, button, findAll, inNextFrame } = TreeRace.elements;

  const LONGEST = 8000; // letters; servers refuse longer addresses
  const SETTINGS = ["left", "right", "depth", "width", "nodes", "temperature", "tokens", "seed", "constraint"];
  const FORM = ["prompt", "pair", ...SETTINGS];

  /** @param {string} name */
  const read = (name) => new URLSearchParams(location.search).get(name);

  /** @param {Record<string, unknown>} settings that the link sets */
  function linkTo(settings) {
    const query = new URLSearchParams(Object.entries(settings).map(([name, value]) => [name, String(value)]));
    return `${location.origin}${location.pathname}?${query}`;
  }

  let follows = false; // what the browser's history asks for is no news to it

  /**
   * Writes these names into the address; null takes a name out. `isNew` makes a place to come back from.
   * @param {Record<string, string | number | null>} values
   * @param {boolean} [isNew]
   */
  function write(values, isNew = false) {
    const address = new URL(location.href);
    for (const [name, value] of Object.entries(values)) {
      if (value === null) address.searchParams.delete(name);
      else address.searchParams.set(name, String(value));
    }
    if (address.href === location.href || address.href.length > LONGEST) return;
    if (isNew && !follows) history.pushState(history.state, "", address);
    else history.replaceState(history.state, "", address);
  }

  /** @param {string} query the form's settings, as a link has them */
  function writeForm(query) {
    const named = new URLSearchParams(query);
    write(Object.fromEntries(FORM.map((name) => [name, named.get(name)])));
  }

  /** @param {RaceView} view */
  function followStep(view) {
    const note = inNextFrame(() => {
      if (!view.playing && !view.isLive && view.recorded === null && view.run)
        write({ step: view.step < 0 ? null : view.step + 1 });
    });
    view.addEventListener("change", note);
  }

  /**
   * Shows that step, once a race that was asked for is over.
   * @param {RaceView} view
   * @param {number} step
   */
  function comeBackTo(view, step) {
    const look = () => {
      if (view.recorded !== null || !view.result || !view.atEnd || view.playing) return;
      view.removeEventListener("change", look);
      if (step < view.steps.length - 1) view.go(step);
    };
    view.addEventListener("change", look);
  }

  /** @param {() => void} show called when Back or Forward was pressed */
  function onReturn(show) {
    window.addEventListener("popstate", () => {
      follows = true;
      show();
      setTimeout(() => {
        follows = false;
      });
    });
  }

  // The element that holds all screens; its data attributes say what is shown, for the styles.
  const screenRoot = () => /** @type {HTMLElement} */ (document.querySelector("#screen"));

  const shownScreen = () => screenRoot().dataset.screen;

  /** @param {string} name of the screen; the others keep what they hold */
  function showScreen(name) {
    screenRoot().dataset.screen = name;
    for (const button of findAll(document, "[data-screens] button")) {
      button.toggleAttribute("aria-current", button.dataset.name === name);
    }
    announceResize();
  }

  /** @param {string} name of the screen, to which Back comes back */
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

  return {
    FORM,
    LONGEST,
    SETTINGS,
    comeBackTo,
    followStep,
    linkTo,
    read,
    write,
    writeForm,
    goToScreen,
    screenRoot,
    shownScreen,
    showScreen,
    screenMenu,
  };
})();
