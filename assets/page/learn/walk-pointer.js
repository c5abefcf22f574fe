// Pointing at a node while the walk is open: rings in the tree and in the mask. Knows the shown step and the plots; nothing of the pages.
"use strict";

TreeRace.walkPointer = (() => {
  const { ORDERS } = TreeRace.nodeOrder;

  /**
   * A plot of the race, with what Plotly hangs on it.
   * @param {string} name
   * @returns {any}
   */
  const plotOf = (name) => document.querySelector(`[data-${name}]`);

  /**
   * The mask's row in pixels: x, y, width, height.
   * @param {any} mask
   * @param {number} row
   */
  function rowOf(mask, row) {
    const { margin, width, height } = mask.layout;
    const each = (height - margin.t - margin.b) / mask.data[0].z.length;
    return [margin.l, margin.t + row * each, width - margin.l - margin.r, each];
  }

  class WalkPointer {
    /** @type {number | null} the node that is pointed at */
    node = null;
    /** @type {WeakSet<object>} plots that report what is pointed at */
    hooked = new WeakSet();

    /** @param {Walk} walk */
    constructor(walk) {
      this.walk = walk;
    }

    // Plotly gives a plot its events when it first draws it.
    hook() {
      this.listen("tree", ({ pointNumber }) => this.point("node", pointNumber));
      this.listen("mask", ({ y }) => this.point("row", this.order[y]));
    }

    /**
     * @param {string} name
     * @param {(point: { pointNumber: number, y: number }) => void} pointed
     */
    listen(name, pointed) {
      const plot = plotOf(name);
      if (!plot?.on || this.hooked.has(plot)) return;
      this.hooked.add(plot);
      plot.on("plotly_hover", (/** @type {any} */ { points: [point] }) => this.walk.isOpen && pointed(point));
    }

    // The nodes in the order of the mask's rows.
    get order() {
      const { panel, steps, step } = TreeRace.view;
      return ORDERS[panel.order](steps[step].parents);
    }

    /**
     * @param {"node" | "row"} what
     * @param {number} node
     */
    point(what, node) {
      const { walk } = this;
      const step = TreeRace.view.steps[TreeRace.view.step];
      if (walk.breaks.on || !(node < step?.parents.length)) return;
      walk.did(what);
      if (what === "node") walk.did("row"); // the card's own buttons go from row to row
      if (node === this.node) return;
      this.node = node;
      walk.draw();
    }

    /**
     * Rings around the node, and where the mask is the point around its ancestors and its row.
     * @param {Step} step
     */
    mark(step) {
      const { light, page } = this.walk;
      const [tree, mask] = [plotOf("tree"), plotOf("mask")];
      const dots = tree.data?.find((/** @type {{ mode: string }} */ { mode }) => mode === "markers");
      if (this.node === null || !dots || !["kin", "positions"].includes(page.picture ?? "")) return light.mark();
      const kin = page.picture === "kin";
      const nodes = [];
      for (let at = this.node; at >= 0 && (kin || !nodes.length); at = step.parents[at]) nodes.push(at);
      const row = kin && mask.clientWidth ? [rowOf(mask, this.order.indexOf(this.node))] : [];
      light.mark([tree, nodes.map((at) => [dots.x[at], dots.y[at]])], [mask, row]);
    }
  }

  return { WalkPointer };
})();
