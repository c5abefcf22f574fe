// Does it pay, on the page: a file of prompts, how far the races are, then the verdict, the prompts and the what-if.
// Knows the messages of engine/page/screens/pays.py; leaves tables and sliders to their own files.

TreeRace.paysView = (() => {
  const { announceResize, fillBar, findAll, finder, onChoice } = TreeRace.elements;
  const { lacks, markOptions, onLacks } = TreeRace.systemNames;
  const { counted } = TreeRace.numbers;
  const { PaysVerdict } = TreeRace.paysVerdict;
  const { keepDrawn } = TreeRace.plotBase;
  const { WhatIfView } = TreeRace.whatIf;
  const { ENDED, Run, WAITING } = TreeRace.runs;

  const INVITATION =
    "Is guessing worth it for your prompts? Every system in its best setting, against plain decoding and generate().";
  const PARTS = ["verdict", "prompts", "what-if"];

  class PaysView {
    /** @type {PaysReport | null} */
    report = null;

    /**
     * @param {HTMLElement} root
     * @param {LabAbout} about
     * @param {PromptFile} file
     * @param {(words: string) => void} say
     */
    constructor(root, about, file, say) {
      this.root = root;
      this.say = say;
      this.at = finder(root);
      this.run = new Run("pays", this);
      this.file = file;
      file.serve(root, say, () => this.show());
      this.at("allowed").textContent = `Here: ${about.pays}. A text file separates prompts by blank lines.`;
      for (const [name, { title, guesses, guarantee }] of Object.entries(about.systems)) {
        if (guesses && guarantee !== "lossy") this.at("systems").append(new Option(title, name));
      }
      onLacks(() => {
        markOptions(this.at("systems"), lacks().systems);
        if (this.at("systems").selectedOptions[0].disabled) this.at("systems").value = ""; // all
      });
      this.verdict = new PaysVerdict(root);
      this.whatIf = new WhatIfView(root);
      this.choose("verdict");
      this.say(INVITATION);
      onChoice(root, "pays-part", (part) => this.choose(part));
      window.addEventListener("resize", () => this.draw());
      keepDrawn(root, () => this.draw());
    }

    /** @param {string} part of the result that is shown */
    choose(part) {
      for (const each of PARTS) this.at(`of-${each}`).hidden = each !== part;
      announceResize();
    }

    // Other prompts are there.
    show() {
      this.run.forget();
      this.report = null;
      this.root.classList.remove("told");
      findAll(this.root, "[name=pays-part]")[0].click();
      fillBar(this.at("progress"), 0, 1);
      this.at("doing").textContent = `Press Start: ${counted(this.file.prompts.length, "prompt")} to race`;
      this.say("Press Start.");
    }

    /** @param {Settings} form; without a file the page's own prompts are raced */
    order({ temperature, seed, constraint }) {
      if (!this.file.prompts.length) this.file.takeGallery();
      fillBar(this.at("progress"), 0, 1);
      this.at("doing").textContent = WAITING;
      const system = this.at("systems").value;
      const systems = system ? [system] : [];
      const tokens = Number(this.at("tokens").value);
      return { prompts: this.file.prompts, systems, max_new_tokens: tokens, temperature, seed, constraint };
    }

    /** @param {RunEnd} how */
    over(how) {
      this.at("doing").textContent = "Press Start to begin anew";
      this.say(`${ENDED[how]}, so there is no verdict.`);
    }

    /** @param {PaysMessage} message */
    feed(message) {
      if ("done" in message) {
        fillBar(this.at("progress"), message.done, message.of);
        this.at("doing").textContent = `${message.doing} …`;
        this.say(`${message.doing} … ${message.done} of ${message.of} pieces of work are done.`);
      }
      if ("verdict" in message) this.end(message);
    }

    /** @param {PaysReport} report */
    end(report) {
      this.report = report;
      this.root.classList.add("told");
      fillBar(this.at("progress"), 1, 1);
      const raced = `${counted(report.prompts.length, "prompt")}, ${counted(report.systems.length, "system")}`;
      this.say(`${raced}, temperature ${report.temperature}.`);
      this.verdict.show(report);
      this.whatIf.show(report.costs, report.point);
      announceResize();
    }

    draw() {
      if (!this.report || !this.root.clientWidth) return;
      this.verdict.draw();
      this.whatIf.draw();
    }
  }

  return { PaysView };
})();
