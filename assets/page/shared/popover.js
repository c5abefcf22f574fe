// A button and the panel it opens. Knows how panels close: Escape, a click elsewhere, the focus going elsewhere.
window.TreeRace = window.TreeRace || {};

(function (T) {
  // `home` holds the button and the panel. Returns a function that opens (true) or closes (false) the panel.
  T.popover = function (home, button, panel) {
    const isOpen = () => !panel.hidden;
    const show = (open) => {
      panel.hidden = !open;
      button.setAttribute("aria-expanded", String(open));
    };
    button.addEventListener("click", () => show(!isOpen()));
    document.addEventListener("pointerdown", (event) => isOpen() && !home.contains(event.target) && show(false));
    home.addEventListener("focusout", ({ relatedTarget: to }) => to && !home.contains(to) && show(false));
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !isOpen()) return;
      show(false);
      button.focus();
    });
    show(false);
    return show;
  };
})(window.TreeRace);
