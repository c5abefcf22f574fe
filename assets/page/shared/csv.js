// Files to take away: contents become downloads, rows become CSV. Knows nothing of what is in them.
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

  T.saveFile = function (name, type, content) {
    const url = URL.createObjectURL(new Blob([content], { type }));
    T.saveAs(name, url);
    setTimeout(() => URL.revokeObjectURL(url), 10_000); // the download has begun by then
  };

  T.saveCsv = (name, rows) => T.saveFile(name, "text/csv", T.csv(rows));
})(window.TreeRace);
