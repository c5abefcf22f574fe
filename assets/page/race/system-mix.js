// A system mixed by hand, out of three menus on a lane's card. The server says whether the parts go together; this only asks.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const IDEA = "Put a drafter, a tree policy and an acceptance rule together.";

  T.Mix = class {
    // `look(name)` asks the server about a mix; `field` is the hidden field that takes its name along to the race.
    constructor(card, look, field) {
      Object.assign(this, { card, look, field, active: false });
      this.menus = Object.entries(card.parts).map(([kind, names]) => {
        const menu = card.root.querySelector(`[data-part=${kind}] select`);
        menu.append(...Object.keys(names).map((name) => new Option(T.plainName(name), name)));
        menu.addEventListener("change", () => {
          this.restored = null;
          this.ask();
        });
        return [kind, menu];
      });
    }

    get parts() {
      return Object.fromEntries(this.menus.map(([kind, menu]) => [kind, menu.value]));
    }

    get name() {
      return Object.values(this.parts).join("/");
    }

    // Begins with the parts of the system that the lane had before, or quietly with those of a mix that was restored.
    begin(system) {
      const from = this.restored || system;
      for (const [kind, menu] of this.menus) menu.value = from[kind];
      this.active = true;
      this.ask();
      if (this.restored) return;
      this.card.open(true);
      this.menus[0][1].focus();
    }

    // The form is about to be set to this mix, and to the shape that goes with it.
    restore(name) {
      const parts = name.split("/");
      this.restored = Object.fromEntries(this.menus.map(([kind], index) => [kind, parts[index]]));
      if (this.active) this.begin();
    }

    async ask() {
      const name = this.name;
      T.fill(this.field, name);
      for (const [kind, menu] of this.menus) this.card.part(kind, menu.value, true);
      const answer = await T.answered(this.look(name));
      if (!this.active || name !== this.name) return; // chosen anew meanwhile
      const none = { name, title: "your own mix", guarantee: "refused", cost: "–", source: "–", ...this.parts };
      this.card.show({ ...none, ...answer, idea: IDEA }, true, answer.refused);
    }
  };
})(window.TreeRace);
