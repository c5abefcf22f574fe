// How the page is shown: dark or light, as the visitor chose it, and the presentation mode, in which the screen that is shown stands alone
// and large, in full screen where the browser allows it. Knows nothing of races.

TreeRace.presentation = (() => {
  const { announceResize, withStore } = TreeRace.elements;
  const { pressRace } = TreeRace.form;
  const { addKeys } = TreeRace.keys;
  const { closeAll } = TreeRace.popover;
  const { screenRoot } = TreeRace.screens;

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

  /**
   * @param {HTMLButtonElement} button
   * @param {HTMLButtonElement} [race] a small one, where the form's is hidden
   */
  function mountPresentation(button, race) {
    const screen = screenRoot();
    const isOn = () => screen.hasAttribute("data-stage");

    /** @param {boolean} on */
    const show = (on) => {
      if (on !== isOn()) closeAll();
      screen.toggleAttribute("data-stage", on);
      button.setAttribute("aria-pressed", String(on));
      announceResize();
    };
    const leaveFullScreen = () => document.fullscreenElement && document.exitFullscreen();
    const toggle = () => {
      show(!isOn());
      if (!isOn()) leaveFullScreen();
      else
        document.documentElement.requestFullscreen?.().then(
          () => (isOn() ? null : leaveFullScreen()), // left before the screen was full
          () => {}, // refused: large in its window
        );
    };
    /** @param {KeyboardEvent} event */
    const leave = (event) => {
      const above = [...document.querySelectorAll("dialog[open], [data-telling]")]; // Escape leaves that first
      if (event.key === "Escape" && isOn() && !above.some((each) => each.getClientRects().length)) toggle();
    };

    button.addEventListener("click", toggle);
    race?.addEventListener("click", pressRace);
    addKeys(["F"], "presentation: the screen alone, large; F or Escape leaves", { f: toggle });
    document.addEventListener("keydown", leave, true);
    document.addEventListener("fullscreenchange", () => !document.fullscreenElement && show(false));
  }

  return { mountDarkMode, mountPresentation };
})();
