// In which order a step's nodes stand in the mask, and how many blocks of it that needs: engine/order.py in the page.
window.TreeRace = window.TreeRace || {};

(function (T) {
  // Depth first from the root; siblings by ascending rank, ties as they were added.
  function preorder(parents, rank) {
    const children = parents.map(() => []);
    parents.forEach((parent, node) => node && children[parent].push(node));
    const [order, waiting] = [[], [0]];
    while (waiting.length) {
      const node = waiting.pop();
      order.push(node);
      waiting.push(...children[node].sort((a, b) => rank[a] - rank[b]).reverse());
    }
    return order;
  }

  function subtreeSizes(parents) {
    const sizes = parents.map(() => 1);
    for (let node = parents.length - 1; node > 0; node--) sizes[parents[node]] += sizes[node];
    return sizes;
  }

  const insertion = (parents) => [...parents.keys()];

  T.ORDERS = {
    insertion,
    dfs: (parents) => preorder(parents, insertion(parents)),
    "heavy path": (parents) => preorder(parents, subtreeSizes(parents).map((size) => -size)),
  };

  // The blocks [row, column] that hold at least one allowed entry when the nodes stand in `order`.
  T.maskBlocks = function (parents, order, block) {
    const place = [];
    order.forEach((node, index) => (place[node] = index));
    const blocks = new Map();
    for (const node of order) {
      for (let at = node; at >= 0; at = parents[at]) {
        const [row, column] = [Math.floor(place[node] / block), Math.floor(place[at] / block)];
        blocks.set(`${row} ${column}`, [row, column]);
      }
    }
    return [...blocks.values()];
  };

  // Small enough for the trees of a race to have several.
  T.blockFor = (nodes) => (nodes <= 12 ? 2 : nodes <= 48 ? 4 : 8);
})(window.TreeRace);
