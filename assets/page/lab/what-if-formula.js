// The what-if's formula: engine/page/screens/pays.py in the page. Knows measured milliseconds and a tree's figures; knows no element.

TreeRace.whatIfFormula = (() => {
  const HALVINGS = 60; // of the range in which an acceptance is sought

  /**
   * The mean length of a burst, bonus included, where every depth is accepted with the same chance.
   * @param {number} acceptance
   * @param {number} depth
   */
  function tokensARound(acceptance, depth) {
    return acceptance === 1 ? depth + 1 : (1 - acceptance ** (depth + 1)) / (1 - acceptance);
  }

  /**
   * The chance per token with which rounds of that depth yield so many tokens; 1 where they cannot yield them.
   * @param {number} tokens a round
   * @param {number} depth
   */
  function acceptanceOf(tokens, depth) {
    let [low, high] = [0, 1];
    for (let halving = 0; halving < HALVINGS; halving += 1) {
      const middle = (low + high) / 2;
      if (tokensARound(middle, depth) < tokens) low = middle;
      else high = middle;
    }
    return high;
  }

  /** @param {WhatIf} point */
  const rowsOf = ({ depth, width, batch }) => (1 + depth * width) * batch;

  /**
   * How many tokens of plain decoding a round takes the time of; null where it has more rows than were measured.
   * @param {Costs} costs
   * @param {WhatIf} point
   */
  function price(costs, point) {
    const rows = rowsOf(point);
    if (rows > Math.max(...costs.sizes)) return null;
    return costs.verifyAt(rows) / costs.verifyAt(point.batch) + point.depth * point.draft;
  }

  /**
   * How many times plain decoding's speed; null where nothing was measured.
   * @param {Costs} costs
   * @param {WhatIf} point
   */
  function speedup(costs, point) {
    const cost = price(costs, point);
    return cost === null ? null : tokensARound(point.acceptance, point.depth) / cost;
  }

  return { acceptanceOf, price, rowsOf, speedup, tokensARound };
})();
