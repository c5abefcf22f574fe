// The draft tree of one step, drawn with Plotly in pixels. Knows one step; nothing of lanes, clocks or playback.
"use strict";

TreeRace.treePlot = (() => {
  const { asShare } = TreeRace.numbers;
  const { PLOT, nodeLook, palette, plotLayout, roomOf } = TreeRace.plotBase;
  const { plotLabel, textWidth, visible } = TreeRace.text;

  const MARK = 11; // half the room of a marker, in pixels
  const PAD = { x: 20, y: 24 };
  const SMALLEST_ROW = 14; // below this height only the path keeps its labels
  const NARROW = 520;

  /**
   * Every node as the drawing needs it, the bonus last.
   * @param {Step} step
   * @returns {PlacedNode[]}
   */
  function nodesOf(step) {
    const path = new Set(step.path);
    /** @type {any[]} */
    const nodes = step.parents.map((parent, index) => ({
      parent,
      text: step.texts[index],
      q: step.q[index],
      p: step.p[index],
      verdict: step.verdicts[index],
      onPath: path.has(index),
    }));
    if (step.has_bonus) {
      const parent = step.path.length ? step.path[step.path.length - 1] : 0;
      nodes.push({ parent, text: step.bonus_text, q: null, p: step.bonus_p, verdict: "bonus", onPath: true });
    }
    return nodes.map((node, index) => ({ ...node, column: step.x[index], row: step.y[index] }));
  }

  /**
   * How large rows, letters and markers may be.
   * @param {PlacedNode[]} nodes
   * @param {number} width
   * @param {number} height
   * @param {Palette} colours
   */
  function sizesOf(nodes, width, height, colours) {
    const rows = Math.max(...nodes.map((node) => node.row)) + 1;
    const rowHeight = Math.min(84 * colours.zoom, (height - 2 * PAD.y) / Math.max(1, rows - 1));
    const crowded = rowHeight < SMALLEST_ROW;
    const wanted = Math.max(width < NARROW ? 12 : 16, Math.min(30, width / 36)) * colours.zoom;
    const fontSize = crowded ? 15 : Math.round(Math.max(11, Math.min(rowHeight * 0.58, wanted)));
    return {
      rowHeight,
      crowded,
      fontSize,
      top: (height - rowHeight * (rows - 1)) / 2,
      font: `700 ${fontSize}px ${colours.mono}`,
      scale: Math.max(0.4, Math.min(fontSize / 20, rowHeight / 15, 1.5)),
    };
  }

  /**
   * Left edge of each column: as wide as its labels, which are cut to `cap` when the tree would not fit.
   * @param {PlacedNode[]} nodes
   * @param {number} width
   */
  function columnsOf(nodes, width) {
    /** @type {number[]} */
    const widest = [];
    for (const node of nodes) widest[node.column] = Math.max(widest[node.column] || 0, node.width);
    const gaps = Math.max(1, widest.length - 1);
    const least = width < NARROW ? 12 : 26; // room for the curves between two columns
    const room = width - 2 * PAD.x - widest.length * 2 * MARK - gaps * least;
    const cap = capFor(widest, room);
    const widths = widest.map((each) => Math.min(each, cap));
    const spare = room - widths.reduce((sum, each) => sum + each, 0);
    const gap = least + Math.min(110, Math.max(0, spare) / gaps);
    const left = [PAD.x + MARK];
    for (let column = 1; column < widths.length; column++) {
      left[column] = left[column - 1] + 2 * MARK + widths[column - 1] + gap;
    }
    return { cap, widths, left };
  }

  /**
   * The label width at which all columns together fit the room.
   * @param {number[]} widest
   * @param {number} room
   */
  function capFor(widest, room) {
    const total = (/** @type {number} */ cap) => widest.reduce((sum, each) => sum + Math.min(each, cap), 0);
    let [low, high] = [0, Math.max(...widest)];
    if (total(high) <= room) return high;
    for (let round = 0; round < 20; round++) {
      const middle = (low + high) / 2;
      if (total(middle) <= room) low = middle;
      else high = middle;
    }
    return low;
  }

  /**
   * @param {PlacedNode[]} nodes
   * @param {number} width
   * @param {ReturnType<typeof sizesOf>} sizes
   */
  function place(nodes, width, sizes) {
    for (const node of nodes) {
      node.labelled = !sizes.crowded || node.onPath || node.verdict === "root";
      node.width = node.labelled ? textWidth(node.text, sizes.font) : 0;
    }
    const { cap, widths, left } = columnsOf(nodes, width);
    const letter = textWidth("m", sizes.font);
    for (const node of nodes) {
      const dots = visible(node.text).dots.length;
      node.x = left[node.column];
      node.y = sizes.top + node.row * sizes.rowHeight;
      node.limit = node.width > cap ? Math.max(2, Math.floor(cap / letter) - dots) : Infinity;
      node.labelEnd = node.x + MARK + (node.labelled ? 9 + Math.min(node.width, cap) : 0);
      node.columnEnd = node.x + MARK + 9 + widths[node.column];
    }
  }

  /**
   * A line from the end of the parent's label that bends into the child's row.
   * @param {PlacedNode} parent
   * @param {PlacedNode} child
   * @param {(number | null)[]} xs
   * @param {(number | null)[]} ys
   */
  function edge(parent, child, xs, ys) {
    const [start, bend, end] = [parent.labelEnd, Math.max(parent.labelEnd, parent.columnEnd), child.x - MARK + 2];
    xs.push(start, bend);
    ys.push(parent.y, parent.y);
    for (let k = 1; k < 10 && child.y !== parent.y; k++) {
      const share = k / 10;
      xs.push(bend + (end - bend) * share);
      ys.push(parent.y + (child.y - parent.y) * share * share * (3 - 2 * share));
    }
    xs.push(end, null);
    ys.push(child.y, null);
  }

  /**
   * @param {PlacedNode[]} nodes
   * @param {(node: PlacedNode) => boolean} keep
   * @param {object} line
   */
  function edges(nodes, keep, line) {
    /** @type {(number | null)[]} */
    const x = [];
    /** @type {(number | null)[]} */
    const y = [];
    for (const node of nodes) if (node.parent >= 0 && keep(node)) edge(nodes[node.parent], node, x, y);
    return { type: "scatter", mode: "lines", x, y, line, hoverinfo: "skip" };
  }

  /**
   * @param {PlacedNode} node
   * @param {Palette} colours
   */
  function hover(node, colours) {
    const name = plotLabel(node.text, colours.faint) || "(no text yet)";
    if (node.verdict === "root") return `${name}<br>root: the last token of the text`;
    const guess = node.q === null ? "" : `<br>draft q ${asShare(node.q)}`;
    const verdict = node.verdict === "unreached" ? "not reached" : node.verdict;
    return `${name}${guess}<br>target p ${asShare(node.p)}<br>${verdict}`;
  }

  /**
   * @param {PlacedNode[]} nodes
   * @param {ReturnType<typeof TreeRace.plotBase.nodeLook>[]} looks
   * @param {number} scale
   * @param {Palette} colours
   */
  function markers(nodes, looks, scale, colours) {
    return {
      type: "scatter",
      mode: "markers",
      x: nodes.map((node) => node.x),
      y: nodes.map((node) => node.y),
      marker: {
        symbol: looks.map((each) => each.symbol),
        size: looks.map((each) => each.size * scale),
        color: looks.map((each) => each.fill),
        line: { color: looks.map((each) => each.edge), width: Math.min(2, 2.5 * scale) },
        opacity: 1,
      },
      customdata: nodes.map((node) => hover(node, colours)),
      hovertemplate: "%{customdata}<extra></extra>",
    };
  }

  /**
   * @param {PlacedNode[]} nodes
   * @param {number} fontSize
   * @param {Palette} colours
   */
  function labels(nodes, fontSize, colours) {
    const named = nodes.filter((node) => node.labelled);
    return {
      type: "scatter",
      mode: "text",
      x: named.map((node) => node.x + MARK + 4),
      y: named.map((node) => node.y),
      text: named.map((node) => plotLabel(node.text, colours.faint, node.limit)),
      textposition: "middle right",
      textfont: {
        family: colours.mono,
        size: fontSize,
        color: named.map((node) => nodeLook(node.verdict, colours).text),
        weight: named.map((node) => (node.onPath ? 700 : 400)),
      },
      hoverinfo: "skip",
      cliponaxis: false,
    };
  }

  /**
   * @param {HTMLElement} div
   * @param {Step} step
   */
  function drawTree(div, step) {
    const room = roomOf(div);
    if (!room) return;
    const { width, height } = room;
    const colours = palette(div);
    const nodes = nodesOf(step);
    const sizes = sizesOf(nodes, width, height, colours);
    place(nodes, width, sizes);
    const looks = nodes.map((node) => nodeLook(node.verdict, colours));
    const isBonus = (/** @type {PlacedNode} */ node) => node.verdict === "bonus";
    const thick = Math.max(3, 5 * sizes.scale);
    const traces = [
      edges(nodes, (node) => !node.onPath, { color: colours.line, width: 1.5 }),
      edges(nodes, (node) => node.onPath && !isBonus(node), { color: colours.tree, width: thick }),
      edges(nodes, isBonus, { color: colours.tree, width: 3, dash: "4px,4px" }),
      markers(nodes, looks, sizes.scale, colours),
      labels(nodes, sizes.fontSize, colours),
    ];
    const axis = (/** @type {number[]} */ range) => ({ visible: false, fixedrange: true, range });
    const axes = { xaxis: axis([0, width]), yaxis: axis([height, 0]) };
    Plotly.react(div, traces, plotLayout(colours, width, height, { l: 0, r: 0, t: 0, b: 0 }, axes), PLOT);
  }

  return { drawTree };
})();
