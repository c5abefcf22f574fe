// Pointing at a node: its path in the tree, its row in the mask and its place in the text light together, whichever is pointed at, by
// mouse or by keys. Says "point" when the node has changed. Knows a step; nothing of playback.

TreeRace.pointing = (() => {
  const { findAll, make } = TreeRace.elements;
  const { cellAt, cellFacts, lightMask } = TreeRace.maskPlot;
  const { factsOf, lightTree, nodesOf } = TreeRace.treePlot;

  /** @typedef {{ x: number, y: number }} Place on the screen */
  /** @typedef {[node: number, mark: Element | null]} Mark of a node in a part of the page */

  // The words beside what is pointed at.
  class Tip {
    /** @param {HTMLElement} home */
    constructor(home) {
      this.root = make("div", "tip");
      this.root.hidden = true;
      this.root.setAttribute("role", "status");
      home.append(this.root);
    }

    /**
     * @param {string[]} facts
     * @param {Place | null} place
     */
    say(facts, place) {
      const { root } = this;
      root.hidden = !facts.length || !place;
      if (root.hidden || !place) return;
      root.replaceChildren(...facts.map((fact) => make("span", "", fact)));
      const [width, height] = [root.offsetWidth, root.offsetHeight];
      root.style.left = `${Math.max(4, Math.min(innerWidth - width - 4, place.x + 14))}px`;
      root.style.top = `${place.y + height + 22 > innerHeight ? place.y - height - 12 : place.y + 16}px`;
    }
  }

  // The element of the node below the pointer. Small marks reach over each other: then the one whose middle is nearest.
  /** @param {PointerEvent} event */
  function nodeBelow({ target, clientX: x, clientY: y }) {
    const over = /** @type {Element} */ (target);
    const away = (/** @type {Element} */ each) => {
      const { left, top, width, height } = each.getBoundingClientRect();
      return Math.hypot(left + width / 2 - x, top + height / 2 - y);
    };
    const reaching = over.matches("circle.reach")
      ? document.elementsFromPoint(x, y).filter((each) => each.matches("circle.reach"))
      : [];
    const [nearest = over] = reaching.sort((a, b) => away(a) - away(b));
    return nearest.closest("[data-node]");
  }

  // Pointing in one drawing, whose elements have their nodes' numbers.
  class TreePointing extends EventTarget {
    /** @type {number | null} */
    node = null;

    /**
     * @param {HTMLElement} tree
     * @param {Tip} tip
     * @param {() => Step | undefined} stepOf
     */
    constructor(tree, tip, stepOf) {
      super();
      this.tree = tree;
      this.tip = tip;
      this.stepOf = stepOf;
      tree.addEventListener("pointermove", (event) => {
        const over = nodeBelow(event);
        if (!(over instanceof SVGElement) || !this.step) return this.point(null);
        this.pointAt(Number(over.dataset.node), { x: event.clientX, y: event.clientY });
      });
      tree.addEventListener("pointerleave", () => this.point(null));
    }

    get step() {
      return this.stepOf();
    }

    get nodes() {
      return this.step ? nodesOf(this.step) : [];
    }

    // From the root down to the node.
    get path() {
      /** @type {number[]} */
      const path = [];
      const { nodes } = this;
      for (let at = this.node ?? -1; at >= 0 && nodes[at]; at = nodes[at].parent) path.unshift(at);
      return path;
    }

    /**
     * @param {number | null} node
     * @param {string[]} facts about what is pointed at
     * @param {Place | null} place of the words
     */
    point(node, facts = [], place = null) {
      this.tip.say(facts, place);
      if (node === this.node) return;
      this.node = node;
      this.light();
      this.dispatchEvent(new Event("point"));
    }

    /**
     * @param {number} index
     * @param {Place} place
     */
    pointAt(index, place) {
      const node = this.nodes[index];
      if (node) this.point(index, factsOf(node), place);
    }

    light() {
      lightTree(this.tree, new Set(this.path));
    }

    /** @returns {Mark[]} in the order of the nodes */
    get marks() {
      return this.nodes.map((_, node) => [node, this.tree.querySelector(`g[data-node="${node}"]`)]);
    }

    /**
     * Goes on to the next of these nodes, or back, round and round. The words stand beside its mark.
     * @param {number} by
     * @param {Mark[]} marks
     */
    move(by, marks = this.marks) {
      const at = marks.findIndex(([node]) => node === this.node);
      const from = at < 0 && by < 0 ? 0 : at;
      const [node, mark] = marks[(from + by + marks.length) % marks.length];
      const box = mark?.getBoundingClientRect();
      if (box) this.pointAt(node, { x: box.left, y: box.bottom - 10 });
    }

    /**
     * The arrow keys go up and down the nodes of this part of the page while it has the focus.
     * @param {HTMLElement} part
     * @param {() => Mark[]} marksOf
     */
    byKeys(part, marksOf) {
      part.tabIndex = 0;
      part.addEventListener("keydown", (event) => {
        const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        const marks = by ? marksOf() : [];
        if (!by || !marks.length) return;
        event.preventDefault();
        this.move(by, marks);
      });
      part.addEventListener("blur", () => this.point(null));
    }

    // Pointing in a tree that stands alone.
    alone() {
      this.byKeys(this.tree, () => this.marks);
      return this;
    }
  }

  // Pointing in a race's tree, mask and text.
  class Pointing extends TreePointing {
    /** @param {RaceView} view */
    constructor(view) {
      super(view.at("tree"), new Tip(view.root), () => view.steps[view.stepView.index]);
      this.view = view;
      /** @type {HTMLElement} */
      this.mask = view.at("mask");
      this.alone();
      this.listen();
    }

    /** @override */
    light() {
      const { node, view, step } = this;
      super.light();
      lightMask(this.mask, node !== null && node < (step?.parents.length ?? 0) ? node : null);
      view.lanes[view.focus].light(this.pieceOf(node));
    }

    // The token of the burst that a node became; -1 for one that was not accepted.
    /** @param {number | null} node */
    pieceOf(node) {
      if (node === null || !this.step) return -1;
      return node === this.step.parents.length ? this.step.path.length : this.step.path.indexOf(node);
    }

    /** @param {number} piece of the burst */
    nodeOf(piece) {
      if (!this.step) return null;
      const { path, has_bonus, parents } = this.step;
      return path[piece] ?? (has_bonus ? parents.length : null);
    }

    listen() {
      const { mask, view } = this;
      view.addEventListener("change", () => this.node !== null && this.light()); // the step may be drawn anew
      mask.addEventListener("pointermove", (event) => {
        const cell = cellAt(mask, event);
        if (!cell || !this.step) return this.point(null);
        const facts = cellFacts(this.step, cell.query, cell.key, view.stepView.causal);
        this.point(cell.query, facts, { x: event.clientX, y: event.clientY });
      });
      for (const part of [mask, view.at("lanes")]) part.addEventListener("pointerleave", () => this.point(null));
      view.at("lanes").addEventListener("pointerover", (/** @type {PointerEvent} */ { target }) => {
        const piece = /** @type {Element} */ (target).closest(".burst.current [data-piece]");
        this.point(piece instanceof HTMLElement ? this.nodeOf(Number(piece.dataset.piece)) : null);
      });
      this.byKeys(mask, () => findAll(mask, ".row").map((row) => [Number(row.dataset.node), row]));
      for (const { text } of view.lanes) {
        this.byKeys(text, () => {
          const pieces = findAll(text, ".current [data-piece]");
          return pieces.flatMap((piece, at) => {
            const node = this.nodeOf(at);
            return node === null ? [] : [[node, piece]];
          });
        });
      }
    }
  }

  // Pointing in the story of a step, where all pictures are one drawing.
  class StoryPointing extends TreePointing {
    /** @override */
    light() {
      const path = new Set(this.path);
      for (const each of findAll(this.tree, "[data-node]")) {
        const node = Number(each.dataset.node);
        each.toggleAttribute("data-lit", each.matches(".node, .edge") ? path.has(node) : node === this.node);
      }
    }
  }

  return { Pointing, StoryPointing, Tip, TreePointing };
})();
