// A visitor's own prompts on the page: a file, a row for every prompt, the sum of them. Knows the messages of
// engine/page/screens/own_prompts.py.
"use strict";

TreeRace.ownPrompts = (() => {
  const { copyButton } = TreeRace.copyButton;
  const { saveCsv } = TreeRace.downloads;
  const { finder } = TreeRace.elements;
  const { press } = TreeRace.form;
  const { cell, doubted, heads, percent, ratio, sameText, speed } = TreeRace.ledger;
  const { asNumber, isLevel } = TreeRace.numbers;
  const { PromptFile, many } = TreeRace.promptFile;
  const { fillSystems } = TreeRace.systemNames;
  const { onRuns, onWire } = TreeRace.wire;

  const INVITATION = "How much faster on your text? Every prompt is a race against plain decoding.";
  const WAITING = "Waiting for the models …";
  const COLUMNS = ["#", "Prompt", "Speed", "A pass", "Tokens", "Draft", "Verify", "Text"];
  const TOKENS = COLUMNS.indexOf("Tokens");
  const FIGURES = [
    "index",
    "prompt",
    "tokens",
    "speedup",
    "tau",
    "draft_share",
    "verify_share",
    "seconds",
    "base_tokens",
    "base_seconds",
    "identical",
    "disturbed",
    "refused",
  ];
  class PromptsView {
    /** @type {PromptRow[]} */
    rows = [];
    /** @type {string | null} */
    run = null;
    /** @type {PromptsSummary | null} */
    summary = null;
    title = ""; // of the system that races

    /**
     * @param {HTMLElement} root
     * @param {LabAbout} about
     * @param {LabServer["read_prompts"]} read asks the server for a file's prompts
     * @param {(words: string) => void} say shows how it stands
     */
    constructor(root, about, read, say) {
      this.root = root;
      this.say = say;
      this.at = finder(root);
      this.file = new PromptFile(root, about, read, say, () => this.show());
      this.at("allowed").textContent = about.allowed;
      fillSystems(this.at("system"), about.systems, "tree");
      this.at("head").append(heads(COLUMNS));
      this.say(INVITATION);
      this.listen();
    }

    // ---- the file ---------------------------------------------------------------------------------------------------

    get prompts() {
      return this.file.prompts;
    }

    // Other prompts are there.
    show() {
      if (this.root.dataset.state === "running") press("#lab-halt"); // it would go on unseen
      this.at("hint").hidden = true;
      this.at("table").hidden = false;
      this.reset();
      this.say("Press Start.");
    }

    reset() {
      this.run = this.summary = null;
      this.rows = [];
      this.at("rows").replaceChildren(...this.prompts.map((prompt, index) => this.waiting(prompt, index)));
      this.total();
      this.progress(0);
      this.root.dataset.state = "";
    }

    /**
     * @param {string} prompt
     * @param {number} index
     */
    waiting(prompt, index) {
      const row = document.createElement("tr");
      row.append(cell("td", index + 1), cell("td", prompt.trim().replace(/\s+/g, " ").slice(0, 200), "prompt"));
      row.append(speed(null), ...COLUMNS.slice(3).map(() => cell("td", "–")));
      return row;
    }

    // ---- what arrives -----------------------------------------------------------------------------------------------

    // What Start sends.
    pending() {
      this.reset();
      this.root.dataset.state = "running";
      this.say(WAITING);
      return { order: JSON.stringify({ prompts: this.prompts, system: this.at("system").value }) };
    }

    /** @param {string} words where the run stands among others */
    stands(words) {
      if (this.root.dataset.state === "running" && !this.run) this.say(words || WAITING);
    }

    failed() {
      if (this.root.dataset.state !== "running") return;
      this.root.dataset.state = "done";
      this.say(this.prompts.length ? this.verdict("Ended early. ") : "Choose a file first.");
      this.settle();
    }

    stop() {
      if (this.root.dataset.state !== "running") return;
      this.root.dataset.state = "done";
      this.say(this.verdict("Stopped. "));
      this.settle();
    }

    /** @param {any} message */
    feed(message) {
      if (message.start) this.run = message.run;
      if (message.run !== this.run || this.root.dataset.state !== "running") return;
      if (message.lost) {
        this.stop();
        return this.say("Part of the results was lost on its way here. Press Start again.");
      }
      if (message.start) this.title = message.title;
      if ("at" in message) this.running(message.at, message.tokens);
      if (message.row) this.add(message.row, message.summary);
      if (message.end) {
        this.root.dataset.state = "done";
        this.say(this.verdict(""));
        this.settle();
      }
    }

    /**
     * @param {number} index
     * @param {number} tokens
     */
    running(index, tokens) {
      const row = this.at("rows").rows[index];
      if (row && tokens) row.cells[TOKENS].textContent = tokens;
      if (row && !tokens) {
        this.settle();
        row.dataset.now = "";
        row.scrollIntoView({ block: "nearest" });
      }
      this.say(`Prompt ${index + 1} of ${this.prompts.length}: ${this.title} against plain decoding.`);
    }

    settle() {
      for (const row of /** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll("[data-now]")))
        delete row.dataset.now;
    }

    /**
     * @param {PromptRow} row
     * @param {PromptsSummary} summary
     */
    add(row, summary) {
      this.summary = summary;
      this.rows.push(row);
      const shown = this.at("rows").rows[row.index];
      const kept = [...shown.cells].slice(0, 2);
      if (row.refused) {
        const words = cell("td", row.refused, "refused");
        words.colSpan = COLUMNS.length - 2;
        shown.replaceChildren(...kept, words);
      } else {
        const shares = [row.draft_share, row.verify_share].map((share) => cell("td", percent(share)));
        shown.replaceChildren(
          ...kept,
          doubted(speed(row.speedup), row.disturbed),
          cell("td", row.tau.toFixed(2)),
          cell("td", row.tokens),
          ...shares,
          sameText(row.identical),
        );
      }
      this.total();
      this.progress(this.rows.length / this.prompts.length);
    }

    /** @param {number} part */
    progress(part) {
      this.at("progress").firstElementChild.style.width = `${100 * part}%`;
      this.at("progress").setAttribute("aria-valuemax", this.prompts.length);
      this.at("progress").setAttribute("aria-valuenow", this.rows.length);
    }

    total() {
      /** @type {Partial<PromptsSummary>} */
      const all = this.summary ?? {};
      const { raced = 0, refused = 0 } = all;
      for (const button of ["copy", "csv"]) this.at(button).disabled = !this.rows.length;
      const median = document.createElement("tr");
      const shares = [all.draft_share, all.verify_share].map((share) => cell("td", percent(share)));
      median.append(
        cell("td", ""),
        cell("th", "Median"),
        speed(all.speedup),
        cell("td", asNumber(all.tau, 2)),
        cell("td", ""),
      );
      median.append(...shares, cell("td", ""));
      const sum = document.createElement("tr");
      const skipped = refused ? `, ${refused} refused` : "";
      sum.append(
        cell("td", ""),
        cell("th", `All ${many(raced, "prompt")} together${skipped}`),
        speed(all.speedup_total),
      );
      sum.append(cell("td", ""), cell("td", all.tokens || "–"), cell("td", ""), cell("td", ""));
      sum.append(cell("td", raced ? `✓ ${all.identical} of ${raced}` : "–"));
      this.at("total").replaceChildren(median, sum);
    }

    /** @param {string} before */
    verdict(before) {
      const { summary } = this;
      if (!summary?.raced) return `${before}No prompt was raced.`;
      const { speedup, speedup_total: total, identical, raced, disturbed } = summary;
      const times = `${asNumber(total > 1 ? total : 1 / total, 2)}× ${total > 1 ? "faster" : "slower"} than`;
      const words = isLevel(total) ? "as fast as" : times;
      const finding = `${words} plain decoding over ${many(raced, "prompt")}, median ${ratio(speedup)}`;
      const sentence = `${before}${this.title}: ${finding}, identical text in ${identical} of them.`;
      return disturbed ? `${sentence} ${disturbed}` : sentence;
    }

    // ---- what leaves ------------------------------------------------------------------------------------------------

    table() {
      const lines = this.rows.map((row) =>
        FIGURES.map((name) => (name === "index" ? row.index + 1 : (row[name] ?? ""))),
      );
      return [FIGURES, ...lines];
    }

    listen() {
      onWire("treeprompts", (message) => this.feed(message));
      onRuns("treeprompts", this);
      this.at("csv").addEventListener("click", () => saveCsv("treerace-prompts.csv", this.table()));
      const plain = (/** @type {unknown} */ value) => String(value).replace(/\s+/g, " ");
      copyButton(this.at("copy"), () =>
        this.table()
          .map((row) => row.map(plain).join("\t"))
          .join("\n"),
      );
    }
  }

  /**
   * @param {HTMLElement} root
   * @param {LabAbout} value
   * @param {LabServer} server
   * @param {(words: string) => void} say
   */
  function mountPrompts(root, value, server, say) {
    TreeRace.prompts = new PromptsView(root, value, server.read_prompts, say);
  }

  return { PromptsView, mountPrompts };
})();
