// A button and the panel it opens, such as a menu of prompts. Knows how panels close: Escape, a click elsewhere, the focus going elsewhere.

TreeRace.popover = (() => {
  const { button, make } = TreeRace.elements;
  const { goButton } = TreeRace.form;

  /** @type {((open: boolean) => void)[]} */
  const all = [];

  // Returns a function that opens (true) or closes (false) the panel.
  /** @param {any} opener before its panel, both alone in an element */
  function popover(opener) {
    /** @type {Record<string, HTMLElement>} */
    const { parentElement: home, nextElementSibling: panel } = opener;
    const isOpen = () => !panel.hidden;
    /** @param {any} target */
    const within = (target) => home.contains(target);
    /** @param {boolean} open */
    const show = (open) => {
      panel.hidden = !open;
      opener.setAttribute("aria-expanded", String(open));
    };
    opener.addEventListener("click", () => show(!isOpen()));
    document.addEventListener("pointerdown", (event) => isOpen() && !within(event.target) && show(false));
    home.addEventListener("focusout", ({ relatedTarget: to }) => to && !within(to) && show(false));
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !isOpen()) return;
      show(false);
      opener.focus();
    });
    show(false);
    all.push(show);
    return show;
  }

  // What covers them, or takes them off the page, leaves none of them open.
  function closeAll() {
    for (const show of all) show(false);
  }

  /**
   * `choose` is told which entry was taken.
   * @template {{ title: string, prompt: string }} Entry
   * @param {string} name
   * @param {Entry[]} entries
   * @param {(entry: Entry) => void} choose
   */
  function galleryMenu(name, entries, choose) {
    const opener = make("button", "chip", name);
    opener.type = "button";
    const panel = make("div", "panel prompts");
    const menu = make("div", "menu", opener, panel);
    const open = popover(opener);
    for (const entry of entries) {
      const take = () => {
        open(false);
        choose(entry);
        goButton()?.focus();
      };
      panel.append(button("prompt", take, make("b", "", entry.title), make("span", "", entry.prompt)));
    }
    return menu;
  }

  return { closeAll, galleryMenu, popover };
})();
