// What a round costs and wins, and which shape of a tree is best: engine/record/costs.py in the page, and its words. Knows measured
// milliseconds, promised tokens and a lane's steps.

TreeRace.roundCosts = (() => {
  const { depthsOf } = TreeRace.steps;
  const { asNumber, isLevel } = TreeRace.numbers;

  class Costs {
    /** @param {MeasuredCosts} measured */
    constructor({ verify_ms: verify, first_ms: first, level_ms: level }) {
      this.sizes = Object.keys(verify).map(Number); // in ascending order, as objects keep such keys
      this.verify = verify;
      this.first = first;
      this.level = level;
    }

    /**
     * Straight lines between what was measured, and on behind it.
     * @param {number} nodes
     * @returns {number} milliseconds
     */
    verifyAt(nodes) {
      const { sizes, verify } = this;
      if (sizes.length === 1) return verify[sizes[0]];
      const above = sizes.findIndex((size) => size >= nodes);
      const right = Math.max(1, above < 0 ? sizes.length - 1 : above);
      const [from, to] = [sizes[right - 1], sizes[right]];
      return verify[from] + ((verify[to] - verify[from]) / (to - from)) * (nodes - from);
    }

    /**
     * @param {number} nodes
     * @param {number} levels
     */
    roundMs(nodes, levels) {
      return this.verifyAt(nodes) + (levels > 0 ? this.first : 0) + this.level * Math.max(0, levels - 1);
    }

    /**
     * A round's cost in tokens of plain decoding: the tau that it needs.
     * @param {number} nodes
     * @param {number} levels
     */
    breakEven(nodes, levels) {
      return this.roundMs(nodes, levels) / this.verifyAt(1);
    }
  }

  /**
   * The step as a purchase: its size, its price in tokens' time, and tau as it stands after it.
   * @param {Step[]} steps
   * @param {number} index
   * @param {Costs} costs
   */
  function roundOf(steps, index, costs) {
    const { parents } = steps[index];
    const tokens = steps.slice(0, index + 1).reduce((sum, step) => sum + step.burst.length, 0);
    const [nodes, levels] = [parents.length, Math.max(...depthsOf(parents))];
    return { index, nodes, levels, price: costs.breakEven(nodes, levels), tau: tokens / (index + 1) };
  }

  /** @param {{ nodes: number, levels: number, price: number, tau: number }} round */
  function costWords({ nodes, levels, price, tau }) {
    const soFar = `${asNumber(tau, 2)} tokens a pass so far (tau)`;
    if (!levels) return `No draft: a one-node tree is the baseline itself; ${soFar}.`;
    const ratio = tau / price;
    const times = `${asNumber(ratio, 1)}×`;
    const verdict = isLevel(ratio) ? "it breaks even" : ratio > 1 ? `it pays ${times}` : `it loses: ${times}`;
    const size = `${nodes} nodes in ${levels} ${levels === 1 ? "level" : "levels"}`;
    return `This step: ${size} cost ${asNumber(price, 2)} tokens’ time; ${soFar}, so ${verdict}.`;
  }

  /** @param {string} shape such as 4x4x8 */
  const spaced = (shape) => shape.replaceAll("x", " x ");

  /** @param {Shaped} promised */
  const speedup = ({ tau, cost }) => tau / cost;

  /**
   * @param {Record<string, Shaped>} shapes what each shape promises, the paper's own first
   * @returns {{ own: string, best: string } | null} null where none was counted
   */
  function shapesOf(shapes) {
    const [own, ...others] = Object.keys(shapes);
    if (!own) return null;
    const best = others.reduce((most, each) => (speedup(shapes[each]) > speedup(shapes[most]) ? each : most), own);
    return { own, best };
  }

  /**
   * @param {Record<string, Shaped>} shapes
   * @param {string} [raced] the shape of the race that is shown, "" before one
   * @returns {string} "" where none was counted
   */
  function shapeWords(shapes, raced = "") {
    const found = shapesOf(shapes);
    if (!found) return "";
    const { own, best } = found;
    const rank = `the best of ${Object.keys(shapes).length} on this machine`;
    const papers = `the paper’s own: ${spaced(own)}`;
    const first = raced && raced !== best ? `Raced in ${spaced(raced)}; ${rank}: ${spaced(best)}` : "";
    const said = first || `${raced ? "Raced" : "Races"} in ${spaced(best)}, ${rank}`;
    if (own === best) return `${said}${first ? ", which is" : " and"} the paper’s own. ${slow(shapes[best])}`.trim();
    return `${said}; ${papers}. ${slow(shapes[best])}`.trim();
  }

  /** @param {Shaped} promised */
  function slow({ tau, cost }) {
    if (tau >= cost) return "";
    const [spent, won] = [asNumber(cost, 2), asNumber(tau, 2)];
    return `At its best shape a round costs ${spent} plain rounds and yields ${won} tokens, so plain decoding is faster.`;
  }

  return { Costs, roundOf, costWords, spaced, shapesOf, shapeWords };
})();
