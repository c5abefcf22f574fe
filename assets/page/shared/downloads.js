// What a visitor takes away: files, tables as CSV, texts by buttons that copy, and charts, whose captions get a menu that saves the picture
// as SVG or PNG and what it shows as CSV. Knows no data.

TreeRace.downloads = (() => {
  const { copyOf, draw, finder, make } = TreeRace.elements;
  const { palette } = TreeRace.plotBase;
  const { popover } = TreeRace.popover;

  const KEPT_MS = 10_000; // a download has begun by then
  const SHOWN_MS = 1500; // how long a button says that it has copied
  const FORMULA = /^[=+\-@\t\r]/; // how a text begins that a spreadsheet would run as a formula
  const SCALE = 2; // pixels of a PNG for each of the page

  /** @param {unknown} value */
  function cell(value) {
    const given = String(value ?? "");
    const text = typeof value === "string" && FORMULA.test(given) ? `'${given}` : given;
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  }

  // RFC 4180: the first row is the head; every line ends in CRLF.
  /** @param {unknown[][]} rows */
  const asCsv = (rows) => rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");

  /** @type {(name: string, url: string) => void} of a blob, or a data URL */
  const saveAs = (name, url) => Object.assign(make("a"), { href: url, download: name }).click();

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

  /** @type {(name: string, rows: unknown[][]) => void} */
  const saveCsv = (name, rows) => saveFile(name, "text/csv", asCsv(rows));

  /** @param {string} text */
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = make("textarea"); // a page without the right to use the clipboard may still copy a selection
      area.value = text;
      area.style.cssText = "position:fixed;opacity:0";
      document.body.append(area);
      area.select();
      const isCopied = document.execCommand("copy");
      area.remove();
      return isCopied;
    }
  }

  /**
   * The button copies what `text()` gives, and says so.
   * @param {HTMLButtonElement} button
   * @param {() => string} text
   */
  function copyButton(button, text) {
    const name = button.textContent ?? "";
    let timer = 0;
    button.addEventListener("click", async () => {
      button.textContent = (await copy(text())) ? "Copied" : "Not copied";
      clearTimeout(timer);
      timer = setTimeout(() => button.replaceChildren(name), SHOWN_MS);
      button.focus();
    });
  }

  const STYLES = [
    "fill",
    "stroke",
    "stroke-width",
    "stroke-dasharray",
    "stroke-linecap",
    "font-family",
    "font-size",
    "font-weight",
    "text-anchor",
  ];

  /**
   * `figure` holds a caption and a canvas that Plotly draws in; `rows()` gives the table behind it, the head first.
   * @param {HTMLElement} figure
   * @param {HTMLTemplateElement} template
   * @param {string} name
   * @param {() => unknown[][]} rows
   */
  function saveMenu(figure, template, name, rows) {
    const menu = copyOf(template);
    const opener = finder(menu)("open");
    const open = popover(opener);
    opener.setAttribute("aria-label", `Save the chart ${figure.querySelector("b")?.textContent}`);
    for (const button of menu.querySelectorAll("[data-format]")) {
      button.addEventListener("click", () => {
        open(false);
        const { format } = button.dataset;
        if (format === "csv") saveCsv(`${name}.csv`, rows());
        else savePicture(finder(figure)("canvas"), `${name}.${format}`, format);
      });
    }
    figure.querySelector("figcaption")?.append(menu);
  }

  /**
   * Saves what is drawn in `div`. The picture has the page's background, which a file alone would lack.
   * @param {any} div
   * @param {string} name
   * @param {string} format
   */
  async function savePicture(div, name, format) {
    const { surface } = palette(div);
    const scale = format === "png" ? SCALE : 1;
    if (div.firstElementChild instanceof SVGSVGElement) {
      return saveAs(name, await drawingAs(div.firstElementChild, surface, format, scale));
    }
    const { width, height } = div.layout;
    const layout = { ...div.layout, paper_bgcolor: surface };
    saveAs(name, await Plotly.toImage({ data: div.data, layout }, { format, width, height, scale }));
  }

  /**
   * The address of a drawing as a file of its own, which has no style sheet.
   * @param {SVGSVGElement} svg
   * @param {string} surface the colour behind it
   * @param {string} format
   * @param {number} scale
   */
  async function drawingAs(svg, surface, format, scale) {
    const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
    const [from, to] = [svg, copy].map((each) => [each, ...each.querySelectorAll("*")]);
    for (const [index, element] of from.entries()) {
      const style = getComputedStyle(element);
      to[index].setAttribute("style", STYLES.map((each) => `${each}:${style.getPropertyValue(each)}`).join(";"));
    }
    copy.prepend(draw("rect", { width: "100%", height: "100%", fill: surface }));
    const address = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    if (format === "svg") return address;
    const picture = new Image();
    picture.src = address;
    await picture.decode();
    const canvas = make("canvas");
    canvas.width = scale * svg.clientWidth;
    canvas.height = scale * svg.clientHeight;
    canvas.getContext("2d")?.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL(`image/${format}`);
  }

  return { asCsv, copyButton, saveCsv, saveFile, saveMenu, savePicture };
})();
