// The card of a lane: what its system is, what it costs, whether the text stays the same. Knows one system at a time.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const GUARANTEES = {
    tokens: ["same tokens", "The same tokens: it writes what plain decoding writes."],
    law: ["same distribution", "The same distribution: above temperature 0 the tokens may differ, their odds do not."],
    lossy: ["lossy", "Lossy: it changes the text, for it may write what the target would not."],
    refused: ["not possible", ""],
  };

  T.Card = class {
    // `parts`: what every drafter, policy and acceptance rule says about itself, by kind and name.
    constructor(root, index, parts) {
      this.root = root;
      this.parts = parts;
      this.at = (name) => root.querySelector(`[data-${name}]`);
      const [badge, panel] = [this.at("badge"), this.at("card")];
      panel.id = `card-${index}`;
      badge.setAttribute("aria-controls", panel.id);
      this.open = T.popover(this.at("about"), badge, panel);
    }

    // `mixed`: the parts are menus to choose from. `refused`: the reason why these parts cannot race.
    show(system, mixed = false, refused = "") {
      const [badge, promise] = GUARANTEES[system.guarantee] || [system.guarantee, system.guarantee];
      this.at("badge").firstElementChild.textContent = badge;
      this.at("badge").dataset.guarantee = system.guarantee;
      this.at("badge").setAttribute("aria-label", `${badge}: about ${system.title}`);
      this.at("card").setAttribute("aria-label", `About ${system.title}`);
      this.at("card").toggleAttribute("data-limits", Boolean(system.limits));
      this.at("promise").textContent = refused || promise;
      this.at("promise").dataset.guarantee = system.guarantee;
      for (const name of ["title", "idea", "cost", "source", "name"]) this.at(`its-${name}`).textContent = system[name];
      for (const kind of Object.keys(this.parts)) this.part(kind, system[kind], mixed);
      this.shown = system.name;
      this.race(this.raced);
    }

    // What the lane shows the race of, if any; the card may already tell of the next one.
    race(name) {
      this.raced = name;
      this.root.classList.toggle("next", Boolean(name) && name !== this.shown);
    }

    part(kind, name, mixed) {
      const part = this.root.querySelector(`[data-part=${kind}]`);
      part.querySelector("b").textContent = T.plainName(name);
      part.querySelector("b").hidden = mixed;
      part.querySelector("select").hidden = !mixed;
      const { title, about, source } = this.parts[kind][name] || { title: "", about: "", source: "" };
      part.querySelector("p").textContent = about;
      part.title = [title, source].filter(Boolean).join(" · ");
    }
  };

  // Whether a lossy system must be marked as such, for its title does not say so; and the title with the mark.
  T.needsMark = ({ title, guarantee }) => guarantee === "lossy" && !title.includes("lossy");
  T.markedTitle = (system) => (T.needsMark(system) ? `${system.title} · lossy` : system.title);

  T.plainName = (name) => name.replace(/_/g, " ");
})(window.TreeRace);
