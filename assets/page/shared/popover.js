// A button and the panel it opens. Knows how panels close: Escape, a click elsewhere, the focus going elsewhere.

TreeRace.popover = (() => {
  /** @type {((open: boolean) => void)[]} */
  const all = [];

  /**
   * `home` holds the button and the panel. Returns a function that opens (true) or closes (false) the panel.
   * @param {HTMLElement} home
   * @param {any} button
   * @param {any} panel
   * @returns {(open: boolean) => void}
   */
  function popover(home, button, panel) {
    const isOpen = () => !panel.hidden;
    /** @param {any} target */
    const within = (target) => home.contains(target);
    /** @param {boolean} open */
    const show = (open) => {
      panel.hidden = !open;
      button.setAttribute("aria-expanded", String(open));
    };
    button.addEventListener("click", () => show(!isOpen()));
    document.addEventListener("pointerdown", (event) => isOpen() && !within(event.target) && show(false));
    home.addEventListener("focusout", ({ relatedTarget: to }) => to && !within(to) && show(false));
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !isOpen()) return;
      show(false);
      button.focus();
    });
    show(false);
    all.push(show);
    return show;
  }

  // What covers them, or takes them off the page, leaves none of them open.
  function closeAll() {
    for (const show of all) show(false);
  }

  return { popover, closeAll };
})();
