// The light of the walk: a ring around one thing on the page, all else a little dimmer. Knows rectangles only.

TreeRace.spotlight = (() => {
  const { finder, inNextFrame } = TreeRace.elements;
  const ROOM = 5; // pixels between the thing and its ring

  /** @typedef {[left: number, top: number, right: number, bottom: number]} Box */

  /**
   * The thing's edges with some room, within the window; null when there is nothing to see.
   * @param {Element | null} thing
   * @returns {Box | null}
   */
  function frame(thing) {
    const box = thing?.getBoundingClientRect();
    if (!box?.width || !box.height) return null;
    const [left, top] = [Math.max(2, box.left - ROOM), Math.max(2, box.top - ROOM)];
    const [right, bottom] = [Math.min(innerWidth - 2, box.right + ROOM), Math.min(innerHeight - 2, box.bottom + ROOM)];
    return [Math.round(left), Math.round(top), Math.round(right), Math.round(bottom)];
  }

  /** @param {Box} box */
  const outline = ([left, top, right, bottom]) => `M${left} ${top}H${right}V${bottom}H${left}Z`;

  /**
   * The things whose size decides where `thing` stands: itself, what holds it, and what stands beside either.
   * @param {Element} thing
   */
  function neighbours(thing) {
    /** @type {Set<Element>} */
    const all = new Set([thing]);
    for (let at = thing.parentElement; at && at !== document.documentElement; at = at.parentElement) {
      all.add(at);
      for (const child of at.children) all.add(child);
    }
    return all;
  }

  class Spotlight {
    drawn = "";
    /** @type {Element | null} */
    thing = null;
    /** @type {(Element | null)[]} */
    others = [];

    /** @param {HTMLElement} root */
    constructor(root) {
      this.root = root;
      this.at = finder(root);
      this.observer = new ResizeObserver(() => this.soon());
      window.addEventListener("resize", () => this.soon());
      document.addEventListener("scroll", ({ target }) => this.scrolled(target), { capture: true, passive: true });
    }

    /**
     * Follows the thing, which gets the ring, and what else stays bright.
     * @param {Element | null} thing
     * @param {(Element | null)[]} others
     */
    follow(thing, others = []) {
      this.thing = thing;
      this.others = others;
      this.observer.disconnect();
      for (const each of [thing, ...others]) if (each) for (const near of neighbours(each)) this.observer.observe(near);
      this.draw();
    }

    /** @param {EventTarget | null} scroller */
    scrolled(scroller) {
      if (scroller instanceof Node && [this.thing, ...this.others].some((each) => scroller.contains(each))) this.soon();
    }

    // Something may have moved.
    soon = inNextFrame(() => this.thing && this.draw());

    draw() {
      const boxes = [this.thing, ...this.others].map(frame);
      const box = boxes[0];
      this.root.hidden = !box;
      const drawn = [...boxes, innerWidth, innerHeight].join(" ");
      if (!box || drawn === this.drawn) return;
      this.drawn = drawn;
      const [left, top, right, bottom] = box;
      const [x, y, width, height] = [left, top, right - left, bottom - top].map((each) => `${each}px`);
      Object.assign(this.at("ring").style, { translate: `${x} ${y}`, width, height });
      /** @type {Box[]} */
      const holes = [[0, 0, innerWidth, innerHeight]];
      for (const each of boxes) if (each) holes.push(each);
      this.at("veil").style.clipPath = `path(evenodd, "${holes.map(outline).join(" ")}")`;
    }
  }

  return { Spotlight };
})();
