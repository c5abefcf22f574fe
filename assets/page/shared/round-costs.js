// What a round costs and wins: engine/costs.py in the page, and its words. Knows measured milliseconds and a lane's steps.
window.TreeRace = window.TreeRace || {};

(function (T) {
  T.Costs = class {
    constructor({ verify_ms: verify, first_ms: first, level_ms: level }) {
      this.sizes = Object.keys(verify).map(Number); // in ascending order, as objects keep such keys
      Object.assign(this, { verify, first, level });
    }

    // Straight lines between what was measured, and on behind it.
    verifyAt(nodes) {
      const { sizes, verify } = this;
      if (sizes.length === 1) return verify[sizes[0]];
      const above = sizes.findIndex((size) => size >= nodes);
      const right = Math.max(1, above < 0 ? sizes.length - 1 : above);
      const [from, to] = [sizes[right - 1], sizes[right]];
      return verify[from] + ((verify[to] - verify[from]) / (to - from)) * (nodes - from);
    }

    roundMs(nodes, levels) {
      return this.verifyAt(nodes) + (levels > 0 ? this.first : 0) + this.level * Math.max(0, levels - 1);
    }

    // A round's cost in tokens of plain decoding: the tau that it needs.
    breakEven(nodes, levels) {
      return this.roundMs(nodes, levels) / this.verifyAt(1);
    }
  };

  function levelsOf(parents) {
    const depth = [];
    parents.forEach((parent, node) => (depth[node] = parent < 0 ? 0 : depth[parent] + 1));
    return Math.max(...depth);
  }

  // The step as a purchase: its size, its price in tokens' time, and tau as it stands after it.
  T.roundOf = function (steps, index, costs) {
    const { parents } = steps[index];
    const tokens = steps.slice(0, index + 1).reduce((sum, step) => sum + step.burst.length, 0);
    const [nodes, levels] = [parents.length, levelsOf(parents)];
    return { index, nodes, levels, price: costs.breakEven(nodes, levels), tau: tokens / (index + 1) };
  };

  T.costWords = function ({ nodes, levels, price, tau }) {
    const soFar = `tau so far is ${T.number(tau, 2)}`;
    if (!levels) return `No draft: a one-node tree is the baseline itself; ${soFar}.`;
    const ratio = tau / price;
    const times = `${T.number(ratio, 1)}×`;
    const verdict = T.isLevel(ratio) ? "it breaks even" : ratio > 1 ? `it pays ${times}` : `it loses: ${times}`;
    const size = `${nodes} nodes in ${levels} ${levels === 1 ? "level" : "levels"}`;
    return `This step: ${size} cost ${T.number(price, 2)} tokens’ time; ${soFar}, so ${verdict}.`;
  };
})(window.TreeRace);
