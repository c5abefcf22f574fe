// The card of a lane: what its system is, what it costs, whether the text stays the same. Knows one system at a time.
"use strict";

TreeRace.systemCard = (() => {
  const { finder } = TreeRace.elements;
  const { popover } = TreeRace.popover;
  const { plainName } = TreeRace.systemNames;
  const { asNumber } = TreeRace.numbers;
  const { screenRoot } = TreeRace.screens;

  const MOST_CHOICES = 5; // that a card names

  /** @type {Record<Guarantee, [string, string]>} */
  const GUARANTEES = {
    tokens: ["same tokens", "The same tokens: it writes what plain decoding writes."],
    law: ["same distribution", "The same distribution: above temperature 0 the tokens may differ, their odds do not."],
    lossy: ["lossy", "Lossy: it changes the text, for it may write what the target would not."],
    text: ["own clock", "Another server’s: compared by text, not by tokens, and its clock includes the network."],
    refused: ["not possible", ""],
  };

  class SystemCard {
    /**
     * @param {HTMLElement} root
     * @param {number} index of the lane
     * @param {Parts} parts what every drafter, policy and acceptance rule says about itself, by kind and name
     */
    constructor(root, index, parts) {
      this.root = root;
      this.parts = parts;
      this.at = finder(root);
      this.shown = "";
      /** @type {string | undefined} */
      this.raced = undefined;
      /** @type {Record<string, number>} */
      this.promised = {};
      const [badge, panel] = [this.at("badge"), this.at("card")];
      panel.id = `card-${index}`;
      badge.setAttribute("aria-controls", panel.id);
      this.open = popover(this.at("about"), badge, panel);
    }

    /**
     * @param {System} system
     * @param {boolean} mixed its parts are menus to choose from
     * @param {string} refused the reason why these parts cannot race
     */
    show(system, mixed = false, refused = "") {
      const [badge, promise] = GUARANTEES[system.guarantee] || [system.guarantee, system.guarantee];
      this.at("badge").firstElementChild.textContent = badge;
      this.at("badge").dataset.guarantee = system.guarantee;
      this.at("badge").setAttribute("aria-label", `${badge}: about ${system.title}`);
      this.at("card").setAttribute("aria-label", `About ${system.title}`);
      const marked = this.root.classList.contains("right") ? [this.at("card"), screenRoot()] : [this.at("card")];
      for (const each of marked) each.toggleAttribute("data-limits", Boolean(system.limits)); // the dials go with the right lane
      this.at("promise").textContent = refused || promise;
      this.at("promise").dataset.guarantee = system.guarantee;
      for (const name of ["title", "idea", "cost", "source", "name"]) this.at(`its-${name}`).textContent = system[name];
      for (const kind of Object.keys(this.parts)) this.showPart(kind, system[kind], mixed);
      this.shown = system.name;
      this.race(this.raced, this.promised);
    }

    /**
     * What the lane shows the race of, if any; the card may already tell of the next one.
     * @param {string} [name]
     * @param {Record<string, number>} [promised] by drafter, where it chose one: how many times as fast as plain decoding
     */
    race(name, promised = {}) {
      this.raced = name;
      this.promised = promised;
      this.root.classList.toggle("next", Boolean(name) && name !== this.shown);
      const choice = name === this.shown ? this.choice(promised) : "";
      for (const part of ["its-choice", "choice-name"]) this.at(part).hidden = !choice;
      this.at("its-choice").textContent = choice;
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

  return { SystemCard };
})();
