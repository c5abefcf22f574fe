// The lab: one screen with several views and one Start for what the shown view is about. Knows the views' names; nothing of what they do.
"use strict";

TreeRace.labViews = (() => {
  const { announceResize, finder } = TreeRace.elements;
  const { press } = TreeRace.form;
  const { mountPrompts } = TreeRace.ownPrompts;
  const { mountPays } = TreeRace.paysView;
  const { mountPredict } = TreeRace.predictView;
  const { mountProduction } = TreeRace.productionView;
  const { screenRoot } = TreeRace.screens;
  const { mountSweep } = TreeRace.sweepView;

  /** @type {Record<string, (root: HTMLElement, value: LabAbout, server: LabServer, say: (words: string) => void) => void>} */
  const MOUNTS = {
    sweep: mountSweep,
    prompts: mountPrompts,
    pays: mountPays,
    predict: mountPredict,
    production: mountProduction,
  };

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
      for (const [view, mount] of Object.entries(MOUNTS)) {
        mount(this.section(view), value, server, (words) => this.say(view, words));
      }
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
      for (const each of Object.keys(MOUNTS)) this.section(each).hidden = each !== view;
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
