// The lab: one screen with three views and one Start for what the shown view is about. Knows the views' names; nothing of what they do.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const VIEWS = ["sweep", "prompts", "production"];

  T.Lab = class {
    constructor(root, value, server) {
      this.root = root;
      this.words = {};
      const mounts = { sweep: T.mountSweep, prompts: T.mountPrompts, production: T.mountProduction };
      for (const view of VIEWS) {
        mounts[view](this.section(view), value, server, (words) => this.say(view, words));
      }
      root.querySelectorAll("[name=lab]").forEach((choice) => {
        choice.addEventListener("change", () => this.show(choice.value));
      });
      this.show("sweep");
    }

    section(view) {
      return this.root.querySelector(`[data-lab-${view}]`);
    }

    show(view) {
      this.view = view;
      document.querySelector("#screen").dataset.lab = view;
      for (const each of VIEWS) this.section(each).hidden = each !== view;
      this.say(view, this.words[view] ?? "");
      window.dispatchEvent(new Event("resize")); // pictures that were hidden take their size now
    }

    // The line beside the views' names says how the shown view stands.
    say(view, words) {
      this.words[view] = words;
      if (view === this.view) this.root.querySelector("[data-lab-words]").textContent = words;
    }

    // Every view that runs something has a hidden button of its own, wired to its function.
    start() {
      document.querySelector(`#${this.view}-start`)?.click();
    }
  };

  T.mountLab = function (element, value, server) {
    T.lab = new T.Lab(element.querySelector("[data-lab]"), value, server);
  };
})(window.TreeRace);
