// A visitor's own prompts on the page: a file, a row for every prompt, the sum of them. Knows the messages of
// engine/page/screens/own_prompts.py.

TreeRace.ownPrompts = (() => {
  const { copyButton, saveCsv } = TreeRace.downloads;
  const { fillBar, findAll, finder, make } = TreeRace.elements;
  const { cell, heads, ratio, sameText, speed } = TreeRace.ledger;
  const { asNumber, asPercent, counted, isLevel } = TreeRace.numbers;
  const { fillSystems } = TreeRace.systemNames;
  const { ENDED, Run } = TreeRace.runs;

  const INVITATION = "How much faster on your text? Every prompt is a race against plain decoding.";
  const PREFERRED = ["tree", "eagle", "auto"]; // the system that is offered first: the first that the pair can race
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
    /** @type {PromptsSummary | null} */
    summary = null;
    title = ""; // of the system that races

    /**
     * @param {HTMLElement} root
     * @param {LabAbout} about
     * @param {PromptFile} file
     * @param {(words: string) => void} say shows how it stands
     */
    constructor(root, about, file, say) {
      this.root = root;
      this.say = say;
      this.at = finder(root);
      this.run = new Run("prompts", this);
      this.file = file;
      file.serve(root, say, () => this.show());
      this.at("allowed").textContent = about.allowed;
      fillSystems(this.at("system"), about.systems, PREFERRED);
      this.at("head").append(heads(COLUMNS));
      this.say(INVITATION);
      this.at("csv").addEventListener("click", () => saveCsv("treerace-prompts.csv", this.table()));
      const plain = (/** @type {unknown} */ value) => String(value).replace(/\s+/g, " ");
      const line = (/** @type {unknown[]} */ row) => row.map(plain).join("\t");
      copyButton(this.at("copy"), () => this.table().map(line).join("\n"));
    }

    // Other prompts are there.
    show() {
      this.run.forget();
      this.at("hint").hidden = true;
      this.at("table").hidden = false;
      this.reset();
      this.say("Press Start.");
    }

    reset() {
      this.summary = null;
      this.rows = [];
      const rows = this.file.prompts.map((prompt, index) => {
        const shown = cell("td", prompt.trim().replace(/\s+/g, " ").slice(0, 200), "prompt");
        const figures = COLUMNS.slice(3).map(() => cell("td", "–"));
        return make("tr", "", cell("td", index + 1), shown, speed(null), ...figures);
      });
      this.at("rows").replaceChildren(...rows);
      this.total();
    }

    /** @param {Settings} form */
    order({ temperature, max_new_tokens, seed }) {
      this.reset();
      return { prompts: this.file.prompts, system: this.at("system").value, temperature, max_new_tokens, seed };
    }

    /** @param {RunEnd} how */
    over(how) {
      this.say(this.file.prompts.length ? this.verdict(`${ENDED[how]}. `) : "Choose a file first.");
      this.settle();
    }

    /** @param {PromptsMessage} message */
    feed(message) {
      if (message.start) this.title = message.title;
      if ("at" in message) this.running(message);
      if ("row" in message) this.add(message);
      if (!message.end) return;
      this.say(this.verdict(""));
      this.settle();
    }

    /** @param {{ at: number, tokens: number }} message */
    running({ at: index, tokens }) {
      const row = this.at("rows").rows[index];
      if (row && tokens) row.cells[TOKENS].textContent = tokens;
      if (row && !tokens) {
        this.settle();
        row.dataset.now = "";
        row.scrollIntoView({ block: "nearest" });
      }
      this.say(`Prompt ${index + 1} of ${this.file.prompts.length}: ${this.title} against plain decoding.`);
    }

    settle() {
      for (const row of findAll(this.root, "[data-now]")) delete row.dataset.now;
    }

    /** @param {{ row: PromptRow, summary: PromptsSummary }} message */
    add({ row, summary }) {
      this.summary = summary;
      this.rows.push(row);
      const shown = this.at("rows").rows[row.index];
      const kept = [...shown.cells].slice(0, 2);
      if (row.refused) {
        const words = cell("td", row.refused, "refused");
        words.colSpan = COLUMNS.length - 2;
        shown.replaceChildren(...kept, words);
      } else {
        const shares = [row.draft_share, row.verify_share].map((share) => cell("td", asPercent(share)));
        shown.replaceChildren(
          ...kept,
          speed(row.speedup, row.disturbed),
          cell("td", row.tau.toFixed(2)),
          cell("td", row.tokens),
          ...shares,
          sameText(row.identical),
        );
      }
      this.total();
    }

    total() {
      /** @type {Partial<PromptsSummary>} */
      const all = this.summary ?? {};
      const { raced = 0, refused = 0 } = all;
      fillBar(this.at("progress"), this.rows.length, this.file.prompts.length);
      for (const button of ["copy", "csv"]) this.at(button).disabled = !this.rows.length;
      /** @type {(name: string, times: number | undefined, ...more: (string | number)[]) => HTMLElement} */
      const row = (name, times, ...more) =>
        make("tr", "", cell("td", ""), cell("th", name), speed(times), ...more.map((each) => cell("td", each)));
      const together = `All ${counted(raced, "prompt")} together${refused ? `, ${refused} refused` : ""}`;
      const same = raced ? `✓ ${all.identical} of ${raced}` : "–";
      const shares = [all.draft_share, all.verify_share].map(asPercent);
      this.at("total").replaceChildren(
        row("Median", all.speedup, asNumber(all.tau, 2), "", ...shares, ""),
        row(together, all.speedup_total, "", all.tokens || "–", "", "", same),
      );
    }

    /** @param {string} before */
    verdict(before) {
      const { summary } = this;
      if (!summary?.raced) return `${before}No prompt was raced.`;
      const { speedup, speedup_total: total, identical, raced, disturbed } = summary;
      const times = `${asNumber(total > 1 ? total : 1 / total, 2)}× ${total > 1 ? "faster" : "slower"} than`;
      const words = isLevel(total) ? "as fast as" : times;
      const finding = `${words} plain decoding over ${counted(raced, "prompt")}, median ${ratio(speedup)}`;
      const sentence = `${before}${this.title}: ${finding}, identical text in ${identical} of them.`;
      return disturbed ? `${sentence} ${disturbed}` : sentence;
    }

    table() {
      const numbered = this.rows.map((row) => ({ ...row, index: row.index + 1 }));
      return [FIGURES, ...numbered.map((/** @type {PromptRow} */ row) => FIGURES.map((name) => row[name] ?? ""))];
    }
  }

  return { PromptsView };
})();
