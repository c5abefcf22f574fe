// The lab: one screen with several views and one Start for what the shown view is about. Knows the views' names; nothing of what they do.

TreeRace.labViews = (() => {
  const { read, screenRoot, shownScreen, write } = TreeRace.screens;
  const { announceResize, findAll, finder, onChoice } = TreeRace.elements;
  const { PromptsView } = TreeRace.ownPrompts;
  const { PaysView } = TreeRace.paysView;
  const { PromptFile } = TreeRace.promptFile;
  const { showExample } = TreeRace.recordedRace;
  const { SweepView } = TreeRace.sweepView;

  const VIEWS = ["sweep", "prompts", "pays"];
  const OWN = ["prompts", "pays"]; // what is asked of a visitor's own prompts, on one tab

  class LabViews {
    view = "sweep";
    /** @type {Set<string>} views that have begun with a recorded run */
    begun = new Set();

    /**
     * @param {HTMLElement} root
     * @param {LabAbout} value
     * @param {LabServer} server
     */
    constructor(root, value, server) {
      this.root = root;
      this.at = finder(root);
      this.server = server;
      /** @type {Record<string, string>} */
      this.words = {};
      const says = (/** @type {string} */ view) => (/** @type {string} */ words) => this.say(view, words);
      const file = new PromptFile(server.parse_prompts_of_upload);
      TreeRace.sweep = new SweepView(this.at("lab-sweep"), value, says("sweep"));
      TreeRace.prompts = new PromptsView(this.at("lab-prompts"), value, file, says("prompts"));
      TreeRace.pays = new PaysView(this.at("lab-pays"), value, file, says("pays"));
      for (const group of ["lab", "own"]) onChoice(root, group, (view) => this.choose(view));
      const named = read("lab") ?? "";
      this.show(VIEWS.includes(named) ? named : this.view);
      window.addEventListener("resize", () => this.begin()); // the screen may be shown
    }

    /** @param {string} view that the visitor chose */
    choose(view) {
      this.show(view);
      write({ lab: view === VIEWS[0] ? null : view });
    }

    // A view that nobody has used yet begins with a recorded run.
    async begin() {
      const { view } = this;
      const run = { sweep: TreeRace.sweep, pays: TreeRace.pays }[view]?.run;
      if (shownScreen() !== "lab" || !run || this.begun.has(view)) return;
      this.begun.add(view);
      const words = await showExample(run, this.server.load_recorded_run, view);
      const instead = view === "sweep" ? TreeRace.sweep.instead : "";
      if (words) this.say(view, [`An example, ${words}.`, this.words[view], instead].filter(Boolean).join(" "));
    }

    /** @param {string} view */
    show(view) {
      this.view = view;
      const own = OWN.includes(view);
      this.at("lab-own").hidden = !own;
      for (const choice of findAll(this.root, "[name=lab], [name=own]")) {
        if (choice.value === view || (own && choice.value === "pays" && choice.name === "lab")) choice.checked = true;
      }
      screenRoot().dataset.lab = view;
      for (const each of VIEWS) this.at(`lab-${each}`).hidden = each !== view;
      this.say(view, this.words[view] ?? "");
      announceResize();
    }

    /**
     * @param {string} view
     * @param {string} words on how it stands, shown beside the views' names
     */
    say(view, words) {
      this.words[view] = words;
      if (view === this.view) this.at("lab-words").textContent = words;
    }
  }

  /** @param {ConstructorParameters<typeof LabViews>} given */
  function mountLab(...given) {
    TreeRace.lab = new LabViews(...given);
  }

  return { mountLab, LabViews };
})();
