// Dark or light, as the visitor chose it. Knows the button and the browser's storage.

TreeRace.darkMode = (() => {
  const { addKeys } = TreeRace.keys;
  const STORED = "treerace-dark";

  // A browser may forbid storage; then the choice holds for this visit only.
  const memory = {
    read() {
      try {
        return localStorage.getItem(STORED);
      } catch {
        return null;
      }
    },
    /** @param {boolean} dark */
    write(dark) {
      try {
        localStorage.setItem(STORED, String(dark));
      } catch {
        // nothing to do
      }
    },
  };

  /** @param {HTMLButtonElement} button */
  function mountDarkMode(button) {
    const show = () => {
      const dark = document.body.classList.contains("dark");
      button.setAttribute("aria-pressed", String(dark));
      button.textContent = dark ? "☀" : "☾";
    };
    button.addEventListener("click", () => {
      memory.write(document.body.classList.toggle("dark"));
      show();
    });
    addKeys(["D"], "dark or light", { d: () => button.click() });
    const chosen = memory.read();
    if (chosen !== null) document.body.classList.toggle("dark", chosen === "true");
    show();
  }

  return { mountDarkMode };
})();
