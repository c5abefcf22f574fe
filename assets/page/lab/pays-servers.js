// Running servers beside the page's own verdict: the rows of a table that `pays --server --into` wrote. Knows the rows as
// engine/page/screens/pays_servers.py tells them; knows no file and no race.
"use strict";

TreeRace.paysServers = (() => {
  const { finder, make } = TreeRace.elements;
  const { cell, heads, speed } = TreeRace.ledger;
  const { asNumber, asPercent } = TreeRace.numbers;

  const COLUMNS = [
    "Machine",
    "Server",
    "Streams",
    "Plain/s",
    "With/s",
    "Speed",
    "95 %",
    "Pays",
    "A pass",
    "Accepted",
    "Same text",
  ];
  /** @type {Record<string, string>} */
  const ANSWERS = { yes: "yes", no: "no", only: "only some" };

  /**
   * The cells of one number of streams.
   * @param {ServedPoint} point
   */
  function figures(point) {
    const [low, high] = point.interval;
    const answer = cell("td", ANSWERS[point.answer], "pays-answer");
    answer.dataset.says = point.answer;
    return [
      cell("td", point.batch),
      cell("td", asNumber(point.plain_tokens_per_s, 1)),
      cell("td", asNumber(point.tokens_per_s, 1)),
      speed(point.speedup),
      cell("td", `${asNumber(low, 2)}–${asNumber(high, 2)}`),
      answer,
      cell("td", asNumber(point.tau, 2)),
      cell("td", asPercent(point.acceptance)),
      cell("td", point.identical === null ? "–" : `${point.identical} of ${point.texts}`),
    ];
  }

  /**
   * A cell over all lines of a row.
   * @param {number} lines
   * @param {string} words
   * @param {...string} more in small letters below
   */
  function over(lines, words, ...more) {
    const made = make(
      "td",
      "who",
      make("b", "", words),
      ...more.filter(Boolean).map((each) => make("small", "", each)),
    );
    made.rowSpan = lines;
    return made;
  }

  /**
   * A row's lines: one for each number of streams, then its verdict in words.
   * @param {ServedRow} row
   */
  function group(row) {
    const lines = row.points.length + 1;
    const against = `against ${row.against}; ${row.how}`;
    const who = [over(lines, row.machine), over(lines, row.server, row.flags, against)];
    const told = row.points.map((point, at) => make("tr", "", ...(at ? [] : who), ...figures(point)));
    const said = make(
      "td",
      "said",
      make("b", "", row.verdict),
      ...row.cautions.map((each) => make("span", "", ` ${each}`)),
    );
    said.colSpan = COLUMNS.length - who.length;
    return make("tbody", "", ...told, make("tr", "", said));
  }

  /**
   * The page's own verdict as a row: one race at a time is one stream.
   * @param {PaysReport} report
   * @returns {ServedRow}
   */
  function ownRow(report) {
    const best = /** @type {PaysSystem} */ (report.systems.find((row) => row.name === report.best));
    const raced = report.prompts.length;
    return {
      machine: report.machine,
      server: `This page: ${report.titles[best.name]}`,
      flags: report.pair,
      against: "plain decoding",
      how: `T = ${report.temperature}, ${raced} prompts, up to ${report.tokens} tokens`,
      verdict: report.verdict,
      cautions: [],
      points: [
        {
          batch: 1,
          plain_tokens_per_s: report.plain.tokens_per_s,
          tokens_per_s: report.plain.tokens_per_s * best.speedup,
          speedup: best.speedup,
          interval: best.interval,
          answer: report.answer,
          tau: best.tau,
          acceptance: null,
          texts: raced,
          identical: best.identical === true ? raced : null,
        },
      ],
    };
  }

  class PaysServers {
    /** @type {ServedRow[]} */
    rows = [];
    /** @type {PaysReport | null} */
    report = null;

    /** @param {HTMLElement} root */
    constructor(root) {
      this.at = finder(root);
      this.at("server-heads").append(heads(COLUMNS));
    }

    /** @param {ServedRow[]} rows of the table that was opened */
    show(rows) {
      this.rows = rows;
      this.fill();
    }

    /** @param {PaysReport | null} report the page's own, null while there is none */
    beside(report) {
      this.report = report;
      this.fill();
    }

    fill() {
      const own = this.report ? [ownRow(this.report)] : [];
      const table = this.at("server-heads").parentElement;
      for (const each of table.querySelectorAll("tbody")) each.remove();
      table.append(...[...own, ...this.rows].map(group));
    }
  }

  return { PaysServers };
})();
