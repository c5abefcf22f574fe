// The keys of the page and the list of them. Knows which controls use a key themselves; what a key does is told by who adds it.
window.TreeRace = window.TreeRace || {};

(function (T) {
  T.TYPING = "input:not([type=range], [type=radio], [type=checkbox]), textarea, select, [role=listbox], [role=option], [contenteditable]";
  const { make } = T;
  const MOVING = "[type=radio], [type=range]:not([data-scrub])";
  const PRESSED = "button, summary, [role=button], [type=checkbox]";
  const UNHELD = ".segments label, .scrub button, .go, .halt"; // after a click the keys are the page's again
  const entries = []; // { keys, words, actions, screen }: without a screen they work on all of them
  let dialog;

  function uses(target, key) {
    if (!target.closest || target.closest(T.TYPING)) return true;
    if (target.matches(MOVING)) return key.startsWith("Arrow") || key === "Home" || key === "End";
    return key === " " && target.closest(PRESSED) !== null;
  }

  function press(event) {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const modified = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && key.length > 1);
    if (modified || event.defaultPrevented || dialog?.open || uses(event.target, key)) return;
    const { screen } = document.querySelector("#screen").dataset;
    const entry = entries.find((each) => each.actions[key] && (each.screen ?? screen) === screen);
    if (!entry) return;
    event.preventDefault();
    if (!event.repeat || key.startsWith("Arrow")) entry.actions[key]();
  }

  function rows(title, those) {
    const list = make("dl");
    for (const { keys, words } of those) {
      const term = make("dt", "", ...keys.flatMap((key) => [make("kbd", "", key), " "]));
      list.append(term, make("dd", "", words));
    }
    return [make("h3", "", title), list];
  }

  function showList() {
    dialog = make("dialog", "keys");
    dialog.setAttribute("aria-label", "Keys");
    const close = make("button", "", "×");
    close.type = "button";
    close.setAttribute("aria-label", "Close");
    close.addEventListener("click", () => dialog.close());
    const [race, everywhere] = [true, false].map((of) => entries.filter((each) => Boolean(each.screen) === of));
    dialog.append(make("h2", "", "Keys"), close, ...rows("The race", race), ...rows("Everywhere", everywhere));
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // beside the list
    dialog.addEventListener("keydown", (event) => event.key === "?" && dialog.close());
    dialog.addEventListener("close", () => dialog.remove());
    document.querySelector("#screen").after(dialog);
    dialog.showModal();
  }

  // `keys` and `words` are for the list; `actions` by the name of the key, letters in lower case.
  T.addKeys = (keys, words, actions, screen) => entries.push({ keys, words, actions, screen });
  T.showKeys = showList;

  T.addKeys(["?"], "this list; Escape closes it", { "?": showList });
  document.addEventListener("keydown", press);
  document.addEventListener("click", ({ detail, target }) => {
    const held = document.activeElement;
    if (detail && target.closest(UNHELD)?.contains(held)) held.blur();
  });
})(window.TreeRace);
