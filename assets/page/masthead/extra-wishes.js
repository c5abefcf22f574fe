// What the next race may have beside its form: a chain as a third lane, a tree that uses all its nodes. Knows two boxes and the hidden
// fields that take them to the server.
"use strict";

TreeRace.extraWishes = (() => {
  const { finder } = TreeRace.elements;
  const { fill } = TreeRace.form;

  /** @type {Record<string, string>} the hidden field of each box, which holds the box's name where it is checked */
  const FIELDS = { chain: "#third-lane textarea", full: "#full-budget textarea" };

  /**
   * Shows the boxes where there is a server that can race so.
   * @param {HTMLElement} root
   */
  function offerWishes(root) {
    const at = finder(root);
    for (const [name, field] of Object.entries(FIELDS)) {
      const box = at(name);
      at(`with-${name}`).hidden = false;
      box.addEventListener("change", () => fill(field, box.checked ? name : ""));
    }
  }

  return { offerWishes };
})();
