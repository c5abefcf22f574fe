// A chart to take away: its caption gets a menu that saves the picture as SVG or PNG and what it shows as CSV. Knows no data.
"use strict";

TreeRace.saveChart = (() => {
  const { saveAs, saveCsv } = TreeRace.downloads;
  const { copyOf, finder } = TreeRace.elements;
  const { palette } = TreeRace.plotBase;
  const { popover } = TreeRace.popover;

  const SCALE = 2; // pixels of a PNG for each of the page

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
   * Saves what Plotly has drawn in `div`. The picture has the page's background, which a file alone would lack.
   * @param {any} div
   * @param {string} name
   * @param {string} format
   */
  async function savePicture(div, name, format) {
    const { width, height } = div.layout;
    const layout = { ...div.layout, paper_bgcolor: palette(div).surface };
    const scale = format === "png" ? SCALE : 1;
    saveAs(name, await Plotly.toImage({ data: div.data, layout }, { format, width, height, scale }));
  }

  return { saveMenu, savePicture };
})();
