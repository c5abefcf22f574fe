// A setting for production on the page: every engine, and the code of the one that is open. Knows what
// engine/page/screens/serving/ answers; asks anew when a choice changes.
"use strict";

TreeRace.productionView = (() => {
  const { copyButton } = TreeRace.copyButton;
  const { copyOf, finder, make } = TreeRace.elements;
  const { fillSystems } = TreeRace.systemNames;
  const { Questions } = TreeRace.answers;

  const INVITATION = "The same setting for the engines that serve models, and what each of them cannot do of it.";
  const OWN_NAMES = /\b(TARGET|DRAFT|PROMPT)\b/; // what the reader fills in
  const PATIENCE_MS = 150; // between a dial's movement and the question

  class ProductionView {
    asked = ""; // the last question, in words
    questions = new Questions();
    open = 0; // the engine whose code is shown
    timer = 0;

    /**
     * @param {HTMLElement} root
     * @param {LabAbout} about
     * @param {LabServer["production"]} ask the server: system, depth, width, nodes, temperature
     * @param {(words: string) => void} say
     */
    constructor(root, { systems }, ask, say) {
      this.root = root;
      this.ask = ask;
      this.say = say;
      this.systems = systems;
      this.at = finder(root);
      fillSystems(this.at("system"), systems, "tree");
      this.say(INVITATION);
      this.listen();
    }

    get own() {
      return (
        /** @type {HTMLInputElement} */ (this.root.querySelector("[name=production-shape]:checked")).value === "own"
      );
    }

    // The dials of the race, hidden on this screen: depth, width and nodes.
    get dials() {
      return [...document.querySelectorAll("#dials .shape")].map((dial) =>
        numberIn(dial.querySelector("input[type=number]")),
      );
    }

    get temperature() {
      return numberIn(document.querySelector("#dials [aria-label='number input for Temperature']"));
    }

    async refresh() {
      if (!this.root.offsetParent) return; // not shown
      const name = this.at("system").value;
      const { depth, width, nodes } = this.systems[name];
      const [shape, temperature] = [this.own ? [depth, width, nodes] : this.dials, this.temperature];
      const question = JSON.stringify([name, shape, temperature]);
      if (question === this.asked) return;
      this.asked = question;
      const [d, w, n] = shape;
      this.at("shape").textContent = `depth ${d} · width ${w} · ${n} nodes · temperature ${temperature}`;
      const answer = await this.questions.last(this.ask(name, ...shape, temperature));
      if (!answer) return;
      if (answer.refused) {
        this.at("engines").replaceChildren();
        return this.say(answer.refused);
      }
      this.say(INVITATION);
      this.at("engines").replaceChildren(...answer.engines.map((engine, index) => this.card(engine, index)));
      this.choose(this.open);
    }

    /** @param {number} index of the engine whose code is shown */
    choose(index) {
      this.open = index;
      for (const [at, card] of [...this.at("engines").children].entries()) {
        card.querySelector("[data-open]")?.setAttribute("aria-expanded", String(at === index));
        card.querySelector("[data-setting]")?.toggleAttribute("hidden", at !== index);
      }
    }

    /**
     * @param {Engine} engine
     * @param {number} index
     */
    card({ engine, version, idea, code, cannot, source }, index) {
      const card = copyOf(this.at("engine-template"));
      const at = finder(card);
      at("open").addEventListener("click", () => this.choose(index));
      at("engine").textContent = engine;
      at("version").textContent = `for ${version}`;
      at("idea").textContent = idea;
      at("source").textContent = `Checked against ${source}.`;
      at("code").append(...code.split(OWN_NAMES).map((part, index) => (index % 2 ? make("b", "", part) : part)));
      card.querySelector("pre").setAttribute("aria-label", `${engine}: code`);
      at("copy").setAttribute("aria-label", `Copy the code for ${engine}`);
      copyButton(at("copy"), () => code);
      at("cannot-title").textContent = cannot.length ? "What it cannot do of this" : "It can do all of this";
      at("cannot").append(...cannot.map((words) => make("li", "", words)));
      return card;
    }

    listen() {
      const soon = () => {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.refresh(), PATIENCE_MS);
      };
      this.root.addEventListener("change", () => this.refresh());
      document.addEventListener(
        "input",
        ({ target }) => target instanceof Element && target.closest("#dials") && soon(),
      );
      new ResizeObserver(soon).observe(this.root); // also when the view is shown
    }
  }

  /** @param {HTMLInputElement | null} input */
  function numberIn(input) {
    return input && input.value.trim() !== "" ? Number(input.value) : ""; // the server refuses what is no number
  }

  return { ProductionView };
})();
