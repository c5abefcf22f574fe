// Dark or light, as the visitor chose it. Knows the button and the browser's storage.

TreeRace.darkMode = (() => {
  const { withStore } = TreeRace.elements;
  const { addKeys } = TreeRace.keys;
  const STORED = "treerace-dark";

  /** @param {HTMLButtonElement} button */
  function mountDarkMode(button) {
    const show = () => {
      const dark = document.body.classList.contains("dark");
      button.setAttribute("aria-pressed", String(dark));
      button.textContent = dark ? "☀" : "☾";
    };
    button.addEventListener("click", () => {
      const dark = document.body.classList.toggle("dark");
      withStore("localStorage", (store) => store.setItem(STORED, String(dark)));
      show();
    });
    addKeys(["D"], "dark or light", { d: () => button.click() });
    const chosen = withStore("localStorage", (store) => store.getItem(STORED));
    if (chosen !== null) document.body.classList.toggle("dark", chosen === "true");
    show();
  }

  return { mountDarkMode };
})();
