// The field of a grand prix: which systems are to race. Knows their names and promises; nothing of clocks.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const { make } = T;

  T.Field = class {
    // `about`: systems by name {label, idea, guarantee}, promises in words, presets by title, the baseline, and the least
    // and the most that may race.
    constructor(root, about, onChange) {
      Object.assign(this, about);
      this.onChange = onChange;
      this.at = (name) => root.querySelector(`[data-prix-${name}]`);
      for (const [title, names] of Object.entries(this.presets)) this.at("presets").append(this.preset(title, names));
      for (const promise of Object.keys(this.promises)) this.at("entries").append(this.group(promise));
      this.open = T.popover(this.at("menu"), this.at("open"), this.at("panel"));
      this.choose(Object.values(this.presets)[0]);
    }

    preset(title, names) {
      const label = make("label");
      const input = make("input");
      Object.assign(input, { type: "radio", name: "prix-field", value: title });
      input.addEventListener("change", () => this.choose(names));
      label.append(input, make("span", "", title));
      return label;
    }

    group(promise) {
      const group = make("fieldset", "", make("legend", "", this.promises[promise]));
      for (const [name, system] of Object.entries(this.systems)) {
        if (system.guarantee === promise) group.append(this.entry(name, system));
      }
      return group;
    }

    entry(name, { label, idea }) {
      const entry = make("label");
      const box = make("input");
      Object.assign(box, { type: "checkbox", value: name });
      box.addEventListener("change", () => {
        this.choose(box.checked ? [...this.names, name] : this.names.filter((each) => each !== name));
      });
      entry.title = idea;
      entry.append(box, make("span", "", label));
      return entry;
    }

    choose(names) {
      const { least, most } = this;
      this.names = names;
      const same = (other) => other.length === names.length && other.every((name) => names.includes(name));
      for (const input of this.at("presets").querySelectorAll("input")) input.checked = same(this.presets[input.value]);
      for (const box of this.at("entries").querySelectorAll("input")) {
        box.checked = names.includes(box.value);
        const fixed = box.value === this.baseline || (box.checked ? names.length <= least : names.length >= most);
        box.disabled = fixed;
      }
      this.at("open").textContent = `${names.length} systems ▾`;
      const full = names.length >= most ? ` ${most} are the most: take one out to put another in.` : "";
      this.at("room").textContent = `All are compared with ${this.systems[this.baseline].label}.${full}`;
      this.onChange(names);
    }

    // No changes while the chosen ones race.
    lock(racing) {
      if (racing) this.open(false);
      this.at("choose").disabled = racing;
    }
  };
})(window.TreeRace);
