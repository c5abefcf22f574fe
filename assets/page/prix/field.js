// The field of a grand prix: which systems are to race. Knows their names and promises; nothing of clocks.

TreeRace.field = (() => {
  const { finder, make } = TreeRace.elements;
  const { lacks, onLacks } = TreeRace.systemNames;
  const { popover } = TreeRace.popover;

  const FEWEST = 4; // systems of a preset whose own the pair lacks, as far as there are others

  /** @type {(some: string[], others: string[]) => boolean} */
  const areSame = (some, others) => some.length === others.length && others.every((name) => some.includes(name));

  class Field {
    /**
     * @param {HTMLElement} root
     * @param {FieldAbout} about
     * @param {(names: string[]) => void} onChange told which are to race
     */
    constructor(root, about, onChange) {
      this.about = about;
      this.onChange = onChange;
      /** @type {string[]} */
      this.names = [];
      this.title = ""; // of the preset that was taken, "" for a field of the visitor's own
      this.at = finder(root, "prix-");
      for (const title of Object.keys(about.presets)) this.at("presets").append(this.preset(title));
      for (const promise of Object.keys(about.promises)) this.at("entries").append(this.group(promise));
      this.open = popover(this.at("open"));
      this.titles = Object.keys(about.presets);
      this.take(this.titles[0]);
      onLacks(() => this.follow());
    }

    /** @param {string} title of a preset whose systems race, with others in place of what the pair cannot race */
    fieldOf(title) {
      const { presets, standIns } = this.about;
      const there = presets[title].filter((name) => !(name in lacks().systems));
      if (there.length === presets[title].length) return there;
      const more = standIns.filter((name) => !there.includes(name) && !(name in lacks().systems));
      return [...there, ...more.slice(0, Math.max(0, FEWEST - there.length))];
    }

    // Which of the preset's systems the pair cannot race, in a sentence; "" for none, and for a field of the visitor's own.
    get leftOut() {
      const { presets, systems } = this.about;
      const names = (presets[this.title] ?? []).filter((name) => name in lacks().systems);
      const titles = names.map((name) => systems[name].title).join(", ");
      return titles && `Left out, for this model lacks what they need: ${titles}.`;
    }

    // Another pair, or more is known of it.
    follow() {
      const fields = this.titles.map((title) => this.fieldOf(title));
      for (const [at, input] of [...this.at("presets").querySelectorAll("input")].entries())
        input.parentElement.hidden = fields.findIndex((each) => areSame(each, fields[at])) < at; // it is another preset's field
      this.mark();
      if (!this.at("choose").disabled) this.settle();
    }

    // A preset is taken anew, and of another field goes what cannot race, where the pair races less or more than before.
    settle() {
      const there = this.names.filter((name) => !(name in lacks().systems));
      if (!this.title && there.length < this.about.least) this.title = this.titles[0];
      const names = this.title ? this.fieldOf(this.title) : there;
      if (!areSame(names, this.names)) this.choose(names);
    }

    /** @param {string} title of a preset */
    take(title) {
      this.title = title;
      this.choose(this.fieldOf(title));
    }

    /** @param {string} title */
    preset(title) {
      const input = make("input");
      Object.assign(input, { type: "radio", name: "prix-field", value: title });
      input.addEventListener("change", () => this.take(title));
      return make("label", "", input, make("span", "", title));
    }

    /** @param {string} promise */
    group(promise) {
      const group = make("fieldset", "", make("legend", "", this.about.promises[promise]));
      for (const [name, system] of Object.entries(this.about.systems)) {
        if (system.guarantee === promise) group.append(this.entry(name, system));
      }
      return group;
    }

    /**
     * @param {string} name
     * @param {System} system
     */
    entry(name, { label, idea }) {
      const box = make("input");
      Object.assign(box, { type: "checkbox", value: name });
      box.addEventListener("change", () => {
        this.own(box.checked ? [...this.names, name] : this.names.filter((each) => each !== name));
      });
      const entry = make("label", "", box, make("span", "", label ?? name), make("small"));
      entry.title = idea;
      return entry;
    }

    /** @param {string[]} names of a link or of the visitor's choice */
    own(names) {
      this.title = "";
      this.choose(names);
    }

    /** @param {string[]} names */
    choose(names) {
      this.names = names;
      this.mark();
      this.onChange(names);
    }

    // What is chosen, and what can be.
    mark() {
      const { baseline, least, most, systems } = this.about;
      const { names } = this;
      for (const input of this.at("presets").querySelectorAll("label:not([hidden]) input"))
        input.checked = areSame(names, this.fieldOf(input.value));
      for (const box of this.at("entries").querySelectorAll("input")) {
        const lack = lacks().systems[box.value];
        box.checked = names.includes(box.value);
        const full = box.checked ? names.length <= least : names.length >= most;
        box.disabled = box.value === baseline || full || Boolean(lack);
        box.parentElement.lastElementChild.textContent = lack ? ` needs ${lack.needs}` : "";
      }
      this.at("open").textContent = `${names.length} systems ▾`;
      const full = names.length >= most ? ` ${most} are the most: take one out to put another in.` : "";
      this.at("room").textContent = `All are compared with ${systems[baseline].label}.${full}`;
    }

    /** @param {boolean} racing whether the chosen ones race, and nothing can be changed */
    lock(racing) {
      if (racing) this.open(false);
      this.at("choose").disabled = racing;
    }
  }

  return { Field };
})();
