// A setting for production on the page: one card for every engine. Knows what engine/production.py answers; asks anew when a choice changes.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const INVITATION = "The same setting for the engines that serve models, and what each of them cannot do of it.";
  const OWN_NAMES = /\b(TARGET|DRAFT|PROMPT)\b/; // what the reader fills in
  const PATIENCE_MS = 150; // between a dial's movement and the question

  T.ProductionView = class {
    // `ask(system, depth, width, nodes, temperature)` is the server's answer.
    constructor(root, { systems }, ask, say) {
      Object.assign(this, { root, ask, say, systems, asked: "" });
      this.at = (name) => root.querySelector(`[data-${name}]`);
      T.fillSystems(this.at("system"), systems, "tree");
      this.say(INVITATION);
      this.listen();
    }

    get own() {
      return this.root.querySelector("[name=production-shape]:checked").value === "own";
    }

    // The dials of the race, hidden on this screen: depth, width and nodes.
    get dials() {
      return [...document.querySelectorAll("#dials .shape")].map((dial) => number(dial.querySelector("input[type=number]")));
    }

    get temperature() {
      return number(document.querySelector("#dials [aria-label='number input for Temperature']"));
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
      const answer = await T.answered(this.ask(name, ...shape, temperature));
      if (question !== this.asked) return; // a later question is under way
      if (answer.refused) {
        this.at("engines").replaceChildren();
        return this.say(answer.refused);
      }
      this.say(INVITATION);
      this.at("engines").replaceChildren(...answer.engines.map((engine) => this.card(engine)));
    }

    card({ engine, version, idea, code, cannot, source }) {
      const card = this.at("engine-template").content.firstElementChild.cloneNode(true);
      const at = (name) => card.querySelector(`[data-${name}]`);
      for (const [name, words] of Object.entries({ engine, version: `for ${version}`, idea, source: `Checked against ${source}.` })) {
        at(name).textContent = words;
      }
      at("code").append(...code.split(OWN_NAMES).map((part, index) => (index % 2 ? marked(part) : part)));
      card.querySelector("pre").setAttribute("aria-label", `${engine}: code`);
      at("copy").setAttribute("aria-label", `Copy the code for ${engine}`);
      T.copyButton(at("copy"), () => code);
      at("cannot-title").textContent = cannot.length ? "What it cannot do of this" : "It can do all of this";
      at("cannot").append(...cannot.map((words) => Object.assign(document.createElement("li"), { textContent: words })));
      return card;
    }

    listen() {
      const soon = () => {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.refresh(), PATIENCE_MS);
      };
      this.root.addEventListener("change", () => this.refresh());
      document.addEventListener("input", (event) => event.target.closest("#dials") && soon());
      new ResizeObserver(soon).observe(this.root); // also when the view is shown
    }
  };

  function number(input) {
    return input && input.value.trim() !== "" ? Number(input.value) : ""; // the server refuses what is no number
  }

  function marked(name) {
    return Object.assign(document.createElement("b"), { textContent: name });
  }

  T.mountProduction = function (root, value, server, say) {
    T.production = new T.ProductionView(root, value, server.production, say);
  };
})(window.TreeRace);
