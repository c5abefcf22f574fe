// A menu of titles and prompts. Knows its entries; what taking one means is told by who makes it.
"use strict";

TreeRace.gallery = (() => {
  const { make } = TreeRace.elements;
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
    const button = make("button", "chip", name);
    button.type = "button";
    const panel = make("div", "panel prompts");
    const open = popover(menu, button, panel);
    for (const entry of entries) {
      const choice = make("button", "prompt");
      choice.type = "button";
      choice.append(make("b", "", entry.title), make("span", "", entry.prompt));
      choice.addEventListener("click", () => {
        open(false);
        choose(entry);
        goButton()?.focus();
      });
      panel.append(choice);
    }
    menu.append(button, panel);
    return menu;
  }

  return { galleryMenu };
})();
