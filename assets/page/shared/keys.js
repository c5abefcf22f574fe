// The keys of the page and the list of them. Knows which controls use a key themselves; what a key does is told by who adds it.

TreeRace.keys = (() => {
  const { button, make } = TreeRace.elements;
  const { screenRoot, shownScreen } = TreeRace.screens;

  const TYPING =
    "input:not([type=range], [type=radio], [type=checkbox]), textarea, select, [role=listbox], [role=option], [contenteditable]";
  const MOVING = "[type=radio], [type=range]:not([data-scrub])";
  const PRESSED = "button, summary, [role=button], [type=checkbox]";
  const UNHELD = ".segments label, .scrub button, .go, .halt, [data-text]"; // after a click the keys are the page's again

  /** @typedef {{ keys: string[], words: string, actions: Record<string, () => void>, screen?: string }} KeyEntry */
  /** @type {KeyEntry[]} without a screen they work on all of them */
  const entries = [];

  /**
   * @param {any} target
   * @param {string} key
   */
  function uses(target, key) {
    if (!target.closest || target.closest(TYPING)) return true;
    if (target.matches(MOVING)) return key.startsWith("Arrow") || key === "Home" || key === "End";
    return (key === " " || key === "Enter") && target.closest(`${PRESSED}${key === "Enter" ? ", a" : ""}`) !== null;
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const modified = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && key.length > 1);
    if (modified || event.defaultPrevented || document.querySelector("dialog[open]") || uses(event.target, key)) return;
    const screen = shownScreen();
    const entry = entries.find((each) => each.actions[key] && (each.screen ?? screen) === screen);
    if (!entry) return;
    event.preventDefault();
    if (!event.repeat || key.startsWith("Arrow")) entry.actions[key]();
  }

  /**
   * @param {string} title
   * @param {KeyEntry[]} those
   */
  function rows(title, those) {
    const list = make("dl");
    for (const { keys, words } of those) {
      const term = make("dt", "", ...keys.flatMap((key) => [make("kbd", "", key), " "]));
      list.append(term, make("dd", "", words));
    }
    return [make("h3", "", title), list];
  }

  function showKeys() {
    const list = make("dialog", "keys");
    list.setAttribute("aria-label", "Keys");
    const close = button("", () => list.close(), "×");
    close.setAttribute("aria-label", "Close");
    const [race, everywhere] = [true, false].map((of) => entries.filter((each) => Boolean(each.screen) === of));
    list.append(make("h2", "", "Keys"), close, ...rows("The race", race), ...rows("Everywhere", everywhere));
    list.addEventListener("click", (event) => event.target === list && list.close()); // beside the list
    list.addEventListener("keydown", (event) => {
      if (event.key !== "?") return;
      event.preventDefault(); // else it opens the list again
      list.close();
    });
    list.addEventListener("close", () => list.remove());
    screenRoot().after(list);
    list.showModal();
  }

  /**
   * @param {string[]} keys for the list
   * @param {string} words for the list
   * @param {Record<string, () => void>} actions by the name of the key, letters in lower case
   * @param {string} [screen]
   */
  function addKeys(keys, words, actions, screen) {
    entries.push({ keys, words, actions, screen });
  }

  addKeys(["?"], "this list; Escape closes it", { "?": showKeys });
  document.addEventListener("keydown", press);
  document.addEventListener("click", ({ detail, target }) => {
    const held = document.activeElement;
    const control = target instanceof Element ? target.closest(UNHELD) : null;
    if (detail && control?.contains(held)) /** @type {HTMLElement} */ (held).blur();
  });

  return { TYPING, addKeys, showKeys };
})();
