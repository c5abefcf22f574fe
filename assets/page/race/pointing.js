// Pointing at a node: its path in the tree, its row in the mask and its place in the text light together, whichever is pointed at. Says
// "point" when the node has changed. Knows the shown step; nothing of playback.
"use strict";

TreeRace.pointing = (() => {
  const { make } = TreeRace.elements;
  const { cellAt, cellFacts, lightMask } = TreeRace.maskPlot;
  const { factsOf, lightTree, nodesOf } = TreeRace.treePlot;

  class Pointing extends EventTarget {
    /** @type {number | null} */
    node = null;

    /** @param {RaceView} view */
    constructor(view) {
      super();
      this.view = view;
      /** @type {HTMLElement} */
      this.tree = view.at("tree");
      /** @type {HTMLElement} */
      this.mask = view.at("mask");
      this.tip = make("p", "tip");
      this.tip.hidden = true;
      this.tip.setAttribute("role", "status");
      view.root.append(this.tip);
      this.listen();
    }

    /** @returns {Step | undefined} */
    get step() {
      return this.view.steps[this.view.stepView.index];
    }

    // From the root down to the node.
    get path() {
      /** @type {number[]} */
      const path = [];
      const nodes = this.step ? nodesOf(this.step) : [];
      for (let at = this.node ?? -1; at >= 0 && nodes[at]; at = nodes[at].parent) path.unshift(at);
      return path;
    }

    /**
     * @param {number | null} node
     * @param {string[]} facts about what is pointed at
     * @param {{ x: number, y: number } | null} place of the words on the screen
     */
    point(node, facts = [], place = null) {
      this.say(facts, place);
      if (node === this.node) return;
      this.node = node;
      this.light();
      this.dispatchEvent(new Event("point"));
    }

    light() {
      const { node, path, view, step } = this;
      lightTree(this.tree, new Set(path));
      lightMask(this.mask, node !== null && node < (step?.parents.length ?? 0) ? node : null);
      view.lanes[view.focus].light(node === null ? -1 : path.length - 2);
    }

    /**
     * @param {string[]} facts
     * @param {{ x: number, y: number } | null} place
     */
    say(facts, place) {
      this.tip.hidden = !facts.length || !place;
      if (this.tip.hidden || !place) return;
      this.tip.replaceChildren(...facts.map((fact) => make("span", "", fact)));
      const [width, height] = [this.tip.offsetWidth, this.tip.offsetHeight];
      this.tip.style.left = `${Math.max(4, Math.min(innerWidth - width - 4, place.x + 14))}px`;
      this.tip.style.top = `${place.y + height + 22 > innerHeight ? place.y - height - 12 : place.y + 16}px`;
    }

    /**
     * The node of this number, with its facts beside it.
     * @param {number} index
     */
    pointAt(index) {
      const mark = this.tree.querySelector(`g[data-node="${index}"]`);
      const box = mark?.getBoundingClientRect();
      const node = this.step && nodesOf(this.step)[index];
      if (node && box) this.point(index, factsOf(node), { x: box.left, y: box.bottom - 10 });
    }

    listen() {
      const { tree, mask, view } = this;
      view.addEventListener("change", () => this.node !== null && this.light()); // the step may be drawn anew
      tree.addEventListener("pointermove", (event) => {
        const over = /** @type {Element} */ (event.target).closest("[data-node]");
        if (over instanceof SVGElement && this.step) {
          const index = Number(over.dataset.node);
          this.point(index, factsOf(nodesOf(this.step)[index]), { x: event.clientX, y: event.clientY });
        } else this.point(null);
      });
      mask.addEventListener("pointermove", (event) => {
        const cell = cellAt(mask, event);
        if (!cell || !this.step) return this.point(null);
        const facts = cellFacts(this.step, cell.query, cell.key, view.panel.causal);
        this.point(cell.query, facts, { x: event.clientX, y: event.clientY });
      });
      for (const part of [tree, mask, view.at("lanes")]) part.addEventListener("pointerleave", () => this.point(null));
      view.at("lanes").addEventListener("pointerover", (/** @type {PointerEvent} */ { target }) => {
        const piece = /** @type {Element} */ (target).closest(".burst.current [data-piece]");
        if (!(piece instanceof HTMLElement) || !this.step) return this.point(null);
        const { path, has_bonus, parents } = this.step;
        const at = Number(piece.dataset.piece);
        this.point(path[at] ?? (has_bonus ? parents.length : null));
      });
      tree.tabIndex = 0;
      tree.addEventListener("keydown", (event) => {
        const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (!by || !this.step) return;
        event.preventDefault();
        const count = nodesOf(this.step).length;
        this.pointAt(((this.node ?? (by > 0 ? -1 : count)) + by + count) % count);
      });
      tree.addEventListener("blur", () => this.point(null));
    }
  }

  return { Pointing };
})();
