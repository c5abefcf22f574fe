// Rows as CSV. Knows nothing of what is in them.
"use strict";

TreeRace.csv = (() => {
  /** @param {unknown} value */
  function cell(value) {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  }

  /**
   * RFC 4180: the first row is the head; every line ends in CRLF.
   * @param {unknown[][]} rows
   */
  const asCsv = (rows) => rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");

  return { asCsv };
})();
