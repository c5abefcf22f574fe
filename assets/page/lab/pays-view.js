// Does it pay, on the page: a file of prompts, how far the races are, then the verdict, the prompts and the what-if. Knows the messages of
// engine/page/screens/pays.py; leaves tables and sliders to their own files.
"use strict";

TreeRace.paysView = (() => {
  const { announceResize, finder } = TreeRace.elements;
  const { press } = TreeRace.form;
  const { PromptFile, many } = TreeRace.promptFile;
  const { fillPrompts, PaysVerdict } = TreeRace.paysVerdict;
  const { keepDrawn } = TreeRace.plotBase;
  const { WhatIfView } = TreeRace.whatIf;
  const { onRuns, onWire } = TreeRace.wire;

  const INVITATION =
    "Is guessing worth it for your prompts? Every system in its best setting, against plain decoding and generate().";
  const DROP = "Drop a file of prompts here";
  const AGAIN = "Press Start to begin anew";
  const WAITING = "Waiting for the models …";
  const PARTS = ["verdict", "prompts", "what-if"];

  class PaysView {
    /** @type {string | null} */
    run = null;
    /** @type {PaysReport | null} */
    report = null;

    /**
     * @param {HTMLElement} root
     * @param {LabAbout} about
     * @param {LabServer["read_prompts"]} read
     * @param {(words: string) => void} say
     */
    constructor(root, about, read, say) {
      this.root = root;
      this.say = say;
      this.at = finder(root);
      this.file = new PromptFile(root, about, read, say, () => this.show());
      this.at("allowed").textContent = `Here: ${about.pays}. A text file separates prompts by blank lines.`;
      for (const [name, { title, guesses, guarantee }] of Object.entries(about.systems)) {
        if (guesses && guarantee !== "lossy") this.at("systems").append(new Option(title, name));
      }
      this.verdict = new PaysVerdict(root);
      this.whatIf = new WhatIfView(root);
      this.choose("verdict");
      this.tell(DROP);
      this.say(INVITATION);
      this.listen();
    }

    /** @param {string} part of the result that is shown */
    choose(part) {
      for (const each of PARTS) this.at(`of-${each}`).hidden = each !== part;
      announceResize();
    }

    // Other prompts are there.
    show() {
      if (this.root.dataset.state === "running") press("#lab-halt"); // it would go on unseen
      this.root.classList.remove("told");
      this.root.dataset.state = "ready";
      this.progress(0, 1);
      this.tell(`Press Start: ${many(this.file.prompts.length, "prompt")} to race`);
      this.say("Press Start.");
    }

    // What Start sends. Without a file the page's own prompts are raced.
    pending() {
      if (!this.file.prompts.length) this.file.takeGallery();
      this.run = null;
      this.root.dataset.state = "running";
      this.progress(0, 1);
      this.tell(WAITING);
      this.say(WAITING);
      const system = this.at("systems").value;
      const order = {
        prompts: this.file.prompts,
        systems: system ? [system] : [],
        max_new_tokens: Number(this.at("tokens").value),
      };
      return { order: JSON.stringify(order) };
    }

    /** @param {string} words where the run stands among others */
    stands(words) {
      if (this.root.dataset.state === "running" && !this.run) this.say(words || WAITING);
    }

    failed() {
      if (this.root.dataset.state !== "running") return;
      this.root.dataset.state = "done";
      this.tell(this.file.prompts.length ? AGAIN : DROP);
      this.say(this.file.prompts.length ? "Ended early, so there is no verdict." : "Choose a file first.");
    }

    stop() {
      if (this.root.dataset.state !== "running") return;
      this.root.dataset.state = "done";
      this.tell(AGAIN);
      this.say("Stopped, so there is no verdict.");
    }

    /** @param {any} message */
    feed(message) {
      if (message.start) this.run = message.run;
      if (message.run !== this.run || this.root.dataset.state !== "running") return;
      if ("done" in message) {
        this.progress(message.done, message.of);
        this.tell(`${message.doing} …`);
        this.say(`${message.doing} … ${message.done} of ${message.of} pieces of work are done.`);
      }
      if (message.end) this.end(message);
    }

    /** @param {PaysReport} report */
    end(report) {
      this.report = report;
      this.root.dataset.state = "done";
      this.root.classList.add("told");
      this.progress(1, 1);
      const raced = `${many(report.prompts.length, "prompt")}, ${many(report.systems.length, "system")}`;
      this.say(`${raced}, temperature ${report.temperature}.`);
      this.verdict.show(report);
      fillPrompts(this.at("prompt-heads"), this.at("prompt-rows"), report);
      this.whatIf.show(report.costs, report.point);
      announceResize();
    }

    /** @param {string} words that stand large while there is no verdict */
    tell(words) {
      this.at("doing").textContent = words;
    }

    /**
     * @param {number} done
     * @param {number} of
     */
    progress(done, of) {
      this.at("progress").firstElementChild.style.width = `${(100 * done) / of}%`;
      this.at("progress").setAttribute("aria-valuemax", of);
      this.at("progress").setAttribute("aria-valuenow", done);
    }

    draw() {
      if (!this.report || !this.root.clientWidth) return;
      this.verdict.draw();
      this.whatIf.draw();
    }

    listen() {
      onWire("treepays", (message) => this.feed(message));
      onRuns("treepays", this);
      const parts = /** @type {NodeListOf<HTMLInputElement>} */ (this.root.querySelectorAll("[name=pays-part]"));
      for (const each of parts) each.addEventListener("change", () => this.choose(each.value));
      window.addEventListener("resize", () => this.draw());
      keepDrawn(this.root, () => this.draw());
    }
  }

  /**
   * @param {HTMLElement} root
   * @param {LabAbout} value
   * @param {LabServer} server
   * @param {(words: string) => void} say
   */
  function mountPays(root, value, server, say) {
    TreeRace.pays = new PaysView(root, value, server.read_prompts, say);
  }

  return { PaysView, mountPays };
})();
