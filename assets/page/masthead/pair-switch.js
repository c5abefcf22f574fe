// The switch between the pairs that the page offers: on which one the visitor's next runs race. Knows the pairs by name and title; nothing
// of races.

TreeRace.pairSwitch = (() => {
  const { make } = TreeRace.elements;
  const { press } = TreeRace.form;
  const { addKeys } = TreeRace.keys;

  // Says "change" when another pair was chosen, and when what is known of them has changed.
  class PairSwitch extends EventTarget {
    /** @type {OfferedPair[]} none where there is no choice */
    offered = [];
    /** @type {OwnPair | undefined} the page's own pair, on which runs are where there is no choice */
    own = undefined;
    name = ""; // of the chosen one; "" for the page's own

    /**
     * @param {HTMLElement} root
     * @param {{ plain: Gallery, chat: Gallery }} galleries the prompts for pairs that go on with a text, and for those that answer
     */
    constructor(root, galleries) {
      super();
      this.root = root;
      this.galleries = galleries;
      addKeys(["M"], "the next model, where there are several", { m: () => this.turn() });
    }

    // What is known of the pair on which the next run is.
    get spoken() {
      return this.offered.find(({ name }) => name === this.name) ?? this.own;
    }

    // The prompts that suit that pair, by domain.
    get gallery() {
      return this.spoken?.chat ? this.galleries.chat : this.galleries.plain;
    }

    /** @param {OwnPair} own the page's own pair, and all that are offered, of which the server may know more than before */
    hear(own) {
      const { pairs } = own;
      this.own = own;
      const isNew = pairs.length !== this.offered.length;
      this.offered = pairs;
      this.name ||= pairs.find(({ own }) => own)?.name ?? "";
      if (isNew) this.root.replaceChildren(...pairs.map((pair) => this.choice(pair)));
      this.root.hidden = !pairs.length;
      this.show();
    }

    /** @param {OfferedPair} pair */
    choice({ name, size, title, memory }) {
      const radio = make("input");
      Object.assign(radio, { type: "radio", name: "pair", value: name });
      radio.addEventListener("change", () => this.pick(name));
      const label = make("label", "", radio, make("span", "", size));
      label.title = `Race on the ${title}, ${memory} of memory`;
      return label;
    }

    /** @param {string | undefined} name of the pair to take, where it is offered */
    choose(name) {
      if (!this.offered.some((pair) => pair.name === name)) return;
      this.name = name ?? "";
      this.show();
    }

    // Takes that pair because the visitor wants it: the dials take its shapes. A link brings its own.
    /** @param {string | undefined} name */
    pick(name) {
      this.choose(name);
      press("#take-shape");
    }

    // The dials take the shape that is best on the chosen pair.
    asked() {
      return { pair: this.name };
    }

    turn() {
      const at = this.offered.findIndex(({ name }) => name === this.name);
      this.pick(this.offered[(at + 1) % this.offered.length]?.name);
    }

    /** @param {string} title by which a race names its pair */
    titled(title) {
      return this.offered.find((pair) => pair.title === title);
    }

    show() {
      for (const radio of this.root.querySelectorAll("input")) radio.checked = radio.value === this.name;
      this.dispatchEvent(new Event("change"));
    }
  }

  return { PairSwitch };
})();
