// What both plots share: colours out of the style sheet, Plotly's settings, a calm layout. Knows nothing of a step.
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
      tree: read("--tree"),
      treeInk: read("--tree-ink"),
      surface: read("--surface"),
      font: style.fontFamily,
      mono: read("--face-tokens"),
    };
  };

  // A fresh object for every drawing: Plotly writes into the layouts it is given.
  T.plotLayout = function (colours, width, height, margin, axes) {
    const size = Math.round(Math.max(15, Math.min(22, window.innerWidth / 85)));
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
