// How text gets on the page, as text and never as markup: in an element, in a label, in a picture. Knows nothing of races.
window.TreeRace = window.TreeRace || {};

(function (T) {
  // An element with these things in it; strings among `inside` become text, never markup.
  T.make = function (tag, className = "", ...inside) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    made.append(...inside);
    return made;
  };

  const VISIBLE = { "\n": "⏎", "\t": "⇥", "\r": "␍" };

  // A token for a label: newlines and tabs as signs, leading spaces as a dot each.
  T.visible = function (text) {
    const spaces = text.match(/^ */)[0].length;
    const rest = text.slice(spaces).replace(/[\n\t\r]/g, (sign) => VISIBLE[sign]);
    return { dots: "·".repeat(Math.min(spaces, 8)), rest };
  };

  // Plotly reads a few HTML tags in every text; model text must never be read so.
  T.escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // The label for Plotly, cut to `limit` characters, its dots in a faint colour.
  T.label = function (text, faint, limit = Infinity) {
    const { dots, rest } = T.visible(text);
    const cut = [...rest].length > limit ? [...rest].slice(0, Math.max(1, limit - 1)).join("") + "…" : rest;
    return (dots ? `<span style="color:${faint}">${dots}</span>` : "") + T.escape(cut);
  };

  const brush = document.createElement("canvas").getContext("2d");

  // Width in pixels of a label as T.label writes it.
  T.width = function (text, font) {
    const { dots, rest } = T.visible(text);
    brush.font = font;
    return brush.measureText(dots + rest).width;
  };

  // Whether a ratio reads 1.0 when it is rounded: neither is ahead.
  T.isLevel = (ratio) => ratio > 0.95 && ratio < 1.05;

  T.number = (value, digits) => (Number.isFinite(value) ? value.toFixed(digits) : "–");
  T.share = (value) => (value === null || value === undefined ? "–" : value < 0.001 ? "< 0.001" : value.toFixed(3));
})(window.TreeRace);
