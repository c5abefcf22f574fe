// Tables as files: rows become CSV, and a file becomes a download. Knows nothing of what is in them.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };

  // RFC 4180: the first row is the head; every line ends in CRLF.
  T.csv = (rows) => rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");

  // Hands the visitor a file; `url` may be a blob's or a data URL.
  T.saveAs = function (name, url) {
    const link = document.createElement("a");
    [link.href, link.download] = [url, name];
    link.click();
  };

  T.saveCsv = function (name, rows) {
    const url = URL.createObjectURL(new Blob([T.csv(rows)], { type: "text/csv" }));
    T.saveAs(name, url);
    setTimeout(() => URL.revokeObjectURL(url), 10_000); // the download has begun by then
  };
})(window.TreeRace);
