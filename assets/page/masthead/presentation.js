// Presentation mode: the screen that is shown, alone and large, in full screen where the browser allows it. Knows nothing of races.
"use strict";

TreeRace.presentation = (() => {
  const { announceResize } = TreeRace.elements;
  const { addKeys } = TreeRace.keys;
  const { screenRoot } = TreeRace.screens;

  /** @param {HTMLButtonElement} button */
  function mountPresentation(button) {
    const screen = screenRoot();
    const isOn = () => screen.hasAttribute("data-stage");

    /** @param {boolean} on */
    const show = (on) => {
      screen.toggleAttribute("data-stage", on);
      button.setAttribute("aria-pressed", String(on));
      announceResize();
    };
    const toggle = () => {
      show(!isOn());
      if (isOn())
        document.documentElement.requestFullscreen?.().catch(() => {}); // refused: large in its window
      else if (document.fullscreenElement) document.exitFullscreen();
    };
    /** @param {KeyboardEvent} event */
    const leave = (event) => {
      const another = document.querySelector("dialog[open], [aria-expanded=true]"); // Escape closes that first
      if (event.key === "Escape" && isOn() && !another) toggle();
    };

    button.addEventListener("click", toggle);
    addKeys(["F"], "presentation: the screen alone, large; F or Escape leaves", { f: toggle });
    document.addEventListener("keydown", leave, true);
    document.addEventListener("fullscreenchange", () => !document.fullscreenElement && show(false));
  }

  return { mountPresentation };
})();
