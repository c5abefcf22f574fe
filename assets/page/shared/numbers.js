// Numbers as the page writes them. Knows no element.

TreeRace.numbers = (() => {
  /**
   * Whether a ratio reads 1.0 when it is rounded: neither is ahead.
   * @param {number} ratio
   */
  const isLevel = (ratio) => ratio > 0.95 && ratio < 1.05;

  /**
   * @param {number | null | undefined} value
   * @param {number} digits
   */
  const asNumber = (value, digits) => (Number.isFinite(value) ? Number(value).toFixed(digits) : "–");

  /**
   * So many of it, in words.
   * @param {number} count
   * @param {string} what
   */
  const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

  /**
   * A probability.
   * @param {number | null | undefined} value
   */
  function asShare(value) {
    if (value === null || value === undefined) return "–";
    return value < 0.001 ? "< 0.001" : value.toFixed(3);
  }

  /**
   * It never reads 0 % where that is only rounding.
   * @param {number | null | undefined} share
   */
  function asPercent(share) {
    if (share === null || share === undefined || !Number.isFinite(share)) return "–";
    return share > 0 && share < 0.005 ? "< 1 %" : `${Math.round(100 * share)} %`;
  }

  return { isLevel, asNumber, asPercent, asShare, counted };
})();
