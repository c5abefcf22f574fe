// Where a step's tree is drawn: nodes, labels beside them, edges that cross no label. Knows a step and a room in pixels; draws nothing.
// Where the words of the accepted path have no room side by side, or could be much larger below each other, the path goes down like stairs,
// with a row for each of its words.

TreeRace.treeLayout = (() => {
  const LEAST_FONT = 11; // pixels; below it a larger picture is drawn and scaled
  const LARGE = 0.7; // of a label's size: so much smaller it may become where words off the path are whole then, too
  // Of a label's size, what its row needs; pixels of a row without labels; the share of the largest size beside such rows
  const FLAT = { line: 1.3, leastRow: 3, share: 0.7 };
  const STEEP = { line: 1.2, leastRow: 1.5, share: 1 };
  const LEAST_STEP = 5; // pixels between the marks of two columns of stairs
  const WIDEST_STEP = 4; // of a label's size, from column to column
  const MUCH = 1.5; // times as large letters are worth stairs
  const LARGEST_ROW = 4.2; // of the largest font
  const PAD = 14;
  const [GAP, LEAST_GAP, WIDEST_GAP] = [18, 11, 130]; // pixels between two columns; the least where there is little room
  const NARROW = 520; // pixels

  /** @typedef {{ size: number, labelled: boolean[], at: number[], least: number, bottom: number }} Rows */
  /** @typedef {{ left: number[], widths: number[], end: number }} Columns */
  /** `standing`: the nodes' rows on stairs. @typedef {{ rows: Rows, size: number, columns: Columns, standing?: number[] }} Placed */
  /** @typedef {{ width: number, height: number, largest: number, measure: (text: string, size: number) => number }} Room */
  /** @template Result @typedef {(nodes: TreeNode[], room: Room, name: (node: TreeNode) => string) => Result} Layout */

  /**
   * Every node as the drawing needs it, the bonus last. It is `wanted` where the target disagreed with all guesses that stood there.
   * @param {Step} step
   * @returns {TreeNode[]}
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
      onPath: path.has(index) || index === 0,
    }));
    if (step.has_bonus) {
      const parent = step.path.length ? step.path[step.path.length - 1] : 0;
      const wanted = step.parents.includes(parent);
      nodes.push({ parent, text: step.bonus_text, q: null, p: step.bonus_p, verdict: "bonus", onPath: true, wanted });
    }
    const { columns, rows } = placesOf(nodes);
    return nodes.map((node, index) => ({ ...node, index, column: columns[index], row: rows[index] }));
  }

  /**
   * Column and row of every node: a leaf owns a row, and a node lies on the row of its first child. So the favourite guess runs straight on, and the lines of two parents never cross.
   * @param {{ parent: number }[]} nodes
   * @param {(node: number) => boolean} [alone] whether a node owns its row also when it has children
   */
  function placesOf(nodes, alone) {
    const columns = nodes.map(() => 0);
    const rows = nodes.map(() => 0);
    /** @type {number[][]} */
    const children = nodes.map(() => []);
    for (const [node, { parent }] of nodes.entries()) {
      if (parent < 0) continue;
      children[parent].push(node);
      columns[node] = columns[parent] + 1;
    }
    let row = 0;
    const waiting = nodes.length ? [0] : []; // another server's step has no node
    for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
      rows[node] = row;
      if (alone?.(node) || !children[node].length) row += 1;
      waiting.push(...children[node].reverse());
    }
    return { columns, rows };
  }

  /**
   * The nodes with x, y, mark, label, labelled and labelEnd, and what they share. `shrink` is the share to which the whole is drawn smaller.
   * @param {TreeNode[]} nodes
   * @param {Room} room
   * @param {(node: TreeNode) => string} name
   */
  function treeLayout(nodes, room, name = (node) => node.text) {
    const { rows, size, columns, standing } = larger(nodes, room, name);
    const steep = Boolean(standing);
    if (standing) for (const node of nodes) node.row = standing[node.index];
    const mark = markOf(size);
    const before = 0.35 * size; // between a mark and its label
    for (const node of nodes) {
      const { column, row } = node;
      const [left, most] = [columns.left[column], columns.widths[column]];
      node.steep = steep;
      node.labelled = rows.labelled[row];
      node.mark = node.labelled ? mark : Math.min(mark, 0.45 * rows.least);
      node.x = left;
      node.y = rows.at[row];
      node.labelX = left + mark + before;
      node.label = node.labelled ? fitting(name(node), size, node.onPath ? Infinity : most, room) : "";
      node.labelEnd = node.label ? node.labelX + room.measure(node.label, size) + 0.3 * size : left + mark;
      node.columnEnd = left + mark + 0.65 * size + most;
    }
    const shrink = Math.min(1, room.width / columns.end, room.height / (rows.bottom + PAD));
    return { nodes, size, shrink };
  }

  // Side by side, unless that is not possible or all words would have much larger letters on stairs.
  /** @type {Layout<Placed>} */
  const larger = (nodes, room, name) => {
    const flat = sideBySide(nodes, room, name);
    if (flat && MUCH * flat.size > room.largest) return flat;
    const steep = stairs(nodes, room, name);
    const whole = steep.rows.labelled.every(Boolean) && steep.columns.end < room.width + 1;
    return flat && !(whole && steep.size >= MUCH * flat.size) ? flat : steep;
  };

  // Columns as wide as their words; null where those of the accepted path have no room beside each other.
  /** @type {Layout<Placed | null>} */
  const sideBySide = (nodes, room, name) => {
    const rows = rowsOf(nodes, room);
    let { size } = rows;
    let columns = columnsOf(nodes, room, size, rows.labelled, name);
    while (columns.needed > columns.room && size > LEAST_FONT) {
      size -= 1;
      columns = columnsOf(nodes, room, size, rows.labelled, name);
    }
    if (columns.needed > columns.room) return null;
    const least = Math.max(LEAST_FONT, LARGE * size);
    for (let smaller = size - 1; columns.wanted > columns.room && smaller >= least; smaller--) {
      const tried = columnsOf(nodes, room, smaller, rows.labelled, name);
      if (tried.wanted <= tried.room) [size, columns] = [smaller, tried];
    }
    return { rows, size, columns };
  };

  // Every node owns a row where all words have room then; else those of the accepted path do, and the others have no words.
  /** @type {Layout<Placed>} */
  const stairs = (nodes, room, name) => {
    const all = nodes.length * LEAST_FONT * STEEP.line <= room.height - 2 * PAD;
    const { rows: standing } = placesOf(nodes, (node) => all || nodes[node].onPath);
    const placed = nodes.map((node) => ({ ...node, row: standing[node.index] }));
    const rows = rowsOf(placed, room, STEEP, all);
    const path = nodes.filter((node) => node.onPath && node.column);
    const besides = (/** @type {number} */ size) => 2 * PAD + 2 * markOf(size) + 0.65 * size;
    const count = Math.max(...nodes.map((node) => node.column)) + 1;
    const stepAt = (/** @type {number} */ size) => {
      const free = room.width - besides(size);
      const steps = path.map((node) => (free - room.measure(name(node), size)) / node.column);
      return Math.min(free / (count - 1), ...steps);
    };
    const leastAt = (/** @type {number} */ size) => 2 * markOf(size) + LEAST_STEP;
    let { size } = rows;
    while (size > LEAST_FONT && stepAt(size) < leastAt(size)) size -= 1;
    const step = Math.max(leastAt(size), Math.min(WIDEST_STEP * size, stepAt(size)));
    const left = Array.from({ length: count }, (_, column) => PAD + markOf(size) + column * step);
    const widths = left.map((each) => room.width - PAD - each - markOf(size) - 0.65 * size);
    const needed = path.map((node) => node.column * step + besides(size) + room.measure(name(node), size));
    return { rows, size, columns: { left, widths, end: Math.max(left[count - 1] + PAD, ...needed) }, standing };
  };

  /** @param {number} size */
  const markOf = (size) => Math.max(4, 0.42 * size);

  /**
   * Rows from top to bottom. Where not all can have labels, those with the accepted path have them.
   * @param {TreeNode[]} nodes
   * @param {Room} room
   * @param {{ line: number, leastRow: number, share: number }} [heights]
   * @param {boolean} [whole] whether all have labels, where that is decided
   */
  function rowsOf(nodes, { height, largest }, { line, leastRow, share } = FLAT, whole) {
    const count = Math.max(...nodes.map((node) => node.row)) + 1;
    const free = height - 2 * PAD;
    const all = Math.min(largest, free / count / line);
    const kept = new Set(nodes.filter((node) => node.onPath).map((node) => node.row));
    const everywhere = whole ?? all >= LEAST_FONT;
    const others = count - kept.size;
    const size = everywhere
      ? all
      : Math.max(LEAST_FONT, Math.min(share * largest, (free - others * leastRow) / kept.size / line));
    const labelled = Array.from({ length: count }, (_, row) => everywhere || kept.has(row));
    const plain = others ? Math.max(leastRow, (free - kept.size * size * line) / others) : 0;
    const tallest = LARGEST_ROW * largest;
    const heights = labelled.map((named) => {
      if (everywhere) return Math.min(tallest, free / count);
      return named ? size * line : plain;
    });
    const total = heights.reduce((sum, each) => sum + each, 0);
    let top = Math.max(PAD, (height - total) / 2);
    const at = heights.map((each) => {
      top += each;
      return top - each / 2;
    });
    return { size: Math.floor(size), labelled, at, least: Math.min(...heights), bottom: top };
  }

  /**
   * Left edge and width of each column. Labels on the accepted path stay whole; others are cut where there is no room for them.
   * @param {TreeNode[]} nodes
   * @param {Room} room
   * @param {number} size
   * @param {boolean[]} labelled by row
   * @param {(node: TreeNode) => string} name
   */
  function columnsOf(nodes, { width, measure }, size, labelled, name) {
    const count = Math.max(...nodes.map((node) => node.column)) + 1;
    const whole = Array(count).fill(0);
    const widest = Array(count).fill(0);
    for (const node of nodes) {
      if (!labelled[node.row]) continue;
      const wide = Math.ceil(measure(name(node), size)) + 1;
      widest[node.column] = Math.max(widest[node.column], wide);
      if (node.onPath) whole[node.column] = Math.max(whole[node.column], wide);
    }
    const each = 2 * markOf(size) + 0.65 * size;
    const least = width < NARROW ? LEAST_GAP : GAP;
    const room = width - 2 * PAD - count * each - (count - 1) * least;
    const widthsAt = (/** @type {number} */ cap) => widest.map((wide, at) => Math.max(whole[at], Math.min(wide, cap)));
    const sum = (/** @type {number[]} */ all) => all.reduce((total, one) => total + one, 0);
    let [low, high] = [0, Math.max(...widest)];
    if (sum(widthsAt(high)) <= room) low = high;
    for (let round = 0; round < 20 && low < high; round++) {
      const middle = (low + high) / 2;
      if (sum(widthsAt(middle)) <= room) low = middle;
      else high = middle;
    }
    const widths = widthsAt(low);
    const spare = Math.max(0, room - sum(widths)) / Math.max(1, count - 1);
    const gap = least + Math.min(WIDEST_GAP, spare);
    const left = [PAD + markOf(size)];
    for (let at = 1; at <= count; at++) left[at] = left[at - 1] + each + widths[at - 1] + gap;
    return { left, widths, room, needed: sum(whole), wanted: sum(widest), end: left[count] - gap + PAD - markOf(size) };
  }

  /**
   * The text, cut to so many pixels.
   * @param {string} text
   * @param {number} size
   * @param {number} most
   * @param {Room} room
   */
  function fitting(text, size, most, { measure }) {
    if (measure(text, size) <= most) return text;
    const letters = [...text];
    while (letters.length > 1 && measure(`${letters.join("")}…`, size) > most) letters.pop();
    return letters.length > 2 ? `${letters.join("")}…` : "";
  }

  /**
   * The path of a line from the end of the parent's label into the child's mark; it bends between the columns, where no label stands.
   * On stairs it goes down from the parent's mark.
   * @param {TreeNode} parent
   * @param {TreeNode} child
   */
  function edgePath(parent, child) {
    const [start, end] = [parent.labelEnd, child.x - child.mark];
    if (parent.steep && parent.row !== child.row) {
      const corner = Math.min(6, end - parent.x, child.y - parent.y);
      const [x, y] = [parent.x, child.y].map(round);
      return `M${x} ${round(parent.y)}V${round(y - corner)}Q${x} ${y} ${round(x + corner)} ${y}H${round(end)}`;
    }
    const bend = Math.min(end, Math.max(start, parent.columnEnd));
    const middle = (bend + end) / 2;
    return `M${round(start)} ${round(parent.y)}H${round(bend)}C${round(middle)} ${round(parent.y)} ${round(middle)} ${round(child.y)} ${round(end)} ${round(child.y)}`;
  }

  /**
   * How thick a guess's line is: as thick as the drafter was sure of it.
   * @param {number | null} q
   * @param {number} size of the labels
   */
  const thickness = (q, size) => (1 + 5 * (q ?? 0.4)) * Math.min(2, Math.max(0.6, size / 20));

  /** @param {number} value */
  const round = (value) => Math.round(value * 10) / 10;

  return { edgePath, nodesOf, thickness, treeLayout };
})();
