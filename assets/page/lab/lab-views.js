// The lab: one screen with several views and one Start for what the shown view is about. Knows the views' names; nothing of what they do.
"use strict";

TreeRace.labViews = (() => {
  const { announceResize, finder } = TreeRace.elements;
  const { press } = TreeRace.form;
  const { PromptsView } = TreeRace.ownPrompts;
  const { PaysView } = TreeRace.paysView;
  const { PredictView } = TreeRace.predictView;
  const { ProductionView } = TreeRace.productionView;
  const { screenRoot } = TreeRace.screens;
  const { SweepView } = TreeRace.sweepView;

  const VIEWS = ["sweep", "prompts", "pays", "predict", "production"];

  class LabViews {
    view = "sweep";

    /**
     * @param {HTMLElement} root
     * @param {LabAbout} value
     * @param {LabServer} server
     */
    constructor(root, value, server) {
      this.at = finder(root);
      /** @type {Record<string, string>} */
      this.words = {};
      const says = (/** @type {string} */ view) => (/** @type {string} */ words) => this.say(view, words);
      TreeRace.sweep = new SweepView(this.section("sweep"), value, says("sweep"));
      TreeRace.prompts = new PromptsView(this.section("prompts"), value, server.read_prompts, says("prompts"));
      TreeRace.pays = new PaysView(this.section("pays"), value, server.read_pays, says("pays"));
      TreeRace.predict = new PredictView(this.section("predict"), value, says("predict"));
      TreeRace.production = new ProductionView(
        this.section("production"),
        value,
        server.production,
        says("production"),
      );
      for (const choice of /** @type {NodeListOf<HTMLInputElement>} */ (root.querySelectorAll("[name=lab]"))) {
        choice.addEventListener("change", () => this.show(choice.value));
      }
      this.show(this.view);
    }

    /** @param {string} view */
    section(view) {
      return this.at(`lab-${view}`);
    }

    /** @param {string} view */
    show(view) {
      this.view = view;
      screenRoot().dataset.lab = view;
      for (const each of VIEWS) this.section(each).hidden = each !== view;
      this.say(view, this.words[view] ?? "");
      announceResize();
    }

    /**
     * The line beside the views' names says how the shown view stands.
     * @param {string} view
     * @param {string} words
     */
    say(view, words) {
      this.words[view] = words;
      if (view === this.view) this.at("lab-words").textContent = words;
    }

    // Every view that runs something has a hidden button of its own, wired to its function.
    start() {
      press(`#${this.view}-start`);
    }
  }

  /**
   * @param {HTMLElement} element
   * @param {LabAbout} value
   * @param {LabServer} server
   */
  function mountLab(element, value, server) {
    TreeRace.lab = new LabViews(/** @type {HTMLElement} */ (element.querySelector("[data-lab]")), value, server);
  }

  return { LabViews, mountLab };
})();
