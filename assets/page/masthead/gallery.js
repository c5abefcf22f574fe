// A menu of titles and prompts. Knows its entries; what taking one means is told by who makes it.

TreeRace.gallery = (() => {
  const { button, make } = TreeRace.elements;
  const { goButton } = TreeRace.form;
  const { popover } = TreeRace.popover;

  /**
   * `choose` is told which entry was taken.
   * @template {{ title: string, prompt: string }} Entry
   * @param {string} name
   * @param {Entry[]} entries
   * @param {(entry: Entry) => void} choose
   */
  function galleryMenu(name, entries, choose) {
    const menu = make("div", "menu");
    const opener = make("button", "chip", name);
    opener.type = "button";
    const panel = make("div", "panel prompts");
    const open = popover(menu, opener, panel);
    for (const entry of entries) {
      const take = () => {
        open(false);
        choose(entry);
        goButton()?.focus();
      };
      panel.append(button("prompt", take, make("b", "", entry.title), make("span", "", entry.prompt)));
    }
    menu.append(opener, panel);
    return menu;
  }

  return { galleryMenu };
})();
