// Rows as CSV. Knows nothing of what is in them.

TreeRace.csv = (() => {
  // How a text begins that a spreadsheet would run as a formula.
  const FORMULA = /^[=+\-@\t\r]/;

  /** @param {unknown} value */
  function cell(value) {
    const given = value === null || value === undefined ? "" : String(value);
    const text = typeof value === "string" && FORMULA.test(given) ? `'${given}` : given;
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  }

  /**
   * RFC 4180: the first row is the head; every line ends in CRLF.
   * @param {unknown[][]} rows
   */
  const asCsv = (rows) => rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");

  return { asCsv };
})();
