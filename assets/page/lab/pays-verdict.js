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

  /** @type {(one: { speedup: number }, other: { speedup: number }) => number} the fastest first */
  const bySpeed = (one, other) => other.speedup - one.speedup;

  /** @param {[number, number]} ends */
  const between = ([low, high]) => `${asNumber(low, 2)}–${asNumber(high, 2)}`;

  /** @param {PaysSystem} row of which the shape is told where it is not the system's own */
  const shapeOf = ({ name, setting }) =>
    setting === name ? "" : setting.slice(setting.lastIndexOf(":") + 1).replaceAll("x", "×");

  /** @param {PaysSystem} best of which it is told what takes most of its time, and what keeps it from gaining */
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
    /** @type {PaysSystem[]} the fastest first */
    systems = [];

    /** @param {HTMLElement} root */
    constructor(root) {
      this.at = finder(root);
      this.at("system-heads").append(heads(COLUMNS));
      splitLegend(this.at("time-legend"));
    }

    /** @param {PaysReport} report */
    show(report) {
      this.report = report;
      this.systems = report.systems.toSorted(bySpeed);
      const { answer, constraint, plain, verdict } = report;
      const { best } = this;
      this.at("answer").dataset.answer = answer;
      this.at("answer").textContent = answer === "only" ? "only for some" : answer;
      this.at("judged").textContent = verdict.slice(verdict.indexOf(":") + 1).trim();
      const count = report.prompts.length;
      const few = count < FEW ? ` ${count} prompts are few: the intervals are too narrow.` : "";
      const free = constraint ? ", which writes without the constraint" : "";
      const alone = `plain decoding alone is ${asNumber(plain.vs_generate, 1)}× generate()${free}`;
      this.at("beside").textContent =
        `Against generate() it is ${asNumber(best.vs_generate, 1)}× as fast (${between(best.vs_generate_interval)}); ${alone}. ${limit(best)}${few}`;
      this.fillSystems(report);
      this.fillPrompts(report);
      this.draw();
    }

    get best() {
      return /** @type {PaysSystem} */ (this.systems.find((row) => row.name === this.report?.best));
    }

    /** @param {PaysReport} report */
    fillSystems({ best, prompts, titles }) {
      const rows = this.systems.map((row) => {
        const made = make("tr", row.name === best ? "best" : "");
        const title = cell("td", titles[row.name]);
        title.append(make("small", "", shapeOf(row)));
        title.title = row.setting;
        made.append(title, speed(row.speedup), cell("td", between(row.interval)), cell("td", ratio(row.vs_generate)));
        made.append(cell("td", between(row.vs_generate_interval)), cell("td", asNumber(row.tau, 2)));
        made.append(cell("td", `${row.gaining} of ${prompts.length}`), sameText(row.identical));
        return made;
      });
      this.at("system-rows").replaceChildren(...rows);
    }

    draw() {
      const { report, systems } = this;
      if (!report) return;
      const { tokens_per_s: perSecond, time } = report.plain;
      const plain = bar("plain decoding", perSecond, time);
      const fastest = systems.slice(0, BARS).map((row) => {
        return bar(report.titles[row.name], perSecond * row.speedup, row.time);
      });
      drawSplit(this.at("time-canvas"), [...fastest, plain], plain);
      const found = this.best.acceptance.map(({ depth, rounds, accepted }) => {
        return { depth, reached: rounds, accepted: Math.round(accepted * rounds) };
      });
      drawShares(this.at("accepted-canvas"), found, "depth", "depth");
    }

    /** @param {PaysReport} report whose prompts are shown with the best system's speed, and those that were refused */
    fillPrompts({ prompts, refused }) {
      this.at("prompt-heads").replaceChildren(heads(["#", "Prompt", `Speed with ${this.best.setting}`]));
      /** @type {(each: { index: number, prompt: string }, last: HTMLElement) => HTMLElement} */
      const row = ({ index, prompt }, last) =>
        make("tr", "", cell("td", index + 1), cell("td", prompt, "prompt"), last);
      this.at("prompt-rows").replaceChildren(
        ...prompts.toSorted(bySpeed).map((each) => row(each, speed(each.speedup))),
        ...refused.map((each) => row(each, cell("td", each.why, "refused"))),
      );
    }
  }

  return { PaysVerdict };
})();
