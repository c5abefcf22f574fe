// What a visitor takes away: files, tables as CSV, texts by buttons that copy. Knows nothing of what is in them.

TreeRace.downloads = (() => {
  const KEPT_MS = 10_000; // a download has begun by then
  const SHOWN_MS = 1500; // how long a button says that it has copied
  const FORMULA = /^[=+\-@\t\r]/; // how a text begins that a spreadsheet would run as a formula

  /** @param {unknown} value */
  function cell(value) {
    const given = String(value ?? "");
    const text = typeof value === "string" && FORMULA.test(given) ? `'${given}` : given;
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  }

  /**
   * RFC 4180: the first row is the head; every line ends in CRLF.
   * @param {unknown[][]} rows
   */
  const asCsv = (rows) => rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");

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

  /**
   * A page without the right to use the clipboard may still copy a selection.
   * @param {string} text
   */
  function copySelected(text) {
    const area = document.createElement("textarea");
    area.value = text;
    area.style.cssText = "position:fixed;opacity:0";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  /** @param {string} text */
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copySelected(text);
    }
  }

  /**
   * The button copies what `text()` gives, and says so.
   * @param {HTMLButtonElement} button
   * @param {() => string} text
   */
  function copyButton(button, text) {
    const name = button.textContent;
    let timer = 0;
    button.addEventListener("click", async () => {
      button.textContent = (await copy(text())) ? "Copied" : "Not copied";
      clearTimeout(timer);
      timer = setTimeout(() => {
        button.textContent = name;
      }, SHOWN_MS);
      button.focus();
    });
  }

  return { asCsv, copyButton, saveAs, saveCsv, saveFile };
})();
