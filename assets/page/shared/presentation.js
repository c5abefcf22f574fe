// Presentation mode: the screen that is shown, alone and large, in full screen where the browser allows it. Knows nothing of races.
window.TreeRace = window.TreeRace || {};

(function (T) {
  T.mountStage = function (button) {
    const screen = document.querySelector("#screen");
    const isOn = () => screen.hasAttribute("data-stage");

    const show = (on) => {
      screen.toggleAttribute("data-stage", on);
      button.setAttribute("aria-pressed", String(on));
      window.dispatchEvent(new Event("resize")); // pictures take their new size
    };
    const toggle = () => {
      show(!isOn());
      if (isOn()) document.documentElement.requestFullscreen?.().catch(() => {}); // refused: large in its window
      else if (document.fullscreenElement) document.exitFullscreen();
    };
    const leave = (event) => {
      const another = document.querySelector("dialog[open], [aria-expanded=true]"); // Escape closes that first
      if (event.key === "Escape" && isOn() && !another) toggle();
    };

    button.addEventListener("click", toggle);
    T.addKeys(["F"], "presentation: the screen alone, large; F or Escape leaves", { f: toggle });
    document.addEventListener("keydown", leave, true);
    document.addEventListener("fullscreenchange", () => !document.fullscreenElement && show(false));
  };
})(window.TreeRace);
