// Buttons that copy. Knows no view.

TreeRace.copyButton = (() => {
  const SHOWN_MS = 1500; // how long a button says that it has copied

  /**
   * A page without the right to use the clipboard may still copy a selection.
   * @param {string} text
   */
  function copySelected(text) {
    const area = document.createElement("textarea");
    area.value = text;
    area.style.cssText = "position:fixed;opacity:0";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  /** @param {string} text */
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copySelected(text);
    }
  }

  /**
   * The button copies what `text()` gives, and says so.
   * @param {HTMLButtonElement} button
   * @param {() => string} text
   */
  function copyButton(button, text) {
    const name = button.textContent;
    let timer = 0;
    button.addEventListener("click", async () => {
      button.textContent = (await copy(text())) ? "Copied" : "Not copied";
      clearTimeout(timer);
      timer = setTimeout(() => {
        button.textContent = name;
      }, SHOWN_MS);
      button.focus();
    });
  }

  return { copy, copyButton };
})();
