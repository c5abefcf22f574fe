// Model text as a label: white space made visible, markup escaped, widths measured. Knows nothing of races.

TreeRace.text = (() => {
  /** @type {Record<string, string>} */
  const VISIBLE = { "\n": "⏎", "\t": "⇥", "\r": "␍" };

  /**
   * A token for a label: newlines and tabs as signs, leading spaces as a dot each.
   * @param {string} text
   */
  function visible(text) {
    const spaces = text.length - text.replace(/^ +/, "").length;
    const rest = text.slice(spaces).replace(/[\n\t\r]/g, (sign) => VISIBLE[sign]);
    return { dots: "·".repeat(Math.min(spaces, 8)), rest };
  }

  /**
   * Plotly reads a few HTML tags in every text; model text must never be read so.
   * @param {string} text
   */
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
   * Width in pixels of a label as `plotLabel` writes it.
   * @param {string} text
   * @param {string} font
   */
  function textWidth(text, font) {
    const { dots, rest } = visible(text);
    return plainWidth(dots + rest, font);
  }

  /**
   * Width in pixels of the text as it is.
   * @param {string} text
   * @param {string} font
   */
  function plainWidth(text, font) {
    brush.font = font;
    return brush.measureText(text).width;
  }

  return { VISIBLE, visible, escapeMarkup, plainWidth, plotLabel, textWidth };
})();
