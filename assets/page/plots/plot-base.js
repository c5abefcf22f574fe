// What the plots share: colours out of the style sheet, Plotly's settings, a calm layout, when to draw anew. Knows nothing of a step.
window.TreeRace = window.TreeRace || {};

(function (T) {
  T.PLOT = { displayModeBar: false, responsive: false, doubleClick: false, showAxisDragHandles: false };

  T.palette = function (element) {
    const style = getComputedStyle(element);
    const read = (name) => style.getPropertyValue(name).trim();
    return {
      ink: read("--ink"),
      faint: read("--faint"),
      line: read("--line"),
      cell: read("--cell"),
      sees: read("--sees"),
      base: read("--base"),
      baseInk: read("--base-ink"),
      tree: read("--tree"),
      treeInk: read("--tree-ink"),
      surface: read("--surface"),
      font: style.fontFamily,
      mono: read("--face-tokens"),
      zoom: Number(read("--zoom")),
    };
  };

  // Draws again when the page turns dark or light and when the element changes its size.
  T.keepDrawn = function (element, draw) {
    new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    new ResizeObserver(draw).observe(element);
  };

  // How a node is marked, by its verdict, wherever it is drawn.
  T.nodeLook = function (verdict, colours) {
    const kept = { fill: colours.tree, edge: colours.tree, text: colours.treeInk };
    return {
      root: { symbol: "circle", size: 13, fill: colours.ink, edge: colours.ink, text: colours.ink },
      accepted: { symbol: "square", size: 17, ...kept },
      bonus: { symbol: "diamond", size: 20, ...kept },
      rejected: { symbol: "circle", size: 12, fill: colours.surface, edge: colours.faint, text: colours.faint },
      unreached: { symbol: "circle", size: 6, fill: colours.line, edge: colours.line, text: colours.faint },
    }[verdict];
  };

  // A fresh object for every drawing: Plotly writes into the layouts it is given.
  T.plotLayout = function (colours, width, height, margin, axes) {
    const size = Math.round(Math.max(15, Math.min(22, window.innerWidth / 85)) * colours.zoom);
    const face = { family: colours.font };
    return {
      width,
      height,
      margin,
      showlegend: false,
      dragmode: false,
      hovermode: "closest",
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { ...face, color: colours.ink },
      hoverlabel: { bgcolor: colours.ink, bordercolor: colours.ink, font: { ...face, color: colours.surface, size } },
      ...axes,
    };
  };
})(window.TreeRace);
