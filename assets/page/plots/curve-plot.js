// A measured curve as a drawing: a figure over nodes, temperature or batch, a line for each system. Knows points; nothing of pages and runs.

TreeRace.curvePlot = (() => {
  const { draw } = TreeRace.elements;
  const { asNumber } = TreeRace.numbers;

  /** @typedef {{ title: string, hue: string, faint: boolean, points: { x: number, y: number }[] }} DrawnLine */
  /** @typedef {{ unit: string, digits: number, floor: number | null, peak: boolean, doubling: boolean, axis: string }} How */

  const TICK = 5; // marks on the upright axis, at most
  const APART = 1.15; // letters between two names of lines

  /**
   * Round numbers from 0 to beyond the highest.
   * @param {number} highest
   */
  function levelsOf(highest) {
    const unit = 10 ** Math.floor(Math.log10(highest / TICK));
    const step = unit * ([1, 2, 5, 10].find((times) => times * unit * TICK >= highest) ?? 10);
    return Array.from({ length: Math.ceil(highest / step) + 1 }, (_, index) => index * step);
  }

  /**
   * Every other tick, and again, until names have room; the last one stays.
   * @param {number[]} values
   * @param {number} most
   */
  function thinned(values, most) {
    const every = Math.ceil(values.length / most);
    return values.filter((_, index) => (values.length - 1 - index) % every === 0);
  }

  /**
   * `floor` is a value that gets a line of its own, such as plain decoding's speed; `peak` names the highest point of the first line that
   * is not faint; `doubling` gives every doubling of x as much room.
   * @param {HTMLElement} div
   * @param {DrawnLine[]} lines
   * @param {How} how
   */
  function drawCurve(div, lines, { unit, digits, floor, peak, doubling, axis }) {
    const [width, height] = [div.clientWidth, div.clientHeight];
    const points = lines.flatMap((line) => line.points);
    if (!width || !height || !points.length) return div.replaceChildren();
    const letters = Math.max(12, Math.min(22, width / 34));
    const scale = (/** @type {number} */ value) => (doubling ? Math.log2(value) : value);
    const values = [...new Set(points.map(({ x }) => x))].sort((a, b) => a - b);
    const [first, last] = [scale(values[0]), scale(values[values.length - 1])];
    const levels = levelsOf(Math.max(floor ?? 0, ...points.map(({ y }) => y)));
    const top = levels[levels.length - 1];
    const names = Math.max(...lines.map(({ title, faint }) => (faint ? 0 : title.length)));
    const edge = {
      left: letters * 3,
      right: Math.min(width * 0.36, letters * (1.2 + 0.54 * names)),
      top: letters * 1.3,
      bottom: letters * 2.9,
    };
    const x = (/** @type {number} */ value) =>
      edge.left + ((scale(value) - first) / (last - first || 1)) * (width - edge.left - edge.right);
    const y = (/** @type {number} */ value) => edge.top + (1 - value / top) * (height - edge.top - edge.bottom);
    const end = x(values[values.length - 1]);
    const text = (/** @type {Record<string, string | number>} */ at, /** @type {string} */ words) =>
      draw("text", { "font-size": letters, ...at }, words);
    const svg = draw("svg", { width, height, class: "curve-drawing", "aria-hidden": "true" });
    for (const level of levels) {
      svg.append(draw("path", { class: "grid", d: `M${edge.left} ${y(level)}H${end}` }));
      const label = `${Number(level.toFixed(2))}${unit}`;
      svg.append(text({ class: "end", x: edge.left - 7, y: y(level) + 0.35 * letters }, label));
    }
    const room = Math.floor((end - edge.left) / (2.6 * letters));
    for (const value of thinned(values, Math.max(2, room))) {
      svg.append(text({ class: "middle", x: x(value), y: y(0) + 1.25 * letters }, String(value)));
    }
    svg.append(text({ x: edge.left, y: height - 0.35 * letters }, axis));
    if (floor !== null) svg.append(draw("path", { class: "floor", d: `M${edge.left} ${y(floor)}H${end}` }));
    /** @type {number[]} */
    const taken = [];
    for (const { title, hue, faint, points: own } of lines) {
      if (!own.length) continue;
      const kind = `${hue}${faint ? " before" : ""}`;
      const way = own.map((point) => `${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)}`).join("L");
      svg.append(draw("path", { class: `line ${kind}`, d: `M${way}` }));
      for (const point of faint ? [] : own) {
        const said = draw("title", {}, `${title}, ${axis} ${point.x}: ${asNumber(point.y, digits)}${unit}`);
        svg.append(draw("circle", { class: `spot ${kind}`, cx: x(point.x), cy: y(point.y), r: letters * 0.27 }, said));
      }
      if (faint) continue;
      const at = own[own.length - 1];
      let place = y(at.y) + 0.35 * letters;
      for (const other of [...taken].sort((a, b) => a - b))
        if (Math.abs(place - other) < APART * letters) place = other + APART * letters;
      taken.push(place);
      svg.append(text({ class: `name ${hue}`, x: x(at.x) + 0.6 * letters, y: place }, title));
    }
    const best = lines.find(({ faint }) => !faint)?.points ?? [];
    if (peak && best.length > 1) svg.append(...peakOf(best, x, y, letters, unit, digits, axis));
    return div.replaceChildren(svg);
  }

  /**
   * A ring around the highest point, and its words above.
   * @param {{ x: number, y: number }[]} points
   * @param {(value: number) => number} x
   * @param {(value: number) => number} y
   * @param {number} letters
   * @param {string} unit
   * @param {number} digits
   * @param {string} axis
   */
  function peakOf(points, x, y, letters, unit, digits, axis) {
    const highest = points.reduce((best, point) => (point.y > best.y ? point : best));
    const at = { x: x(highest.x), y: y(highest.y) };
    const words = `${highest.x} ${axis}: ${asNumber(highest.y, digits)}${unit}`;
    const name = {
      class: "peak middle",
      x: Math.max(at.x, letters * 6),
      y: at.y - 0.85 * letters,
      "font-size": letters,
    };
    return [draw("circle", { class: "peak-ring", cx: at.x, cy: at.y, r: 0.55 * letters }), draw("text", name, words)];
  }

  return { drawCurve, levelsOf };
})();
