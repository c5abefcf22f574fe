// The two menus of systems, as Gradio makes them: Tab leaves them, and what the pair cannot race stays readable in them and cannot be
// chosen. Knows Gradio's menus from outside.

TreeRace.systemMenus = (() => {
  const { findAll, whenThere } = TreeRace.elements;
  const { press } = TreeRace.form;
  const { insteadWords, lacks, markedTitle, onLacks } = TreeRace.systemNames;

  const OPTION = "#systems [role=option]";
  const ANY = { left: "vanilla", right: "auto" }; // what any target can race, by lane
  const LACKING = `${OPTION}[aria-disabled=true]`;

  /** @param {KeyboardEvent} event */
  const isTyped = ({ target }) => target instanceof Element && target.closest("#systems input");

  function mendTab() {
    // Gradio opens its list at every key, Tab among them, and lets Tab go into a list that is about to vanish
    window.addEventListener(
      "keydown",
      (event) => {
        if (event.key !== "Tab" || !isTyped(event)) return;
        event.stopPropagation();
        for (const list of findAll(document, "#systems [role=listbox]")) list.tabIndex = -1;
      },
      { capture: true },
    );
  }

  // A lane whose system the pair cannot race takes one that any target can. The walk sets its own.
  async function replaceLacking() {
    const { view, controls, take, walk } = TreeRace;
    const { systems } = view.about;
    /** @type {Settings} */
    const wish = {};
    const words = [];
    for (const [index, [side, any]] of Object.entries(ANY).entries()) {
      const name = view.lanes[index].chosen?.name ?? ""; // a mix has its own words
      if (!(name in lacks().systems)) continue;
      wish[side] = any;
      words.push(insteadWords([name, any], systems));
    }
    if (!words.length || walk?.isOpen) return;
    await controls.set(wish, {});
    press("#take-shape");
    take.say(words.join(" "));
  }

  // Entries of systems that the pair cannot race say what they need.
  function markLacking() {
    /** @type {Map<string | null, string>} what is needed, by an entry's label */
    let needs = new Map();
    const mark = () => {
      for (const option of findAll(document, OPTION)) {
        const need = needs.get(option.ariaLabel);
        if (need) option.dataset.needs = need;
        if (need) option.ariaDisabled = "true";
        else option.removeAttribute("aria-disabled");
      }
    };
    /** @param {MouseEvent | KeyboardEvent} event that would choose such an entry */
    const refuse = (event) => {
      const isEnter = event instanceof KeyboardEvent && event.key === "Enter" && isTyped(event);
      const isClick = event instanceof MouseEvent && event.target instanceof Element && event.target.closest(LACKING);
      if (!isClick && !(isEnter && document.querySelector(`${LACKING}.active`))) return;
      event.preventDefault();
      event.stopPropagation();
    };
    whenThere(
      () => TreeRace.view && TreeRace.take && document.querySelector("#systems"),
      () => {
        const { systems } = TreeRace.view.about;
        onLacks(() => {
          const lacking = Object.entries(lacks().systems);
          needs = new Map(lacking.map(([name, lack]) => [markedTitle(systems[name]), `needs ${lack.needs}`]));
          mark();
          replaceLacking();
        });
        // A list is made anew when it opens, and its entries get other labels while somebody types
        const changes = { childList: true, subtree: true, attributeFilter: ["aria-label"] };
        new MutationObserver(mark).observe(/** @type {Element} */ (document.querySelector("#systems")), changes);
      },
    );
    window.addEventListener("mousedown", refuse, { capture: true });
    window.addEventListener("keydown", refuse, { capture: true });
  }

  return { markLacking, mendTab };
})();
