// A chart to take away: its caption gets a menu that saves the picture as SVG or PNG and what it shows as CSV. Knows no data.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const SCALE = 2; // pixels of a PNG for each of the page

  // `figure` holds a caption and a canvas that Plotly draws in; `rows()` gives the table behind it, the head first.
  T.saveMenu = function (figure, template, name, rows) {
    const menu = template.content.firstElementChild.cloneNode(true);
    const open = T.popover(menu, menu.querySelector("[data-open]"), menu.querySelector(".panel"));
    const title = figure.querySelector("b").textContent;
    menu.querySelector("[data-open]").setAttribute("aria-label", `Save the chart ${title}`);
    menu.querySelectorAll("[data-format]").forEach((button) => {
      button.addEventListener("click", () => {
        open(false);
        const { format } = button.dataset;
        if (format === "csv") T.saveCsv(`${name}.csv`, rows());
        else T.savePicture(figure.querySelector("[data-canvas]"), `${name}.${format}`, format);
      });
    });
    figure.querySelector("figcaption").append(menu);
  };

  // Saves what Plotly has drawn in `div`. The picture has the page's background, which a file alone would lack.
  T.savePicture = async function (div, name, format) {
    const { width, height } = div.layout;
    const layout = { ...div.layout, paper_bgcolor: T.palette(div).surface };
    const scale = format === "png" ? SCALE : 1;
    T.saveAs(name, await Plotly.toImage({ data: div.data, layout }, { format, width, height, scale }));
  };
})(window.TreeRace);
