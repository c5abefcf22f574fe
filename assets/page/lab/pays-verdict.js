// The verdict on the page: its sentence, a table of systems, where the time goes, acceptance by depth, the prompts. Knows the figures of
// `python -m engine pays`; knows no race.

TreeRace.paysVerdict = (() => {
  const { drawShares, drawSplit, splitLegend } = TreeRace.barPlots;
  const { finder, make } = TreeRace.elements;
  const { cell, heads, ratio, sameText, speed } = TreeRace.ledger;
  const { asNumber, asPercent } = TreeRace.numbers;

  const COLUMNS = ["Best setting", "Speed", "95 %", "× generate()", "95 %", "A pass", "Gains", "Text"];
  const BARS = 3; // systems whose time is drawn, beside plain decoding
  const FEW = 10; // prompts; an interval over fewer is too narrow
  const LIMITS = {
    verify: "verification",
    draft: "drafting",
    prefill: "reading the prompt",
    rest: "the host’s own work",
  };

  /** @param {[number, number]} ends */
  const between = ([low, high]) => `${asNumber(low, 2)}–${asNumber(high, 2)}`;

  /**
   * A system's shape behind its title, where it is not its own.
   * @param {PaysSystem} row
   */
  const shapeOf = ({ name, setting }) =>
    setting === name ? "" : setting.slice(setting.lastIndexOf(":") + 1).replaceAll("x", "×");

  /**
   * What takes most of the best system's time, or what keeps it from gaining.
   * @param {PaysSystem} best
   */
  function limit({ time, acceptance }) {
    const [most] = Object.entries(time).sort(([, a], [, b]) => b - a);
    const first = acceptance[0];
    const guessed = first
      ? `The first guess comes true in ${asPercent(first.accepted)} of its rounds.`
      : "It guessed nothing.";
    return `${asPercent(most[1])} of its time is ${/** @type {any} */ (LIMITS)[most[0]]}. ${guessed}`;
  }

  /**
   * A lane as the time's bars want it: seconds of one token, and shares.
   * @param {string} title
   * @param {number} perSecond
   * @param {Record<string, number>} time
   */
  function bar(title, perSecond, time) {
    const shares = {
      prefill_share: time.prefill,
      draft_share: time.draft,
      verify_share: time.verify,
      other_share: time.rest,
    };
    return /** @type {RankedLane} */ (/** @type {unknown} */ ({ title, tokens: 1, seconds: 1 / perSecond, ...shares }));
  }

  class PaysVerdict {
    /** @type {PaysReport | null} */
    report = null;

    /** @param {HTMLElement} root */
    constructor(root) {
      this.at = finder(root);
      this.at("system-heads").append(heads(COLUMNS));
      splitLegend(this.at("time-legend"));
    }

    /** @param {PaysReport} report */
    show(report) {
      this.report = report;
      const { answer, constraint, plain, verdict } = report;
      const best = this.best(report);
      this.at("answer").dataset.answer = answer;
      this.at("answer").textContent = answer === "only" ? "only for some" : answer;
      this.at("judged").textContent = verdict.slice(verdict.indexOf(":") + 1).trim();
      const few =
        report.prompts.length < FEW ? ` ${report.prompts.length} prompts are few: the intervals are too narrow.` : "";
      const free = constraint ? ", which writes without the constraint" : "";
      const alone = `plain decoding alone is ${asNumber(plain.vs_generate, 1)}× generate()${free}`;
      this.at("beside").textContent =
        `Against generate() it is ${asNumber(best.vs_generate, 1)}× as fast (${between(best.vs_generate_interval)}); ${alone}. ${limit(best)}${few}`;
      const rows = [...report.systems].sort((a, b) => b.speedup - a.speedup);
      this.at("system-rows").replaceChildren(...rows.map((row) => this.row(row, report)));
      this.draw();
    }

    /** @param {PaysReport} report */
    best(report) {
      return /** @type {PaysSystem} */ (report.systems.find((row) => row.name === report.best));
    }

    /**
     * @param {PaysSystem} row
     * @param {PaysReport} report
     */
    row(row, report) {
      const made = make("tr", row.name === report.best ? "best" : "");
      const title = cell("td", report.titles[row.name]);
      title.append(make("small", "", shapeOf(row)));
      title.title = row.setting;
      made.append(title, speed(row.speedup), cell("td", between(row.interval)), cell("td", ratio(row.vs_generate)));
      made.append(cell("td", between(row.vs_generate_interval)), cell("td", asNumber(row.tau, 2)));
      made.append(cell("td", `${row.gaining} of ${report.prompts.length}`), sameText(row.identical));
      return made;
    }

    draw() {
      const { report } = this;
      if (!report) return;
      const best = this.best(report);
      const rows = [...report.systems].sort((a, b) => b.speedup - a.speedup).slice(0, BARS);
      const { tokens_per_s: perSecond, time } = report.plain;
      const plain = bar("plain decoding", perSecond, time);
      const lanes = [...rows.map((row) => bar(report.titles[row.name], perSecond * row.speedup, row.time)), plain];
      drawSplit(this.at("time-canvas"), lanes, plain);
      const found = best.acceptance.map(({ depth, rounds, accepted }) => ({
        depth,
        reached: rounds,
        accepted: Math.round(accepted * rounds),
      }));
      drawShares(this.at("accepted-canvas"), found, "depth", "depth");
    }
  }

  /**
   * Every prompt with the best system's speed, the one that gains most first, and those that were refused.
   * @param {HTMLElement} head
   * @param {HTMLElement} body
   * @param {PaysReport} report
   */
  function fillPrompts(head, body, report) {
    const best = report.systems.find((row) => row.name === report.best);
    head.replaceChildren(heads(["#", "Prompt", `Speed with ${best?.setting}`]));
    const ranked = [...report.prompts].sort((a, b) => b.speedup - a.speedup);
    const rows = ranked.map(({ index, prompt, speedup }) =>
      make("tr", "", cell("td", index + 1), cell("td", prompt, "prompt"), speed(speedup)),
    );
    const refused = report.refused.map(({ index, prompt, why }) => {
      const words = make("td", "refused", why);
      return make("tr", "", cell("td", index + 1), cell("td", prompt, "prompt"), words);
    });
    body.replaceChildren(...rows, ...refused);
  }

  return { PaysVerdict, fillPrompts };
})();
