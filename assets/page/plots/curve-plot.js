// Lines over tokens, nodes, temperature or batch as a drawing, a line for each system or model. Knows points; nothing of pages and runs.

TreeRace.curvePlot = (() => {
  const { draw } = TreeRace.elements;
  const { asNumber } = TreeRace.numbers;
  const { Costs } = TreeRace.roundCosts;

  /** @typedef {{ title: string, hue: string, faint: boolean, points: { x: number, y: number }[] }} DrawnLine */
  /** @typedef {{ unit: string, digits: number, floor: number | null, peak: boolean, doubling: boolean, axis: string }} Look */
  /** @typedef {Look & { least?: number, ticks?: number[] }} How */

  const TICK = 5; // marks on the upright axis, at most
  const APART = 1.15; // letters between two names of lines
  const GROWTH = { width: 320, height: 150, letters: 11.5 }; // of a small picture that is drawn as large as it fits
  const MOST = 16; // tokens of the largest forward in it

  /** @param {number} highest beyond which the axis' round numbers go, from 0 on */
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
   * @param {HTMLElement} div
   * @param {DrawnLine[]} lines
   * @param {How} how
   */
  function drawCurve(div, lines, how) {
    const [width, height] = [div.clientWidth, div.clientHeight];
    const hasRoom = width && height && lines.some((line) => line.points.length);
    const letters = Math.max(12, Math.min(22, width / 34));
    div.replaceChildren(...(hasRoom ? [curveOf({ width, height, letters }, lines, how)] : []));
  }

  /**
   * `floor` is a value that gets a line of its own, such as plain decoding's speed; `peak` names the highest point of the first line that
   * is not faint; `doubling` gives every doubling of x as much room.
   * @param {{ width: number, height: number, letters: number }} room
   * @param {DrawnLine[]} lines
   * @param {How} how
   */
  function curveOf({ width, height, letters }, lines, { unit, digits, floor, peak, doubling, axis, least = 0, ticks }) {
    const points = lines.flatMap((line) => line.points);
    const scale = (/** @type {number} */ value) => (doubling ? Math.log2(value) : value);
    const values = [...new Set(points.map(({ x }) => x))].sort((a, b) => a - b);
    const [first, last] = [scale(values[0]), scale(values[values.length - 1])];
    const levels = levelsOf(Math.max(least, floor ?? 0, ...points.map(({ y }) => y)));
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
    const view = `0 0 ${width} ${height}`;
    const svg = draw("svg", { width, height, viewBox: view, class: "curve-drawing", "aria-hidden": "true" });
    for (const level of levels) {
      svg.append(draw("path", { class: "grid", d: `M${edge.left} ${y(level)}H${end}` }));
      const label = `${Number(level.toFixed(2))}${unit}`;
      svg.append(text({ class: "end", x: edge.left - 7, y: y(level) + 0.35 * letters }, label));
    }
    const room = Math.floor((end - edge.left) / (2.6 * letters));
    for (const value of ticks ?? thinned(values, Math.max(2, room))) {
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
    if (peak && best.length > 1) {
      const highest = best.reduce((most, point) => (point.y > most.y ? point : most));
      const [cx, cy] = [x(highest.x), y(highest.y)]; // a ring around it, and its words above
      const name = { class: "peak middle", x: Math.max(cx, letters * 6), y: cy - 0.85 * letters };
      svg.append(draw("circle", { class: "peak-ring", cx, cy, r: 0.55 * letters }));
      svg.append(text(name, `${highest.x} ${axis}: ${asNumber(highest.y, digits)}${unit}`));
    }
    return svg;
  }

  /**
   * How many times the time of one token a forward over so many takes. What other work added is left out: a forward takes at most what
   * one over more tokens takes (`rising` in engine/record/costs.py).
   * @param {Record<number, number>} measured milliseconds by tokens
   * @param {number} tokens
   */
  function timesOne(measured, tokens) {
    const all = Object.entries(measured).map(([of, ms]) => ({ of: Number(of), ms }));
    const rising = all.map(({ of }) => [of, Math.min(...all.filter((more) => more.of >= of).map(({ ms }) => ms))]);
    const costs = new Costs({ verify_ms: Object.fromEntries(rising), first_ms: 0, level_ms: 0 });
    return costs.verifyAt(tokens) / costs.verifyAt(1);
  }

  /**
   * How a forward's time grows with its tokens, a line for each model, in times of one token.
   * @param {{ size: string, verify_ms: Record<number, number> }[]} models the smallest first
   */
  function growthOf(models) {
    const lines = models.map(({ size, verify_ms: measured }, index) => {
      const sizes = Object.keys(measured).map(Number);
      const places = [...new Set([...sizes.filter((each) => each < MOST), MOST])];
      const points = places.map((tokens) => ({ x: tokens, y: timesOne(measured, tokens) }));
      return { title: size, hue: index ? "large" : "small", faint: false, points };
    });
    const how = { unit: "×", digits: 1, floor: null, peak: false, doubling: false, axis: "tokens in one forward" };
    const svg = curveOf(GROWTH, lines, { ...how, least: 3, ticks: [1, 4, 8, 12, MOST] });
    svg.classList.add("growth");
    return svg;
  }

  return { drawCurve, growthOf, levelsOf, timesOne };
})();
