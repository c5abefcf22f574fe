// A visitor's own prompts on the page: a file, a row for every prompt, the sum of them. Knows the messages of engine/prompts.py.
"use strict";

TreeRace.ownPrompts = (() => {
  const { copyButton } = TreeRace.copyButton;
  const { saveCsv } = TreeRace.downloads;
  const { finder, make } = TreeRace.elements;
  const { press } = TreeRace.form;
  const { asNumber, isLevel } = TreeRace.numbers;
  const { fillSystems } = TreeRace.systemNames;
  const { answered, onRuns, onWire } = TreeRace.wire;

  const INVITATION = "How much faster on your text? Every prompt is a race against plain decoding.";
  const WAITING = "Waiting for the models …";
  const COLUMNS = ["", "Prompt", "Speed", "tau", "Tokens", "Draft", "Verify", "Text"];
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
    "refused",
  ];
  /** @type {Record<string, string>} */
  const TEXTS = { true: "✓ identical", law: "≈ same odds", lossy: "≠ lossy", false: "≠ not identical" };

  /** @param {number | undefined} share */
  const percent = (share) => (Number.isFinite(share) ? `${Math.round(100 * Number(share))} %` : "–");
  /** @param {number | null | undefined} value */
  const ratio = (value) => (Number.isFinite(value) ? `${Number(value).toFixed(2)}×` : "–");
  /**
   * @param {number} count
   * @param {string} what
   */
  const many = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
  /** @param {number | null | undefined} value */
  const lead = (value) => {
    if (!Number.isFinite(value) || isLevel(Number(value))) return "";
    return Number(value) > 1 ? "1" : "0";
  };

  /**
   * @param {"td" | "th"} tag
   * @param {string | number} text
   */
  function cell(tag, text, kind = "") {
    return make(tag, kind, String(text));
  }

  /**
   * How far the ratio's bar reaches, with 1× at a third of it.
   * @param {number | null | undefined} value
   * @param {"td" | "th"} tag
   */
  function speed(value, tag = "td") {
    const made = cell(tag, ratio(value), "speed");
    made.dataset.lead = lead(value);
    made.style.setProperty("--reach", String(Number.isFinite(value) ? Math.min(1, Number(value) / 3) : 0));
    return made;
  }

  class PromptsView {
    /** @type {string[]} */
    prompts = [];
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
    constructor(root, { systems, prompts, allowed }, read, say) {
      this.root = root;
      this.read = read;
      this.say = say;
      this.at = finder(root);
      this.gallery = Object.values(prompts).flatMap((each) => each.map(({ prompt }) => prompt));
      this.at("gallery").textContent = `Take this page’s ${this.gallery.length}`;
      this.at("allowed").textContent = allowed;
      fillSystems(this.at("system"), systems, "tree");
      const head = document.createElement("tr");
      head.append(...COLUMNS.map((name) => cell("th", name)));
      for (const each of head.querySelectorAll("th")) each.setAttribute("scope", "col");
      this.at("head").append(head);
      this.say(INVITATION);
      this.listen();
    }

    // ---- the file ---------------------------------------------------------------------------------------------------

    /** @param {File} file */
    async take(file) {
      let text;
      try {
        text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      } catch {
        return this.say(`${file.name} is not UTF-8 text.`);
      }
      const found = await answered(this.read(file.name, text));
      if (found.refused) return this.say(found.refused);
      this.show(found.prompts, file.name);
    }

    /**
     * @param {string[]} prompts
     * @param {string} name
     */
    show(prompts, name) {
      if (this.root.dataset.state === "running") press("#lab-halt"); // it would go on unseen
      this.prompts = prompts;
      this.at("about-file").textContent = `${many(prompts.length, "prompt")} of ${name}`;
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
        const text = cell("td", TEXTS[String(row.identical)]);
        text.dataset.identical = String(row.identical);
        shown.replaceChildren(
          ...kept,
          speed(row.speedup),
          cell("td", row.tau.toFixed(2)),
          cell("td", row.tokens),
          ...shares,
          text,
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
      const { speedup, speedup_total: total, identical, raced } = summary;
      const times = `${asNumber(total > 1 ? total : 1 / total, 2)}× ${total > 1 ? "faster" : "slower"} than`;
      const words = isLevel(total) ? "as fast as" : times;
      const finding = `${words} plain decoding over ${many(raced, "prompt")}, median ${ratio(speedup)}`;
      return `${before}${this.title}: ${finding}, identical text in ${identical} of them.`;
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
      const [file, drop] = [this.at("file"), this.at("drop")];
      this.at("choose").addEventListener("click", () => file.click());
      file.addEventListener("change", () => {
        if (file.files[0]) this.take(file.files[0]);
        file.value = ""; // the same file can be chosen again
      });
      this.at("gallery").addEventListener("click", () => this.show(this.gallery, "this page"));
      for (const kind of ["dragover", "dragleave", "drop"]) {
        this.root.addEventListener(kind, (event) => {
          event.preventDefault();
          drop.toggleAttribute("data-over", kind === "dragover");
          const dropped = /** @type {DragEvent} */ (event).dataTransfer?.files[0];
          if (kind === "drop" && dropped) this.take(dropped);
        });
      }
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
