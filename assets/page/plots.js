// The draft tree and its attention mask, drawn with Plotly. Knows one step; nothing of lanes, clocks or playback.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const CONFIG = { displayModeBar: false, responsive: false, doubleClick: false, showAxisDragHandles: false };
  const MARK = 11; // half the room of a marker, in pixels
  const SMALLEST_ROW = 14; // below this height only the path keeps its labels

  T.palette = function (element) {
    const style = getComputedStyle(element);
    const read = (name) => style.getPropertyValue(name).trim();
    return {
      ink: read("--ink"), faint: read("--faint"), line: read("--line"), cell: read("--cell"), sees: read("--sees"),
      tree: read("--tree"), treeInk: read("--tree-ink"), surface: read("--surface"), font: style.fontFamily, mono: read("--face-tokens"),
    };
  };

  function layoutOf(colours, margin, extra) {
    return {
      showlegend: false, margin, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false,
      font: { color: colours.ink, family: colours.font }, hovermode: "closest",
      hoverlabel: { bgcolor: colours.ink, bordercolor: colours.ink, font: { color: colours.surface, family: colours.font, size: 15 } },
      ...extra,
    };
  }

  // ---- the tree -------------------------------------------------------------------------------------------------

  // Every node as the drawing needs it, the bonus last.
  function nodesOf(step) {
    const path = new Set(step.path);
    const nodes = step.parents.map((parent, index) => ({
      parent, text: step.texts[index], q: step.q[index], p: step.p[index], verdict: step.verdicts[index], onPath: path.has(index),
      column: step.x[index], row: step.y[index],
    }));
    if (step.bonus) {
      nodes.push({
        parent: step.path.length ? step.path[step.path.length - 1] : 0, text: step.bonus.text, q: null, p: step.bonus.p,
        verdict: "bonus", onPath: true, column: step.x[nodes.length], row: step.y[nodes.length],
      });
    }
    return nodes;
  }

  // Pixel places: columns as wide as their labels, cut when the tree would not fit, rows spread over the height.
  function place(nodes, width, height, colours) {
    const columns = Math.max(...nodes.map((node) => node.column)) + 1;
    const rows = Math.max(...nodes.map((node) => node.row)) + 1;
    const pad = { x: 20, y: 20 };
    const rowHeight = Math.min(84, (height - 2 * pad.y) / Math.max(1, rows - 1));
    const fontSize = Math.round(Math.max(11, Math.min(rowHeight * 0.58, Math.max(16, width / 36), 30)));
    const font = `700 ${fontSize}px ${colours.mono}`;
    const widest = new Array(columns).fill(0);
    for (const node of nodes) {
      node.labelled = rowHeight >= SMALLEST_ROW || node.onPath || node.verdict === "root";
      node.width = node.labelled ? T.width(node.text, font) : 0;
      widest[node.column] = Math.max(widest[node.column], node.width);
    }
    const least = 26; // room for the curves between two columns
    const room = width - 2 * pad.x - columns * 2 * MARK - (columns - 1) * least;
    const cap = capFor(widest, room);
    const used = widest.reduce((sum, each) => sum + Math.min(each, cap), 0);
    const gap = least + Math.min(110, Math.max(0, room - used) / Math.max(1, columns - 1));
    const left = [pad.x + MARK];
    for (let column = 1; column < columns; column++) left[column] = left[column - 1] + 2 * MARK + Math.min(widest[column - 1], cap) + gap;
    const top = (height - rowHeight * (rows - 1)) / 2;
    const letter = T.width("m", font);
    for (const node of nodes) {
      node.x = left[node.column];
      node.y = top + node.row * rowHeight;
      node.limit = node.width > cap ? Math.max(2, Math.floor(cap / letter) - (node.text.startsWith(" ") ? 1 : 0)) : Infinity;
      node.labelEnd = node.x + (node.labelled ? MARK + 4 + Math.min(node.width, cap) + 5 : MARK);
      node.columnEnd = node.x + MARK + 9 + Math.min(widest[node.column], cap);
    }
    return { fontSize };
  }

  // The label width at which all columns together fit the room.
  function capFor(widest, room) {
    let [low, high] = [0, Math.max(...widest)];
    if (widest.reduce((sum, each) => sum + each, 0) <= room) return high;
    for (let round = 0; round < 20; round++) {
      const middle = (low + high) / 2;
      if (widest.reduce((sum, each) => sum + Math.min(each, middle), 0) <= room) low = middle;
      else high = middle;
    }
    return low;
  }

  // A line from the end of the parent's label that bends into the child's row.
  function edge(parent, child, xs, ys) {
    const [start, bend, end] = [parent.labelEnd, Math.max(parent.labelEnd, parent.columnEnd), child.x - MARK + 2];
    xs.push(start, bend);
    ys.push(parent.y, parent.y);
    if (child.y !== parent.y) {
      for (let k = 1; k < 10; k++) {
        const ease = (k / 10) * (k / 10) * (3 - (2 * k) / 10);
        xs.push(bend + ((end - bend) * k) / 10);
        ys.push(parent.y + (child.y - parent.y) * ease);
      }
    }
    xs.push(end, null);
    ys.push(child.y, null);
  }

  function edges(nodes, keep, line) {
    const [x, y] = [[], []];
    nodes.forEach((node) => node.parent >= 0 && keep(node) && edge(nodes[node.parent], node, x, y));
    return { x, y, mode: "lines", line, hoverinfo: "skip", type: "scatter" };
  }

  function look(node, colours) {
    const strong = { colour: colours.tree, edge: colours.tree };
    return {
      root: { symbol: "circle", size: 13, colour: colours.ink, edge: colours.ink, text: colours.ink },
      accepted: { symbol: "square", size: 17, ...strong, text: colours.treeInk },
      bonus: { symbol: "diamond", size: 20, ...strong, text: colours.treeInk },
      rejected: { symbol: "circle", size: 12, colour: colours.surface, edge: colours.faint, text: colours.faint },
      unreached: { symbol: "circle", size: 6, colour: colours.line, edge: colours.line, text: colours.faint },
    }[node.verdict];
  }

  function hover(node, faint) {
    const name = T.label(node.text, faint) || "(no text yet)";
    if (node.verdict === "root") return `${name}<br>root: the last token of the text`;
    const guess = node.q === null ? "" : `<br>draft q ${T.share(node.q)}`;
    return `${name}${guess}<br>target p ${T.share(node.p)}<br>${node.verdict === "unreached" ? "not reached" : node.verdict}`;
  }

  T.drawTree = function (div, step) {
    const [width, height] = [div.clientWidth, div.clientHeight];
    if (!window.Plotly || !width || !height) return;
    const colours = T.palette(div);
    const nodes = nodesOf(step);
    const { fontSize } = place(nodes, width, height, colours);
    const looks = nodes.map((node) => look(node, colours));
    const named = nodes.filter((node) => node.labelled);
    const traces = [
      edges(nodes, (node) => !node.onPath, { color: colours.line, width: 1.5 }),
      edges(nodes, (node) => node.onPath && node.verdict !== "bonus", { color: colours.tree, width: 5 }),
      edges(nodes, (node) => node.verdict === "bonus", { color: colours.tree, width: 3, dash: "4px,4px" }),
      {
        type: "scatter", mode: "markers", x: nodes.map((node) => node.x), y: nodes.map((node) => node.y),
        marker: {
          symbol: looks.map((each) => each.symbol), size: looks.map((each) => each.size), color: looks.map((each) => each.colour),
          line: { color: looks.map((each) => each.edge), width: 2 }, opacity: 1,
        },
        customdata: nodes.map((node) => hover(node, colours.faint)), hovertemplate: "%{customdata}<extra></extra>",
      },
      {
        type: "scatter", mode: "text", x: named.map((node) => node.x + MARK + 4), y: named.map((node) => node.y),
        text: named.map((node) => T.label(node.text, colours.faint, node.limit)), textposition: "middle right", hoverinfo: "skip",
        textfont: {
          family: colours.mono, size: fontSize, color: named.map((node) => look(node, colours).text),
          weight: named.map((node) => (node.onPath ? 700 : 400)),
        },
        cliponaxis: false,
      },
    ];
    const axis = (range) => ({ visible: false, fixedrange: true, range });
    const layout = layoutOf(colours, { l: 0, r: 0, t: 0, b: 0 }, { width, height, xaxis: axis([0, width]), yaxis: axis([height, 0]) });
    return Plotly.react(div, traces, layout, CONFIG);
  };

  // ---- the mask -------------------------------------------------------------------------------------------------

  const LARGEST_CELL = { width: 110, height: 56 };
  const LARGEST_NAMED = 28; // with more nodes the axes carry no labels

  function ancestors(parents, node) {
    const seen = new Set();
    for (let at = node; at >= 0; at = parents[at]) seen.add(at);
    return seen;
  }

  T.drawMask = function (div, step) {
    const [width, height] = [div.clientWidth, div.clientHeight];
    if (!window.Plotly || !width || !height) return;
    const colours = T.palette(div);
    const accepted = new Set([0, ...step.path]);
    const count = step.parents.length;
    const name = (index) => T.label(step.texts[index], colours.faint, 10) || "…";
    const [z, notes] = [[], []];
    for (let query = 0; query < count; query++) {
      const seen = ancestors(step.parents, query);
      const strong = (key) => accepted.has(query) && accepted.has(key);
      z.push([1, ...step.parents.map((_, key) => (seen.has(key) ? (strong(key) ? 2 : 1) : 0))]);
      const sees = (key) => `${name(query)} → ${name(key)}<br>${seen.has(key) ? "may look: " + (key === query ? "itself" : "an ancestor") : "may not look"}`;
      notes.push([`${name(query)} → text so far<br>may look: the whole text`, ...step.parents.map((_, key) => sees(key))]);
    }
    const named = count <= LARGEST_NAMED;
    const size = Math.max(10, Math.min(16, (height - 60) / count - 3, width / 34));
    const font = `400 ${size}px ${colours.mono}`;
    const widest = Math.max(...step.texts.map((text) => Math.min(T.width(text, font), T.width("mmmmmmmmmmm", font))));
    const left = named ? Math.ceil(widest) + 20 : 8;
    const cellWidth = Math.min(LARGEST_CELL.width, (width - left - 8) / (count + 1));
    const flat = named && cellWidth > Math.min(widest, 4 * size) + 4;
    const keyLimit = flat ? Math.max(3, Math.floor(cellWidth / T.width("m", font))) : 10;
    const keys = [`<span style="color:${colours.faint}">cache</span>`, ...step.texts.map((text) => T.label(text, colours.faint, keyLimit) || "…")];
    const axis = { fixedrange: true, zeroline: false, showgrid: false, ticks: "", ticklabelstandoff: 5, showticklabels: named, tickfont: { family: colours.mono, size, color: colours.ink } };
    const traces = [
      {
        type: "heatmap", z, customdata: notes, hovertemplate: "%{customdata}<extra></extra>", zmin: 0, zmax: 2, showscale: false,
        xgap: count > 40 ? 0 : 2, ygap: count > 40 ? 0 : 2,
        colorscale: [[0, colours.cell], [0.34, colours.cell], [0.34, colours.sees], [0.67, colours.sees], [0.67, colours.tree], [1, colours.tree]],
      },
    ];
    const top = named ? (flat ? size : Math.max(widest, 3 * size)) + 12 : 8;
    const right = Math.max(8, width - left - cellWidth * (count + 1));
    const bottom = Math.max(8, height - top - LARGEST_CELL.height * count);
    const layout = layoutOf(colours, { l: left, r: right, t: top, b: bottom }, {
      width, height,
      xaxis: { ...axis, side: "top", tickangle: flat ? 0 : -90, tickvals: keys.map((_, index) => index), ticktext: keys },
      yaxis: { ...axis, autorange: "reversed", tickvals: step.parents.map((_, index) => index), ticktext: step.texts.map((_, index) => name(index)) },
    });
    return Plotly.react(div, traces, layout, CONFIG);
  };
})(window.TreeRace);
