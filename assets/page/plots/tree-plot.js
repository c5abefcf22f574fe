// The draft tree of one step as a drawing: marks, labels beside them, lines as thick as the draft's q. Lights a path; wheel, pinch, drag and
// double click zoom. Knows one step; nothing of lanes, clocks or playback.

TreeRace.treePlot = (() => {
  const { draw, findAll, inNextFrame } = TreeRace.elements;
  const { asPercent, asShare, labelOf, textWidth, visible } = TreeRace.numbers;
  const { palette } = TreeRace.plotBase;
  const { edgePath, nodesOf, thickness, treeLayout } = TreeRace.treeLayout;

  const MOST_ZOOM = 8;
  const WHEEL_STEP = 1.0015; // for each pixel of the wheel

  /** @typedef {{ step: Step, zoom: number, x: number, y: number }} View what an element shows, and how */
  /** @type {WeakMap<Element, View>} */
  const views = new WeakMap();

  /**
   * How the element shows the step; wheel, fingers and mouse change it from now on.
   * @param {HTMLElement} home
   * @param {Step} step
   */
  function viewOf(home, step) {
    const view = views.get(home) ?? { step, zoom: 1, x: 0, y: 0 };
    if (!views.has(home)) listen(home, view);
    views.set(home, view);
    return Object.assign(view, { step });
  }

  /**
   * @param {HTMLElement} home
   * @param {View} view
   */
  function listen(home, view) {
    const soon = inNextFrame(() => drawTree(home, view.step));
    /** @type {Map<number, [number, number]>} fingers, or the mouse while it is pressed */
    const held = new Map();
    const spread = () => {
      const [[ax, ay], [bx, by]] = [...held.values()];
      return Math.hypot(ax - bx, ay - by);
    };
    /** @type {(event: MouseEvent) => [number, number]} */
    const placeOf = (event) => {
      const corner = home.getBoundingClientRect();
      return [event.clientX - corner.left, event.clientY - corner.top];
    };
    /** @type {(x: number, y: number) => void} so far that no side of the drawing leaves the element's */
    const move = (x, y) => {
      view.x = Math.min(0, Math.max(home.clientWidth * (1 - view.zoom), x));
      view.y = Math.min(0, Math.max(home.clientHeight * (1 - view.zoom), y));
      soon();
    };
    /** @type {(by: number, place: [number, number]) => void} keeps that place of the element where it is */
    const enlarge = (by, [x, y]) => {
      const zoom = Math.max(1, Math.min(MOST_ZOOM, view.zoom * by));
      const ratio = zoom / view.zoom;
      view.zoom = zoom;
      move(x - (x - view.x) * ratio, y - (y - view.y) * ratio);
    };
    home.addEventListener("wheel", (event) => {
      if (view.zoom === 1 && event.deltaY > 0) return; // nothing to leave: the page scrolls
      event.preventDefault();
      enlarge(WHEEL_STEP ** -(event.deltaMode ? 40 * event.deltaY : event.deltaY), placeOf(event));
    });
    home.addEventListener("dblclick", () => {
      view.zoom = 1;
      move(0, 0);
    });
    home.addEventListener("pointerdown", (event) => held.set(event.pointerId, placeOf(event)));
    home.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) return;
      const place = placeOf(event);
      const wide = held.size === 2 ? spread() : 0;
      held.set(event.pointerId, place);
      if (wide) enlarge(spread() / Math.max(1, wide), place);
      else if (view.zoom > 1) move(view.x + place[0] - before[0], view.y + place[1] - before[1]);
    });
    for (const end of /** @type {const} */ (["pointerup", "pointercancel", "pointerleave"])) {
      home.addEventListener(end, (event) => held.delete(event.pointerId));
    }
  }

  /** @param {TreeNode} node of which all is told that is known, a line each */
  function factsOf(node) {
    const name = labelOf(node.text, "(no text yet)");
    if (node.verdict === "root") return [name, "root: the last token of the text"];
    const guess = node.q === null ? [] : [`draft q ${asShare(node.q)}`];
    return [name, ...guess, `target p ${asShare(node.p)}`, node.verdict === "unreached" ? "not reached" : node.verdict];
  }

  /** @param {TreeNode} node whose mark shows its verdict, round the mark's own middle */
  function markOf({ verdict, mark: size }) {
    if (verdict === "accepted") return draw("rect", { x: -size, y: -size, width: 2 * size, height: 2 * size, rx: 1 });
    if (verdict === "bonus")
      return draw("path", { d: `M0 ${-1.3 * size}L${1.3 * size} 0L0 ${1.3 * size}L${-1.3 * size} 0Z` });
    return draw("circle", { r: verdict === "unreached" ? 0.45 * size : 0.8 * size });
  }

  /** @param {TreeNode} node where the target disagreed: with which p it wanted its own token */
  const wishOf = (node) => (node.wanted ? `\u00a0p ${asPercent(node.p)}` : "");

  /**
   * A label with the dots of its spaces, and the target's wish, in a faint colour.
   * @param {TreeNode} node
   * @param {number} size
   */
  function drawLabel(node, size) {
    const wish = wishOf(node);
    const { dots, rest } = visible(node.label.slice(0, node.label.length - wish.length));
    const text = draw("text", { class: "label", x: node.labelX - node.x, y: 0.34 * size, "font-size": size });
    if (dots) text.append(draw("tspan", { class: "dots" }, dots));
    text.append(rest);
    if (wish) text.append(draw("tspan", { class: "wish" }, wish));
    return text;
  }

  /**
   * Draws the tree in `div`. Where it is zoomed, the room is as many times as large, so that more labels fit.
   * @param {HTMLElement} div
   * @param {Step} step
   */
  function drawTree(div, step) {
    const [width, height] = [div.clientWidth, div.clientHeight];
    if (!width || !height) return;
    const { mono, zoom: letters } = palette(div);
    const { zoom, x, y } = viewOf(div, step);
    const measure = (/** @type {string} */ text, /** @type {number} */ size) =>
      textWidth(text, `700 ${size}px ${mono}`);
    const largest = Math.max(width < 520 ? 13 : 16, Math.min(34, width / 36)) * letters;
    const room = { width: zoom * width, height: zoom * height, largest, measure };
    const { nodes, size, shrink } = treeLayout(nodesOf(step), room, (node) => node.text + wishOf(node));
    const lines = draw("g");
    const marks = draw("g");
    for (const node of nodes) {
      const parent = nodes[node.parent];
      if (parent) {
        const kind = node.verdict === "bonus" ? "edge kept own" : node.onPath ? "edge kept" : "edge";
        const wide = Math.max(node.onPath ? 2.5 : 0, thickness(node.q, size));
        const look = { class: kind, d: edgePath(parent, node), "stroke-width": wide.toFixed(1) };
        const edge = draw("path", { ...look, "data-node": node.index });
        if (node.onPath) lines.append(edge);
        else lines.prepend(edge);
      }
      const transform = `translate(${node.x.toFixed(1)} ${node.y.toFixed(1)})`;
      const reach = draw("circle", { class: "reach", r: Math.max(1.5 * node.mark, 5) });
      const mark = markOf(node);
      const label = node.label ? [drawLabel(node, size)] : [];
      const look = { class: `node ${node.verdict}`, transform, "data-node": node.index };
      marks.append(draw("g", look, reach, mark, ...label));
    }
    const moved = draw("g", { transform: `translate(${x} ${y}) scale(${shrink})` }, lines, marks);
    div.replaceChildren(draw("svg", { width, height, class: "tree-drawing" }, moved));
  }

  /**
   * Lights these nodes and the lines that lead to them; none lights all.
   * @param {HTMLElement} div
   * @param {Set<number>} nodes
   */
  function lightTree(div, nodes) {
    div.firstElementChild?.classList.toggle("pointing", nodes.size > 0);
    for (const each of findAll(div, "[data-node]")) each.classList.toggle("lit", nodes.has(Number(each.dataset.node)));
  }

  return { drawTree, factsOf, lightTree, nodesOf };
})();
