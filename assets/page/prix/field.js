// The field of a grand prix: which systems are to race. Knows their names and promises; nothing of clocks.
"use strict";

TreeRace.field = (() => {
  const { finder, make } = TreeRace.elements;
  const { popover } = TreeRace.popover;

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
      this.at = finder(root, "prix-");
      for (const [title, names] of Object.entries(about.presets)) this.at("presets").append(this.preset(title, names));
      for (const promise of Object.keys(about.promises)) this.at("entries").append(this.group(promise));
      this.open = popover(this.at("menu"), this.at("open"), this.at("panel"));
      this.choose(Object.values(about.presets)[0]);
    }

    /**
     * @param {string} title
     * @param {string[]} names
     */
    preset(title, names) {
      const input = make("input");
      Object.assign(input, { type: "radio", name: "prix-field", value: title });
      input.addEventListener("change", () => this.choose(names));
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
        this.choose(box.checked ? [...this.names, name] : this.names.filter((each) => each !== name));
      });
      const entry = make("label", "", box, make("span", "", label ?? name));
      entry.title = idea;
      return entry;
    }

    /** @param {string[]} names */
    choose(names) {
      const { baseline, least, most, presets, systems } = this.about;
      this.names = names;
      /** @param {string[]} other */
      const same = (other) => other.length === names.length && other.every((name) => names.includes(name));
      for (const input of this.at("presets").querySelectorAll("input")) input.checked = same(presets[input.value]);
      for (const box of this.at("entries").querySelectorAll("input")) {
        box.checked = names.includes(box.value);
        box.disabled = box.value === baseline || (box.checked ? names.length <= least : names.length >= most);
      }
      this.at("open").textContent = `${names.length} systems ▾`;
      const full = names.length >= most ? ` ${most} are the most: take one out to put another in.` : "";
      this.at("room").textContent = `All are compared with ${systems[baseline].label}.${full}`;
      this.onChange(names);
    }

    /**
     * No changes while the chosen ones race.
     * @param {boolean} racing
     */
    lock(racing) {
      if (racing) this.open(false);
      this.at("choose").disabled = racing;
    }
  }

  return { Field };
})();
