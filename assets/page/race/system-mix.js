// A system mixed by hand, out of three menus on a lane's card. The server says whether the parts go together; this only asks.

TreeRace.systemMix = (() => {
  const { fill } = TreeRace.form;
  const { lacks, onLacks } = TreeRace.lacks;
  const { markOptions, plainName } = TreeRace.systemNames;
  const { Questions } = TreeRace.answers;

  /** @type {{ title: string, idea: string, guarantee: Guarantee }} */
  const MIX = {
    title: "your own mix",
    idea: "A drafter, a tree policy and an acceptance rule of your choice.",
    guarantee: "refused",
  };
  const IDEA = "Put a drafter, a tree policy and an acceptance rule together.";

  class SystemMix {
    /**
     * @param {SystemCard} card
     * @param {Look | undefined} look asks the server about a mix; a page without a server never asks
     * @param {string} field the hidden field that takes the mix's name along to the race
     */
    constructor(card, look, field) {
      this.card = card;
      this.look = look;
      this.field = field;
      this.active = false;
      this.questions = new Questions();
      /** @type {Record<string, string> | null} parts out of a link or a file, with a shape that goes with them */
      this.restored = null;
      this.menus = Object.entries(card.parts).map(([kind, names]) => {
        const menu = /** @type {HTMLSelectElement} */ (card.root.querySelector(`[data-part=${kind}] select`));
        menu.append(...Object.keys(names).map((name) => new Option(plainName(name), name)));
        menu.addEventListener("change", () => {
          this.restored = null;
          this.ask();
        });
        return { kind, menu };
      });
      if (look) onLacks(() => this.mark());
    }

    // What the pair lacks cannot be put in, and a mix with it cannot race any more.
    mark() {
      for (const { kind, menu } of this.menus) markOptions(menu, lacks()[kind]);
      if (this.active) this.ask();
    }

    /** @returns {Record<string, string>} */
    get parts() {
      return Object.fromEntries(this.menus.map(({ kind, menu }) => [kind, menu.value]));
    }

    get name() {
      return Object.values(this.parts).join("/");
    }

    /**
     * Begins with the parts of the system that the lane had before, or quietly with those of a mix that was restored.
     * @param {Record<string, string>} [system]
     */
    begin(system) {
      const from = this.restored || system;
      if (from) for (const { kind, menu } of this.menus) menu.value = from[kind];
      this.active = true;
      this.ask();
      if (this.restored) return;
      this.card.open(true);
      this.menus[0].menu.focus();
    }

    /**
     * The form is about to be set to this mix, and to the shape that goes with it.
     * @param {string} name
     */
    restore(name) {
      const parts = name.split("/");
      this.restored = Object.fromEntries(this.menus.map(({ kind }, index) => [kind, parts[index]]));
      if (this.active) this.begin();
    }

    async ask() {
      const { name, parts } = this;
      fill(this.field, name);
      for (const { kind, menu } of this.menus) this.card.showPart(kind, menu.value, true);
      if (!this.look) return;
      const answer = await this.questions.last(this.look(name, TreeRace.pairs.name));
      if (!answer || !this.active) return; // chosen anew meanwhile
      const none = { ...MIX, name, cost: "–", source: "–", ...parts };
      this.card.show({ ...none, ...answer, idea: IDEA }, true, answer.refused);
    }
  }

  return { MIX, SystemMix };
})();
