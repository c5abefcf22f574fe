// What the plots share: colours out of the style sheet and between them, letters that can be read on them, Plotly's settings, a calm
// layout, when to draw anew. Knows nothing of a step.

TreeRace.plotBase = (() => {
  const { make } = TreeRace.elements;

  const PLOT = { displayModeBar: false, responsive: false, doubleClick: false, showAxisDragHandles: false };
  const SAID = { hovertemplate: "%{customdata}<extra></extra>" }; // of traces whose `customdata` says all

  /** @param {string} hex as in "#d55e00" */
  const channels = (hex) => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));

  /** @type {(from: string, to: string, part: number) => number[]} */
  const mixed = (from, to, part) => channels(from).map((each, index) => each + (channels(to)[index] - each) * part);

  /** @param {number[]} channel */
  function luminance(channel) {
    const linear = channel.map((each) => each / 255).map((c) => (c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }

  /** @param {number[]} channel of a colour, on which black or white is easier to read */
  const readable = (channel) => (luminance(channel) > 0.179 ? "#000000" : "#ffffff");

  /** @param {Element} element */
  function palette(element) {
    const style = getComputedStyle(element);
    /** @param {string} name */
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
  }

  // Runs Plotly's script, which takes the browser most of a second: only when there is a plot to draw. A replay holds it as text.
  function fetchPlotly() {
    const held = document.querySelector("#plotly");
    if (!held) return; // it is on its way
    const script = make("script", "", held.textContent ?? "");
    if (held instanceof HTMLLinkElement) {
      script.src = held.href;
      script.addEventListener("load", () => window.dispatchEvent(new Event("plotly")));
      script.addEventListener("error", () => script.replaceWith(held)); // the next plot asks again
    }
    held.replaceWith(script);
  }

  /**
   * The element's room in pixels and its colours; null while it has none. Asks for Plotly's script, and is null too until that is there.
   * @param {Element} div
   */
  function roomOf(div) {
    const [width, height] = [div.clientWidth, div.clientHeight];
    if (!width || !height) return null;
    if (!window.Plotly) fetchPlotly();
    return window.Plotly ? { width, height, colours: palette(div) } : null;
  }

  /**
   * Draws again when the page turns dark or light, when the element changes its size, and when a font or Plotly's script has come.
   * @param {Element} element
   * @param {() => void} draw
   */
  function keepDrawn(element, draw) {
    new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    new ResizeObserver(draw).observe(element);
    window.addEventListener("plotly", draw);
    document.fonts.addEventListener("loadingdone", draw); // labels were measured in another face
  }

  /**
   * Draws the traces. The layout is a fresh object each time, because Plotly writes into those that it is given.
   * @param {HTMLElement} div
   * @param {{ width: number, height: number, colours: Palette }} room as `roomOf` gives it
   * @param {object[]} traces
   * @param {{ l: number, r: number, t: number, b: number }} margin
   * @param {object} axes
   */
  function plot(div, { width, height, colours }, traces, margin, axes) {
    const size = Math.round(Math.max(15, Math.min(22, window.innerWidth / 85)) * colours.zoom);
    const face = { family: colours.font };
    const layout = {
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
    const told = traces.map((trace) => ("customdata" in trace ? { ...SAID, ...trace } : trace));
    Plotly.react(div, told, layout, PLOT);
  }

  /**
   * Points, or lines through them, each with what is said where the pointer is.
   * @param {"lines" | "markers" | "lines+markers"} mode
   * @param {{ x: number, y: number | null, said: string }[]} places
   * @param {object} look
   */
  const scatter = (mode, places, look) => ({
    type: "scatter",
    mode,
    x: places.map(({ x }) => x),
    y: places.map(({ y }) => y),
    customdata: places.map(({ said }) => said),
    ...look,
  });

  /**
   * Words on the plot; a logarithmic axis wants the logarithm of their place.
   * @param {string} text
   * @param {[x: number, y: number]} place
   * @param {"left" | "right"} xanchor
   * @param {{ color: string, size: number }} font
   */
  const word = (text, [x, y], xanchor, font, more = {}) => ({ text, x, y, xanchor, showarrow: false, font, ...more });

  /**
   * What all axes have, with ticks and a title in faint letters of that size.
   * @param {Palette} colours
   * @param {number} size
   */
  function axisOf(colours, size, text = "") {
    const font = { size, color: colours.faint };
    const axis = { fixedrange: true, zeroline: false, ticks: "", tickfont: font };
    return text ? { ...axis, title: { text, font, standoff: 2 } } : axis; // an empty title would take room
  }

  // The size of the letters of the lab's charts, in pixels.
  const lettering = () => Math.round(Math.max(12, Math.min(22, window.innerWidth / 92)));

  return { channels, mixed, readable, axisOf, palette, roomOf, keepDrawn, lettering, plot, scatter, word };
})();
