// The light of the walk: a ring around one thing on the page, all else a little dimmer, and marks over the plots. Knows rectangles only.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const ROOM = 5; // pixels between the thing and its ring
  const SVG = "http://www.w3.org/2000/svg";

  // The thing's edges with some room, within the window; null when there is nothing to see.
  function frame(thing) {
    const box = thing?.getBoundingClientRect();
    if (!box?.width || !box.height) return null;
    const [left, top] = [Math.max(2, box.left - ROOM), Math.max(2, box.top - ROOM)];
    return [left, top, Math.min(innerWidth - 2, box.right + ROOM), Math.min(innerHeight - 2, box.bottom + ROOM)].map(Math.round);
  }

  const outline = ([left, top, right, bottom]) => `M${left} ${top}H${right}V${bottom}H${left}Z`;

  T.Light = class {
    constructor(root) {
      this.root = root;
      this.at = (name) => root.querySelector(`[data-${name}]`);
      this.drawn = "";
      this.marks = document.createElementNS(SVG, "svg");
      this.at("marks").append(this.marks);
    }

    // Follows the thing, which gets the ring, and what else stays bright: called in every frame, writes only when something moved.
    follow(thing, others = []) {
      const boxes = [thing, ...others].map(frame);
      this.root.hidden = !boxes[0];
      const drawn = [...boxes, innerWidth, innerHeight].join(" ");
      if (!boxes[0] || drawn === this.drawn) return;
      this.drawn = drawn;
      const [left, top, right, bottom] = boxes[0];
      const [x, y, width, height] = [left, top, right - left, bottom - top].map((each) => `${each}px`);
      Object.assign(this.at("ring").style, { left: x, top: y, width, height });
      const holes = [[0, 0, innerWidth, innerHeight], ...boxes.filter(Boolean)].map(outline);
      this.at("veil").style.clipPath = `path(evenodd, "${holes.join(" ")}")`;
    }

    // `shapes` by plot: circles [x, y] and rectangles [x, y, width, height], in pixels from the plot's corner.
    mark(...plots) {
      this.marks.replaceChildren();
      for (const [plot, shapes] of plots) {
        const corner = plot.getBoundingClientRect();
        for (const [x, y, width, height] of shapes) {
          const shape = document.createElementNS(SVG, width ? "rect" : "circle");
          const [left, top] = [corner.left + x, corner.top + y];
          const places = width ? { x: left, y: top, width, height, rx: 3 } : { cx: left, cy: top, r: 15 };
          for (const [name, value] of Object.entries(places)) shape.setAttribute(name, value);
          this.marks.append(shape);
        }
      }
    }
  };
})(window.TreeRace);
