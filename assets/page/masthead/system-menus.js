// Tab over the two menus of systems: the list of the one that is left closes, and the focus is never lost in it. Knows Gradio's menus from
// outside.
"use strict";

TreeRace.systemMenus = (() => {
  function mendTab() {
    // Gradio opens its list at every key, Tab among them, and lets Tab go into a list that is about to vanish
    window.addEventListener(
      "keydown",
      (event) => {
        if (event.key !== "Tab" || !(event.target instanceof Element && event.target.closest("#systems input"))) return;
        event.stopPropagation();
        for (const list of /** @type {NodeListOf<HTMLElement>} */ (
          document.querySelectorAll("#systems [role=listbox]")
        ))
          list.tabIndex = -1;
      },
      { capture: true },
    );
  }

  return { mendTab };
})();
