// The what-if's formula: engine/page/screens/pays_what_if.py in the page. Knows measured milliseconds and a tree's figures; knows no element.
"use strict";

TreeRace.whatIfFormula = (() => {
  /**
   * The mean length of a burst, bonus included, where every depth is accepted with the same chance.
   * @param {number} acceptance
   * @param {number} depth
   */
  function tokensARound(acceptance, depth) {
    return acceptance === 1 ? depth + 1 : (1 - acceptance ** (depth + 1)) / (1 - acceptance);
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

  return { price, rowsOf, speedup, tokensARound };
})();
