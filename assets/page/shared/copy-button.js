// Buttons that copy, and menus of systems. Knows no view.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const SHOWN_MS = 1500; // how long a button says that it has copied

  // A page without the right to use the clipboard may still copy a selection.
  function selected(text) {
    const area = document.createElement("textarea");
    area.value = text;
    area.style.cssText = "position:fixed;opacity:0";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  T.copy = async function (text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return selected(text);
    }
  };

  // The button copies what `text()` gives, and says so.
  T.copyButton = function (button, text) {
    const name = button.textContent;
    button.addEventListener("click", async () => {
      button.textContent = (await T.copy(text())) ? "Copied" : "Not copied";
      clearTimeout(button.timer);
      button.timer = setTimeout(() => (button.textContent = name), SHOWN_MS);
      button.focus();
    });
  };

  T.fillSystems = function (menu, systems, chosen) {
    for (const [name, system] of Object.entries(systems)) menu.append(new Option(T.markedTitle(system), name));
    menu.value = chosen;
  };
})(window.TreeRace);
