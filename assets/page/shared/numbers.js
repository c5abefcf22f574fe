// Numbers as the page writes them, and model text as a label: white space made visible, markup escaped, widths measured. Knows nothing of
// races.

TreeRace.numbers = (() => {
  // Whether a ratio reads 1.0 when it is rounded: neither is ahead.
  /** @param {number} ratio */
  const isLevel = (ratio) => ratio > 0.95 && ratio < 1.05;

  /** @type {(value: number | null | undefined, digits: number) => string} */
  const asNumber = (value, digits) => (Number.isFinite(value) ? Number(value).toFixed(digits) : "–");

  /** @type {(count: number, what: string) => string} */
  const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

  /** @param {number | null | undefined} value a probability */
  function asShare(value) {
    if (value === null || value === undefined) return "–";
    return value < 0.001 ? "< 0.001" : value.toFixed(3);
  }

  // It never reads 0 % where that is only rounding.
  /** @param {number | null | undefined} share */
  function asPercent(share) {
    if (share === null || share === undefined || !Number.isFinite(share)) return "–";
    return share > 0 && share < 0.005 ? "< 1 %" : `${Math.round(100 * share)} %`;
  }

  /** @type {Record<string, string>} */
  const VISIBLE = { "\n": "⏎", "\t": "⇥", "\r": "␍" };

  // A token for a label: newlines and tabs as signs, leading spaces as a dot each.
  /** @param {string} text */
  function visible(text) {
    const spaces = text.length - text.replace(/^ +/, "").length;
    const rest = text.slice(spaces).replace(/[\n\t\r]/g, (sign) => VISIBLE[sign]);
    return { dots: "·".repeat(Math.min(spaces, 8)), rest };
  }

  // The token as a label; `empty` stands for one without a letter.
  /** @param {string} text */
  function labelOf(text, empty = "…") {
    const { dots, rest } = visible(text);
    return dots + rest || empty;
  }

  // Plotly reads a few HTML tags in every text; model text must never be read so.
  /** @param {string} text */
  const escapeMarkup = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  /**
   * The label for Plotly, cut to `limit` characters, its dots in a faint colour.
   * @param {string} text
   * @param {string} faint
   */
  function plotLabel(text, faint, limit = Infinity) {
    const { dots, rest } = visible(text);
    const cut = [...rest].length > limit ? `${[...rest].slice(0, Math.max(1, limit - 1)).join("")}…` : rest;
    return (dots ? `<span style="color:${faint}">${dots}</span>` : "") + escapeMarkup(cut);
  }

  const brush = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));

  /**
   * Width in pixels of the text as it is.
   * @param {string} text
   * @param {string} font
   */
  function plainWidth(text, font) {
    brush.font = font;
    return brush.measureText(text).width;
  }

  /** @type {(text: string, font: string) => number} pixels of a label as `plotLabel` writes it */
  const textWidth = (text, font) => plainWidth(labelOf(text, ""), font);

  return {
    isLevel,
    asNumber,
    asPercent,
    asShare,
    counted,
    visible,
    escapeMarkup,
    plainWidth,
    labelOf,
    plotLabel,
    textWidth,
  };
})();
