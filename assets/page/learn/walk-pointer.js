// Pointing at a node while the walk is open: the card's picture and the race's lights follow. Knows the shown step; nothing of the pages.

TreeRace.walkPointer = (() => {
  class WalkPointer {
    /** @type {number | null} the node that is pointed at, or was last */
    node = null;
    hooked = false;

    /** @param {Walk} walk */
    constructor(walk) {
      this.walk = walk;
    }

    // Hears what is pointed at in the race.
    hook() {
      if (this.hooked) return;
      this.hooked = true;
      const { pointing } = TreeRace.view;
      pointing.addEventListener("point", () => this.walk.isOpen && pointing.node !== null && this.point(pointing.node));
    }

    /** @param {number} node */
    point(node) {
      const { walk } = this;
      const step = TreeRace.view.steps[TreeRace.view.step];
      if (walk.breaks.on || !(node < step?.parents.length)) return;
      walk.did("node");
      walk.did("row");
      if (node === this.node) return;
      this.node = node;
      TreeRace.view.pointing.point(node);
      walk.draw();
    }
  }

  return { WalkPointer };
})();
