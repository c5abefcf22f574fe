// What the story's pictures are made of: values that change with the story's time, marks, words. Knows time and elements; nothing of a step.

TreeRace.storyParts = (() => {
  const { draw } = TreeRace.elements;
  const { visible } = TreeRace.numbers;

  /**
   * From 0 to 1 between two times, slowly at both ends.
   * @param {number} time
   * @param {number} from
   * @param {number} to
   */
  function ease(time, from, to) {
    const share = Math.max(0, Math.min(1, (time - from) / (to - from)));
    return share * share * (3 - 2 * share);
  }

  /**
   * Writes an attribute at a time of the story, where its value has changed.
   * @param {SVGElement} element
   * @param {string} name
   * @param {(time: number) => string | number} valueAt
   * @returns {(time: number) => void}
   */
  function actor(element, name, valueAt) {
    let last = "";
    return (time) => {
      const value = valueAt(time);
      const text = typeof value === "number" ? String(Math.round(value * 1000) / 1000) : value;
      if (text !== last) element.setAttribute(name, text);
      last = text;
    };
  }

  /** @type {(x: number, y: number, scale?: number) => string} */
  const moved = (x, y, scale = 1) => `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${scale.toFixed(3)})`;

  // A token as a word: no dots for its spaces, signs for breaks of the line.
  /** @param {string} text */
  const word = (text) => visible(text).rest || (text ? "␣" : "…");

  /** @type {(className: string, x: number, y: number, size: number, text: string, anchor?: string) => SVGElement} */
  const words = (className, x, y, size, text, anchor = "start") =>
    draw("text", { class: className, x, y, "font-size": size, "text-anchor": anchor }, text);

  /**
   * The shape of a verdict, round its own middle.
   * @param {"guess" | "kept" | "bonus" | "root"} kind
   * @param {number} size
   */
  function shape(kind, size) {
    if (kind === "kept")
      return draw("rect", { class: kind, x: -size, y: -size, width: 2 * size, height: 2 * size, rx: 2 });
    if (kind === "bonus")
      return draw("path", { class: kind, d: `M0 ${-1.3 * size}L${1.3 * size} 0L0 ${1.3 * size}L${-1.3 * size} 0Z` });
    return draw("circle", { class: kind, r: size });
  }

  return { actor, ease, moved, shape, word, words };
})();
