// The card of a lane: what its system is, what it costs, whether the text stays the same; and a system mixed by hand out of three menus on
// it. The server says whether the parts go together. Knows one system at a time.

TreeRace.systemCard = (() => {
  const { finder } = TreeRace.elements;
  const { fill } = TreeRace.form;
  const { asNumber } = TreeRace.numbers;
  const { popover } = TreeRace.popover;
  const { Questions } = TreeRace.presence;
  const { shapeWords, shapesOf, spaced } = TreeRace.roundCosts;
  const { screenRoot } = TreeRace.screens;
  const { lacks, markOptions, onLacks, onPairs } = TreeRace.systemNames;

  const MOST_CHOICES = 5; // that a card names
  const FILLING = "expand_rerank"; // the policy that uses all nodes: engine/systems.py
  const IDEA = "Put a drafter, a tree policy and an acceptance rule together.";

  /** @type {Record<Guarantee | "lacking", [string, string]>} */
  const GUARANTEES = {
    tokens: ["same tokens", "The same tokens: it writes what plain decoding writes."],
    law: ["same distribution", "The same distribution: above temperature 0 the tokens may differ, their odds do not."],
    lossy: ["lossy", "Lossy: it changes the text, for it may write what the target would not."],
    text: ["own clock", "Another server’s: compared by text, not by tokens, and its clock includes the network."],
    refused: ["not possible", ""],
    lacking: ["not here", ""], // the pair lacks something for it, and the sentence says what
  };

  /** @param {string} name of a part */
  const plainName = (name) => name.replace(/_/g, " ");

  /** @param {Trace} trace */
  const shapeOf = ({ depth, width, nodes }) => `${depth}x${width}x${nodes}`;

  class SystemCard {
    /**
     * @param {HTMLElement} root
     * @param {number} index of the lane
     * @param {Parts} parts what every drafter, policy and acceptance rule says about itself, by kind and name
     * @param {Look | undefined} look asks the server what is measured for a system; a page without a server never asks
     */
    constructor(root, index, parts, look) {
      this.root = root;
      this.parts = parts;
      this.look = look;
      this.at = finder(root);
      this.shown = "";
      /** @type {System | undefined} what the menu names; undefined for a mix */
      this.given = undefined;
      /** @type {RacedSystem | undefined} what the lane shows the race of */
      this.raced = undefined;
      this.isRecorded = false; // that race was measured elsewhere
      this.pair = ""; // by name, that the visitor's next race is on
      /** @type {{ costs?: Partial<MeasuredCosts>; states?: string }} of the system that is shown on that pair, as far as the server has
       * measured them; `states` says what a tree costs a target with states */
      this.here = {};
      this.own = ""; // the shape of its paper
      this.questions = new Questions();
      const [badge, panel] = [this.at("badge"), this.at("card")];
      panel.id = `card-${index}`;
      badge.setAttribute("aria-controls", panel.id);
      this.open = popover(badge);
      badge.addEventListener("click", () => panel.hidden || this.ask());
      this.at("own-shape").addEventListener("click", () => this.takeOwnShape());
      if (!look) return;
      onLacks(() => this.given && this.show(this.given));
      onPairs(() => this.follow(TreeRace.pairs.name));
    }

    /**
     * @param {System} system
     * @param {boolean} mixed its parts are menus to choose from
     * @param {string} refused the reason why these parts cannot race
     */
    show(system, mixed = false, refused = "") {
      const lack = mixed ? undefined : lacks().systems[system.name];
      const guarantee = lack ? "lacking" : system.guarantee;
      const [badge, promise] = GUARANTEES[guarantee] || [guarantee, guarantee];
      this.given = mixed ? undefined : system;
      this.at("badge").firstElementChild.textContent = badge;
      this.at("badge").dataset.guarantee = guarantee;
      this.at("badge").setAttribute("aria-label", `${badge}: about ${system.title}`);
      this.at("card").setAttribute("aria-label", `About ${system.title}`);
      const marked = this.root.classList.contains("right") ? [this.at("card"), screenRoot()] : [this.at("card")];
      for (const each of marked) each.toggleAttribute("data-limits", Boolean(system.limits)); // the dials go with the right lane
      this.at("promise").textContent = refused || lack?.refusal || promise;
      this.at("promise").dataset.guarantee = guarantee;
      for (const name of ["title", "idea", "cost", "source", "name"]) this.at(`its-${name}`).textContent = system[name];
      for (const kind of Object.keys(this.parts)) this.showPart(kind, system[kind], mixed);
      if (system.name !== this.shown) this.forget();
      this.shown = system.name;
      this.measured();
    }

    /**
     * The lane shows the race of this system; the card may already tell of the next one.
     * @param {RacedSystem} system
     * @param {boolean} isRecorded
     */
    race(system, isRecorded) {
      this.raced = system;
      this.isRecorded = isRecorded;
      this.measured();
    }

    /** @param {string} pair that the card tells of */
    follow(pair) {
      if (pair === this.pair) return;
      this.pair = pair;
      this.forget();
      this.measured();
      if (!this.at("card").hidden) this.ask();
    }

    // What is known, or asked, of another system or pair.
    forget() {
      this.here = {};
      this.questions.drop();
    }

    // Asks what is measured for the system that is shown: it may be, since the page was loaded.
    async ask() {
      const { shown, look, pair } = this;
      if (!look || !shown) return;
      const answer = await this.questions.last(look(shown, pair));
      if (!answer) return;
      this.here = { costs: answer.costs, states: answer.states };
      this.measured();
    }

    // What the measured costs say: the drafter that was chosen, and the shape.
    measured() {
      const { raced, shown } = this;
      this.root.classList.toggle("next", Boolean(raced && shown) && !this.isOf(raced));
      const mine = raced?.name === shown && this.tells(raced) ? raced : undefined;
      const { promised = {}, shapes = {} } = mine?.costs ?? this.here.costs ?? {};
      const rows = {
        choice: this.choice(promised),
        states: this.here.states ?? "",
        shape: shapeWords(shapes, mine && shapeOf(mine.trace)),
      };
      for (const [name, words] of Object.entries(rows)) {
        for (const part of [`its-${name}`, `${name}-name`]) this.at(part).hidden = !words;
        this.at(`${name}-words`).textContent = words;
      }
      const found = shapesOf(shapes);
      this.own = found?.own ?? "";
      this.at("own-shape").textContent = `Take ${spaced(this.own)}`;
      this.at("own-shape").hidden = !this.look || !found || found.own === found.best;
    }

    // Whether a race was of the system that is shown, or of it with all nodes used.
    /** @param {RacedSystem | undefined} raced */
    isOf(raced) {
      const { shown, given } = this;
      return raced?.name === shown || (given && raced?.name === `${given.drafter}/${FILLING}/${given.acceptance}`);
    }

    // Whether a race tells what the next one costs. One on another of the pairs that are offered does not, and where a server can be
    // asked, no recorded one.
    /** @param {RacedSystem} system */
    tells({ trace }) {
      if (this.isRecorded && this.look) return false;
      const name = TreeRace.pairs?.titled(trace.pair)?.name;
      return name === undefined || name === this.pair;
    }

    // Sets the dials to the paper's own shape, as if the visitor had.
    takeOwnShape() {
      const [depth, width, nodes] = this.own.split("x").map(Number);
      TreeRace.controls.set({ depth, width, nodes, untouched: "" }, {});
      this.open(false);
    }

    /**
     * @param {Record<string, number>} promised
     * @returns {string} which drafter was chosen, and what each promised; "" without a choice
     */
    choice(promised) {
      const sorted = Object.entries(promised).sort(([, one], [, other]) => other - one);
      const [best, ...others] = sorted.slice(0, MOST_CHOICES).map(([name, speedup]) => {
        const title = this.parts.drafter[name]?.title ?? plainName(name);
        return `${title} ${asNumber(speedup, 1)}x`;
      });
      return best ? `With what promises the most on this machine: ${best}${["", ...others].join(", ")}.` : "";
    }

    /**
     * @param {string} kind
     * @param {string} name
     * @param {boolean} mixed
     */
    showPart(kind, name, mixed) {
      const part = this.at(`part=${kind}`);
      part.hidden = !name;
      part.querySelector("b").textContent = plainName(name);
      part.querySelector("b").hidden = mixed;
      part.querySelector("select").hidden = !mixed;
      const { title, about, source } = this.parts[kind][name] || { title: "", about: "", source: "" };
      part.querySelector("p").textContent = about;
      part.title = [title, source].filter(Boolean).join(" · ");
    }
  }

  /** @type {{ title: string, idea: string, guarantee: Guarantee }} */
  const MIX = {
    title: "your own mix",
    idea: "A drafter, a tree policy and an acceptance rule of your choice.",
    guarantee: "refused",
  };

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

    // Begins with the parts of the system that the lane had before, or quietly with those of a mix that was restored.
    /** @param {Record<string, string>} [system] */
    begin(system) {
      const from = this.restored || system;
      if (from) for (const { kind, menu } of this.menus) menu.value = from[kind];
      this.active = true;
      this.ask();
      if (this.restored) return;
      this.card.open(true);
      this.menus[0].menu.focus();
    }

    /** @param {string} name of the mix that the form is about to be set to, with the shape that goes with it */
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

  return { SystemCard, MIX, SystemMix };
})();
