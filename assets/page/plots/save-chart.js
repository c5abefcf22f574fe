// A chart to take away: its caption gets a menu that saves the picture as SVG or PNG and what it shows as CSV. Knows no data.

TreeRace.saveChart = (() => {
  const { saveAs, saveCsv } = TreeRace.downloads;
  const { copyOf, draw, finder, make } = TreeRace.elements;
  const { palette } = TreeRace.plotBase;
  const { popover } = TreeRace.popover;

  const SCALE = 2; // pixels of a PNG for each of the page
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
    const open = popover(menu, opener, menu.querySelector(".panel"));
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

  return { saveMenu, savePicture };
})();
