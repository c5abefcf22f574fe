// The attention mask of one step, drawn with Plotly: rows look at columns. Builds it from the parents alone, in the order it is given.
"use strict";

TreeRace.maskPlot = (() => {
  const { PLOT, palette, plotLayout, roomOf } = TreeRace.plotBase;
  const { plotLabel, textWidth } = TreeRace.text;

  const LARGEST_CELL = { width: 110, height: 56 };
  const LARGEST_NAMED = 28; // with more nodes the axes carry no labels
  const LARGEST_GAPPED = 40;
  const [UNSEEN, SEEN, ON_PATH] = [0, 1, 2];

  /**
   * @param {number[]} parents
   * @param {number} node
   */
  function ancestors(parents, node) {
    const seen = new Set();
    for (let at = node; at >= 0; at = parents[at]) seen.add(at);
    return seen;
  }

  /**
   * What a broken mask lets a node see: all that stand before it in the arrays.
   * @param {number[]} _
   * @param {number} node
   */
  function earlier(_, node) {
    return new Set(Array(node + 1).keys());
  }

  /**
   * One row for each node: the cache, which every node sees, then all nodes.
   * @param {Step} step
   * @param {number[]} order
   * @param {(node: number) => string} name
   * @param {(parents: number[], node: number) => Set<number>} sees
   */
  function cellsOf(step, order, name, sees) {
    const accepted = new Set([0, ...step.path]);
    /** @type {number[][]} */
    const z = [];
    /** @type {string[][]} */
    const notes = [];
    for (const query of order) {
      const [seen, kin] = [sees(step.parents, query), ancestors(step.parents, query)];
      const [row, words] = [[SEEN], [`${name(query)} → the text so far<br>may look: all of it`]];
      for (const key of order) {
        row.push(!seen.has(key) ? UNSEEN : accepted.has(query) && accepted.has(key) ? ON_PATH : SEEN);
        const why = key === query ? "may look: itself" : kin.has(key) ? "may look: an ancestor" : may(seen.has(key));
        words.push(`${name(query)} → ${name(key)}<br>${why}`);
      }
      z.push(row);
      notes.push(words);
    }
    return { z, notes };
  }

  /** @param {boolean} looks */
  const may = (looks) => (looks ? "looks, and should not" : "may not look");

  /**
   * The room that labels of this size take, and whether the columns' labels fit above them without turning.
   * @param {number} size
   * @param {string[]} texts
   * @param {number} width
   * @param {Palette} colours
   */
  function axesAt(size, texts, width, colours) {
    const font = `400 ${size}px ${colours.mono}`;
    const named = texts.length <= LARGEST_NAMED;
    const longest = textWidth("m".repeat(11), font);
    const widest = Math.max(...texts.map((text) => Math.min(textWidth(text, font), longest)));
    const left = named ? Math.ceil(widest) + 20 : 8;
    const cellWidth = Math.min(LARGEST_CELL.width, (width - left - 8) / (texts.length + 1));
    const flat = named && cellWidth > Math.min(widest, 4.5 * size) + 4;
    const limit = flat ? Math.max(3, Math.floor(cellWidth / textWidth("m", font))) : 10;
    return { size, named, widest, left, cellWidth, flat, limit };
  }

  /**
   * The largest size whose labels need not be turned, else the largest that fits the rows.
   * @param {string[]} texts
   * @param {number} width
   * @param {number} height
   * @param {Palette} colours
   */
  function chooseAxes(texts, width, height, colours) {
    const wanted = Math.min(22, width / 34) * colours.zoom;
    const largest = Math.round(Math.max(10, Math.min(wanted, (height - 60) / texts.length - 3)));
    for (let size = largest; size >= 13; size--) {
      const axes = axesAt(size, texts, width, colours);
      if (axes.flat) return axes;
    }
    return axesAt(largest, texts, width, colours);
  }

  /** @param {Palette} colours */
  function steps(colours) {
    const levels = [colours.cell, colours.sees, colours.tree];
    return levels.flatMap((colour, level) => [
      [level / 3, colour],
      [(level + 1) / 3, colour],
    ]);
  }

  /**
   * A frame around each block; the cache's column stands left of them.
   * @param {[number, number][]} blocks
   * @param {number} block
   * @param {number} nodes
   * @param {string} colour
   */
  function frames(blocks, block, nodes, colour) {
    return blocks.map(([row, column]) => ({
      type: "rect",
      x0: column * block + 0.5,
      x1: Math.min(nodes, (column + 1) * block) + 0.5,
      y0: row * block - 0.5,
      y1: Math.min(nodes, (row + 1) * block) - 0.5,
      line: { color: colour, width: 1 },
    }));
  }

  /**
   * `order`: the nodes from top to bottom and left to right; `blocks` of `block` by `block` are framed. `causal`: as a broken system has it.
   * @param {HTMLElement} div
   * @param {Step} step
   * @param {number[]} order
   * @param {[number, number][]} blocks
   * @param {number} block
   * @param {boolean} causal as a broken system has it
   */
  function drawMask(div, step, order, blocks, block, causal = false) {
    const room = roomOf(div);
    if (!room) return;
    const { width, height } = room;
    const colours = palette(div);
    const texts = order.map((node) => step.texts[node]);
    const label = (/** @type {string} */ text, /** @type {number} */ limit) =>
      plotLabel(text, colours.faint, limit) || "…";
    const { z, notes } = cellsOf(step, order, (node) => label(step.texts[node], 10), causal ? earlier : ancestors);
    const { size, named, widest, left, cellWidth, flat, limit } = chooseAxes(texts, width, height, colours);
    const gap = texts.length > LARGEST_GAPPED ? 0 : 2;
    const heat = {
      type: "heatmap",
      z,
      zmin: UNSEEN,
      zmax: ON_PATH,
      colorscale: steps(colours),
      showscale: false,
      xgap: gap,
      ygap: gap,
      customdata: notes,
      hovertemplate: "%{customdata}<extra></extra>",
    };
    const axis = (/** @type {string[]} */ ticktext) => ({
      fixedrange: true,
      showgrid: false,
      zeroline: false,
      ticks: "",
      ticklabelstandoff: 5,
      showticklabels: named,
      tickfont: { family: colours.mono, size, color: colours.ink },
      tickvals: ticktext.map((_, index) => index),
      ticktext,
    });
    const keys = [`<span style="color:${colours.faint}">cache</span>`, ...texts.map((text) => label(text, limit))];
    const queries = texts.map((text) => label(text, 10));
    const top = named ? (flat ? size : Math.max(widest, 3 * size)) + 12 : 8;
    const margin = {
      l: left,
      r: Math.max(8, width - left - cellWidth * keys.length),
      t: top,
      b: Math.max(8, height - top - LARGEST_CELL.height * queries.length),
    };
    const axes = {
      xaxis: { ...axis(keys), side: "top", tickangle: flat ? 0 : -90 },
      yaxis: { ...axis(queries), autorange: "reversed" },
      shapes: causal ? [] : frames(blocks, block, order.length, colours.ink),
    };
    Plotly.react(div, [heat], plotLayout(colours, width, height, margin, axes), PLOT);
  }

  return { drawMask };
})();
