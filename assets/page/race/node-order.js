// In which order a step's nodes stand in the mask, and how many blocks of it that needs: tests/helpers/trees.py in the page.

TreeRace.nodeOrder = (() => {
  /**
   * Depth first from the root; siblings by ascending rank, ties as they were added.
   * @param {number[]} parents
   * @param {number[]} rank
   */
  function preorder(parents, rank) {
    /** @type {number[][]} */
    const children = parents.map(() => []);
    for (const [node, parent] of parents.entries()) if (node) children[parent].push(node);
    /** @type {number[]} */
    const order = [];
    const waiting = [0];
    for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
      order.push(node);
      waiting.push(...children[node].sort((a, b) => rank[a] - rank[b]).reverse());
    }
    return order;
  }

  /** @param {number[]} parents */
  function subtreeSizes(parents) {
    const sizes = parents.map(() => 1);
    for (let node = parents.length - 1; node > 0; node--) sizes[parents[node]] += sizes[node];
    return sizes;
  }

  /** @param {number[]} parents */
  const insertion = (parents) => [...parents.keys()];

  /** @type {Record<string, (parents: number[]) => number[]>} */
  const ORDERS = {
    insertion,
    dfs: (parents) => preorder(parents, insertion(parents)),
    "heavy path": (parents) =>
      preorder(
        parents,
        subtreeSizes(parents).map((size) => -size),
      ),
  };

  /**
   * The blocks [row, column] that hold at least one allowed entry when the nodes stand in `order`.
   * @param {number[]} parents
   * @param {number[]} order
   * @param {number} block
   */
  function maskBlocks(parents, order, block) {
    /** @type {number[]} */
    const place = [];
    for (const [index, node] of order.entries()) place[node] = index;
    /** @type {Map<string, [number, number]>} */
    const blocks = new Map();
    for (const node of order) {
      for (let at = node; at >= 0; at = parents[at]) {
        const [row, column] = [Math.floor(place[node] / block), Math.floor(place[at] / block)];
        blocks.set(`${row} ${column}`, [row, column]);
      }
    }
    return [...blocks.values()];
  }

  /**
   * Small enough for the trees of a race to have several.
   * @param {number} nodes
   */
  function blockFor(nodes) {
    if (nodes <= 12) return 2;
    return nodes <= 48 ? 4 : 8;
  }

  return { ORDERS, maskBlocks, blockFor };
})();
