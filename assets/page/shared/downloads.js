// Files to take away: contents become downloads. Knows nothing of what is in them.

TreeRace.downloads = (() => {
  const { asCsv } = TreeRace.csv;
  const KEPT_MS = 10_000; // the download has begun by then

  /**
   * Hands the visitor a file; `url` may be a blob's or a data URL.
   * @param {string} name
   * @param {string} url
   */
  function saveAs(name, url) {
    const link = document.createElement("a");
    [link.href, link.download] = [url, name];
    link.click();
  }

  /**
   * @param {string} name
   * @param {string} type
   * @param {string} content
   */
  function saveFile(name, type, content) {
    const url = URL.createObjectURL(new Blob([content], { type }));
    saveAs(name, url);
    setTimeout(() => URL.revokeObjectURL(url), KEPT_MS);
  }

  /**
   * @param {string} name
   * @param {unknown[][]} rows
   */
  const saveCsv = (name, rows) => saveFile(name, "text/csv", asCsv(rows));

  return { saveAs, saveFile, saveCsv };
})();
