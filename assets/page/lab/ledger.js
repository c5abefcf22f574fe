// Cells of the lab's tables: texts, ratios with a bar, shares. Knows numbers; nothing of what they are of.

TreeRace.ledger = (() => {
  const { make } = TreeRace.elements;
  const { isLevel } = TreeRace.numbers;

  /** @param {number | null | undefined} value */
  const ratio = (value) => (Number.isFinite(value) ? `${Number(value).toFixed(2)}×` : "–");
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

  /** @param {number | null | undefined} value with a bar that reaches to its third for 1× */
  function speed(value) {
    const made = cell("td", ratio(value), "speed");
    made.dataset.lead = lead(value);
    made.style.setProperty("--reach", String(Number.isFinite(value) ? Math.min(1, Number(value) / 3) : 0));
    return made;
  }

  /**
   * @param {HTMLElement} made the ratio's cell
   * @param {string} disturbed why it may not be repeatable, "" for nothing
   */
  function doubted(made, disturbed) {
    if (!disturbed) return made;
    made.dataset.disturbed = "";
    made.title = disturbed;
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

  return { cell, doubted, heads, ratio, sameText, speed };
})();
