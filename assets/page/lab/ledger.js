// Cells of the lab's tables: texts, ratios with a bar, shares. Knows numbers; nothing of what they are of.

TreeRace.ledger = (() => {
  const { make } = TreeRace.elements;
  const { isLevel } = TreeRace.numbers;

  /** @param {number | null | undefined} value */
  const ratio = (value) => (Number.isFinite(value) ? `${Number(value).toFixed(2)}×` : "–");

  /**
   * @param {"td" | "th"} tag
   * @param {string | number} text
   */
  function cell(tag, text, kind = "") {
    return make(tag, kind, String(text));
  }

  /**
   * A ratio with a bar that reaches to its third for 1×.
   * @param {number | null | undefined} value
   * @param {string} disturbed why it may not be repeatable, "" for nothing
   */
  function speed(value, disturbed = "") {
    const made = cell("td", ratio(value), "speed");
    const known = Number.isFinite(value) ? Number(value) : 0;
    const isEven = !known || isLevel(known);
    made.toggleAttribute("data-disturbed", Boolean(disturbed));
    made.title = disturbed;
    made.dataset.lead = isEven ? "" : String(Number(known > 1));
    made.style.setProperty("--reach", String(Math.min(1, known / 3)));
    return made;
  }

  /** @param {string[]} names of columns */
  const heads = (names) => make("tr", "", ...names.map((name) => Object.assign(cell("th", name), { scope: "col" })));

  /** @type {Record<string, string>} */
  const TEXTS = { true: "✓ identical", law: "≈ same odds", lossy: "≠ lossy", false: "≠ not identical" };

  /** @param {Identical} identical whether a text is plain decoding's */
  function sameText(identical) {
    const made = cell("td", TEXTS[String(identical)]);
    made.dataset.identical = String(identical);
    return made;
  }

  return { cell, heads, ratio, sameText, speed };
})();
