// Presentation mode: the screen that is shown, alone and large, in full screen where the browser allows it. Knows nothing of races.

TreeRace.presentation = (() => {
  const { announceResize } = TreeRace.elements;
  const { pressRace } = TreeRace.form;
  const { addKeys } = TreeRace.keys;
  const { closeAll } = TreeRace.popover;
  const { screenRoot } = TreeRace.screens;

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

  return { mountPresentation };
})();
