// Zoom and pan of a drawing: wheel, pinch, drag, double click. Knows an element and how often its drawing is enlarged; not what is drawn.

TreeRace.zooming = (() => {
  const { inNextFrame } = TreeRace.elements;
  const MOST = 8;
  const STEP = 1.0015; // for each pixel of the wheel

  /** @typedef {{ zoom: number, x: number, y: number }} View */

  /** @type {WeakMap<Element, View>} */
  const views = new WeakMap();

  /**
   * How the element's drawing is shown. When that changes, `redraw` is called, once in a frame.
   * @param {HTMLElement} home
   * @param {() => void} redraw
   */
  function zoomOf(home, redraw) {
    const known = views.get(home);
    if (known) return known;
    const view = { zoom: 1, x: 0, y: 0 };
    views.set(home, view);
    listen(home, view, redraw);
    return view;
  }

  /**
   * Keeps the point [x, y] of the element where it is.
   * @param {HTMLElement} home
   * @param {View} view
   * @param {number} by
   * @param {number} x
   * @param {number} y
   */
  function enlarge(home, view, by, x, y) {
    const zoom = Math.max(1, Math.min(MOST, view.zoom * by));
    const ratio = zoom / view.zoom;
    Object.assign(view, { zoom, x: x - (x - view.x) * ratio, y: y - (y - view.y) * ratio });
    hold(home, view);
  }

  /**
   * No side of the drawing leaves the element's.
   * @param {HTMLElement} home
   * @param {View} view
   */
  function hold(home, view) {
    view.x = Math.min(0, Math.max(home.clientWidth * (1 - view.zoom), view.x));
    view.y = Math.min(0, Math.max(home.clientHeight * (1 - view.zoom), view.y));
  }

  /**
   * @param {HTMLElement} home
   * @param {View} view
   * @param {() => void} redraw
   */
  function listen(home, view, redraw) {
    const soon = inNextFrame(redraw);
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
    home.addEventListener("wheel", (event) => {
      if (view.zoom === 1 && event.deltaY > 0) return; // nothing to leave: the page scrolls
      event.preventDefault();
      enlarge(home, view, STEP ** -(event.deltaMode ? 40 * event.deltaY : event.deltaY), ...placeOf(event));
      soon();
    });
    home.addEventListener("dblclick", () => {
      Object.assign(view, { zoom: 1, x: 0, y: 0 });
      soon();
    });
    home.addEventListener("pointerdown", (event) => held.set(event.pointerId, placeOf(event)));
    home.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) return;
      const place = placeOf(event);
      const wide = held.size === 2 ? spread() : 0;
      held.set(event.pointerId, place);
      if (wide) enlarge(home, view, spread() / Math.max(1, wide), ...place);
      else if (view.zoom > 1) {
        view.x += place[0] - before[0];
        view.y += place[1] - before[1];
        hold(home, view);
      } else return;
      soon();
    });
    for (const end of /** @type {const} */ (["pointerup", "pointercancel", "pointerleave"])) {
      home.addEventListener(end, (event) => held.delete(event.pointerId));
    }
  }

  return { zoomOf };
})();
