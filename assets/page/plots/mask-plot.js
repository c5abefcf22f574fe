// The attention mask of one step as a drawing: rows look at columns. Builds it from the parents alone. Knows the orders in which nodes may
// stand in it, and how many blocks of it each needs: tests/helpers/trees.py in the page.

TreeRace.maskPlot = (() => {
  const { draw, findAll } = TreeRace.elements;
  const { labelOf, textWidth } = TreeRace.numbers;
  const { palette } = TreeRace.plotBase;

  const LARGEST_CELL = { width: 110, height: 56 };
  const LEAST_NAME = 11; // pixels of a row that can have a name
  const LETTERS = 10; // of a name, at most
  const EDGE = 10; // pixels at the sides, with room for the brackets
  const RIM = 3; // pixels above and below, with room for the rings

  /**
   * Depth first from the root; siblings by ascending rank, ties as they were added.
   * @param {number[]} parents
   * @param {number[]} rank
   */
  function preorder(parents, rank) {
    /** @type {number[][]} */
    const children = parents.map(() => []);
    for (const [node, parent] of parents.entries()) if (node) children[parent].push(node);
    /** @type {number[]} */
    const order = [];
    const waiting = [0];
    for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
      order.push(node);
      waiting.push(...children[node].sort((a, b) => rank[a] - rank[b]).reverse());
    }
    return order;
  }

  /** @param {number[]} parents of nodes, whose subtrees' sizes rank them: the largest is the least */
  function negatedSizes(parents) {
    const sizes = parents.map(() => -1);
    for (let node = parents.length - 1; node > 0; node--) sizes[parents[node]] += sizes[node];
    return sizes;
  }

  /** @type {Record<string, (parents: number[]) => number[]>} */
  const ORDERS = {
    insertion: (parents) => [...parents.keys()],
    dfs: (parents) => preorder(parents, [...parents.keys()]),
    "heavy path": (parents) => preorder(parents, negatedSizes(parents)),
  };

  /**
   * The blocks [row, column] that hold at least one allowed entry when the nodes stand in `order`.
   * @param {number[]} parents
   * @param {number[]} order
   * @param {number} block
   */
  function maskBlocks(parents, order, block) {
    /** @type {number[]} */
    const place = [];
    for (const [index, node] of order.entries()) place[node] = index;
    /** @type {Map<string, [number, number]>} */
    const blocks = new Map();
    for (const node of order) {
      for (let at = node; at >= 0; at = parents[at]) {
        const [row, column] = [Math.floor(place[node] / block), Math.floor(place[at] / block)];
        blocks.set(`${row} ${column}`, [row, column]);
      }
    }
    return [...blocks.values()];
  }

  /** @param {number} nodes of a race's tree, which shall have several blocks */
  const blockFor = (nodes) => (nodes <= 12 ? 2 : nodes <= 48 ? 4 : 8);

  /** @type {(parents: number[], node: number) => Set<number>} the node among them */
  function ancestors(parents, node) {
    const seen = new Set();
    for (let at = node; at >= 0; at = parents[at]) seen.add(at);
    return seen;
  }

  /**
   * What a cell says, a line each.
   * @param {Step} step
   * @param {number} query
   * @param {number | null} key null for the text so far
   * @param {boolean} causal
   */
  function cellFacts(step, query, key, causal) {
    const title = `${nameOf(step.texts[query])} → ${key === null ? "the text so far" : nameOf(step.texts[key])}`;
    if (key === null) return [title, "may look: all of it"];
    if (key === query) return [title, "may look: itself"];
    if (ancestors(step.parents, query).has(key)) return [title, "may look: an ancestor"];
    return [title, causal && key < query ? "looks, and should not" : "may not look"];
  }

  /** @param {string} text */
  function nameOf(text) {
    const letters = [...labelOf(text)];
    return letters.length > LETTERS ? `${letters.slice(0, LETTERS - 1).join("")}…` : letters.join("");
  }

  /**
   * Sizes of cells and letters, as large as they fit. Where columns have no room for names, rows keep theirs as long as they can.
   * @param {string[]} names
   * @param {number} width
   * @param {number} height
   * @param {Palette} colours
   */
  function sizesOf(names, width, height, colours) {
    const wanted = Math.round(Math.min(28, width / 30) * colours.zoom);
    for (const over of [true, false]) {
      for (let size = wanted; size >= LEAST_NAME; size--) {
        const longest = Math.max(...names.map((name) => textWidth(name, `400 ${size}px ${colours.mono}`)));
        const left = Math.ceil(longest) + 14;
        const cellWidth = Math.min(LARGEST_CELL.width, (width - left - EDGE) / (names.length + 1));
        const flat = cellWidth > longest + 4;
        const top = !over ? RIM : flat ? size + 12 : Math.ceil(longest) + 14;
        const cellHeight = Math.min(LARGEST_CELL.height, (height - top - RIM) / names.length);
        const fits = cellHeight >= size + 0.5 && (!over || flat || cellWidth >= 0.9 * size);
        if (fits) return { size, rows: true, columns: over, flat, left, top, cellWidth, cellHeight };
      }
    }
    const cellWidth = (width - 2 * EDGE) / (names.length + 1);
    const cellHeight = (height - 2 * RIM) / names.length;
    return { size: 0, rows: false, columns: false, flat: true, left: EDGE, top: RIM, cellWidth, cellHeight };
  }

  /**
   * The branches of a tree, each with all its nodes: what hangs on the first node that has several children. None where nothing branches.
   * @param {number[]} parents
   */
  function branchesOf(parents) {
    const childrenOf = (/** @type {number} */ node) => [...parents.keys()].filter((each) => parents[each] === node);
    let below = childrenOf(0);
    while (below.length === 1) below = childrenOf(below[0]);
    return below.map((first) => [...parents.keys()].filter((node) => ancestors(parents, node).has(first)));
  }

  /**
   * Brackets beside the rows, one a branch; none in an order that takes a branch apart.
   * @param {Step} step
   * @param {Drawn} place
   */
  function bracketsOf({ parents, path }, { left, top, cellWidth, cellHeight, order }) {
    const branches = branchesOf(parents).map((branch) =>
      branch.map((node) => order.indexOf(node)).sort((a, b) => a - b),
    );
    if (branches.some((rows) => rows[rows.length - 1] - rows[0] >= rows.length)) return [];
    const x = left + (order.length + 1) * cellWidth + 3;
    return branches.map((rows) => {
      const [from, to] = [top + rows[0] * cellHeight + 1.5, top + (rows[rows.length - 1] + 1) * cellHeight - 1.5];
      const won = path.includes(order[rows[0]]);
      return draw("path", { class: won ? "bracket won" : "bracket", d: `M${x} ${from}h4V${to}h-4` });
    });
  }

  /**
   * `order`: the nodes from top to bottom and left to right; `blocks` of `block` by `block` are framed, with lines thinner than any mark.
   * @param {HTMLElement} div
   * @param {Step} step
   * @param {number[]} order
   * @param {[number, number][]} blocks
   * @param {number} block
   * @param {boolean} causal as a broken system has it
   */
  function drawMask(div, step, order, blocks, block, causal = false) {
    const [width, height] = [div.clientWidth, div.clientHeight];
    if (!width || !height) return;
    const names = order.map((node) => nameOf(step.texts[node]));
    const { size, rows, columns, flat, left, top, cellWidth, cellHeight } = sizesOf(names, width, height, palette(div));
    const [gapX, gapY] = [cellWidth, cellHeight].map((side) => (side > 8 ? 1 : side > 5 ? 0.5 : 0.25));
    const cell = (/** @type {number} */ row, /** @type {number} */ column) => {
      const [x, y] = [left + column * cellWidth + gapX, top + row * cellHeight + gapY];
      return `M${x.toFixed(2)} ${y.toFixed(2)}h${(cellWidth - 2 * gapX).toFixed(2)}v${(cellHeight - 2 * gapY).toFixed(2)}h${(2 * gapX - cellWidth).toFixed(2)}z`;
    };
    /** @type {(kind: string, x: number, y: number, width: number, height: number) => SVGElement} */
    const frame = (kind, x, y, width, height) => draw("rect", { class: kind, x, y, width, height });
    const across = order.length * cellWidth;
    const kept = new Set([0, ...step.path]);
    const svg = draw("svg", { width, height, class: "mask-drawing" });
    for (const [row, query] of order.entries()) {
      const earlier = new Set(Array(query + 1).keys()); // what a broken mask lets a node see: all before it in the arrays
      const seen = causal ? earlier : ancestors(step.parents, query);
      const shades = { empty: "", seen: cell(row, 0), kept: "" };
      for (const [column, key] of order.entries()) {
        const shade = !seen.has(key) ? "empty" : kept.has(query) && kept.has(key) ? "kept" : "seen";
        shades[shade] += cell(row, column + 1);
      }
      const group = draw("g", { class: "row", "data-node": query });
      for (const [shade, d] of Object.entries(shades)) if (d) group.append(draw("path", { class: shade, d }));
      group.append(frame("ring", left - 2, top + row * cellHeight, across + cellWidth + 4, cellHeight));
      const at = { x: left - 6, y: top + (row + 0.5) * cellHeight + 0.34 * size, "font-size": size };
      if (rows) group.append(draw("text", { class: "row-name", ...at }, names[row]));
      svg.append(group);
    }
    svg.append(...bracketsOf(step, { left, top, cellWidth, cellHeight, order }));
    for (const [row, column] of causal ? [] : blocks) {
      const [x, y] = [left + (1 + column * block) * cellWidth, top + row * block * cellHeight];
      const [right, bottom] = [(column + 1) * block, (row + 1) * block].map((at) => Math.min(order.length, at));
      svg.append(frame("block", x, y, left + (1 + right) * cellWidth - x, top + bottom * cellHeight - y));
    }
    for (const [column, name] of columns ? ["cache", ...names].entries() : []) {
      const x = left + (column + 0.5) * cellWidth + (flat ? 0 : 0.34 * size);
      const y = top - (flat ? 6 : 5);
      const [turn, value] = flat ? ["text-anchor", "middle"] : ["transform", `rotate(-90 ${x} ${y})`];
      const kind = column ? "column-name" : "column-name faint";
      svg.append(draw("text", { class: kind, x, y, "font-size": size, [turn]: value }, name));
    }
    svg.append(frame("column", 0, top - 2, cellWidth, order.length * cellHeight + 4));
    div.replaceChildren(svg);
    drawn.set(div, { left, top, cellWidth, cellHeight, order });
  }

  /** @typedef {{ left: number, top: number, cellWidth: number, cellHeight: number, order: number[] }} Drawn */
  /** @type {WeakMap<Element, Drawn>} */
  const drawn = new WeakMap();

  /**
   * The row and the column at a place in the mask: nodes; the key is null in the cache's column. Null outside.
   * @param {HTMLElement} div
   * @param {MouseEvent} event
   */
  function cellAt(div, event) {
    const now = drawn.get(div);
    if (!now) return null;
    const corner = div.getBoundingClientRect();
    const column = Math.floor((event.clientX - corner.left - now.left) / now.cellWidth);
    const row = Math.floor((event.clientY - corner.top - now.top) / now.cellHeight);
    const query = now.order[row];
    if (query === undefined || column > now.order.length) return null;
    return { query, key: column <= 0 ? null : now.order[column - 1] };
  }

  /**
   * Rings a node's row and its column; null takes the rings away.
   * @param {HTMLElement} div
   * @param {number | null} node
   */
  function lightMask(div, node) {
    const now = drawn.get(div);
    const column = div.querySelector(".column");
    if (!now || !column) return;
    for (const row of findAll(div, ".row")) row.classList.toggle("lit", Number(row.dataset.node) === node);
    const at = node === null ? -1 : now.order.indexOf(node);
    column.classList.toggle("lit", at >= 0);
    column.setAttribute("x", String(now.left + (at + 1) * now.cellWidth));
  }

  return { ORDERS, maskBlocks, blockFor, branchesOf, cellAt, cellFacts, drawMask, lightMask };
})();
