"""Static trees: the shape that is worth most when the b-th child of any node is accepted first with probability a[b].

Knows numbers only; no drafter, no tokens. Source: the dynamic program of Sequoia (Chen et al. 2024, section 3.1).
"""

Shape = tuple["Shape", ...]  # the shapes below a node's children, in order; () is a leaf


class BestTrees:
    """The best trees of up to `nodes` nodes, root included, and up to `depth` levels below the root.

    `value[l][m]` is the expected number of tokens a round (accepted ones and the bonus) from the best subtree of at most m nodes and l
    levels below its top; `size[l][b][m]` how many of m nodes for the children b, b + 1, ... go below child b.
    """

    def __init__(self, acceptance: tuple[float, ...], nodes: int, depth: int):
        self.acceptance, self.nodes, self.depth = acceptance, nodes, depth
        self.value, self.size = [[0.0] + [1.0] * nodes], [[]]
        for _ in range(depth):
            below, rest, sizes = self.value[-1], [0.0] * nodes, []
            for chance in reversed(acceptance):
                best = [
                    max((chance * below[y] + rest[m - y], -y) for y in range(1, m + 1)) if m else (0.0, 0)
                    for m in range(nodes)
                ]
                rest = [value for value, _ in best]
                sizes.insert(0, [-y for _, y in best])
            self.value.append([0.0] + [1.0 + value for value in rest])
            self.size.append(sizes)

    def expected(self, nodes: int, levels: int) -> float:
        """Expected tokens a round of the best tree of that size."""
        return self.value[levels][nodes]

    def shape(self, nodes: int, levels: int) -> Shape:
        """The best tree itself; smaller than `nodes` where depth and width do not hold as many."""
        children, left = [], nodes - 1
        for sizes in self.size[levels]:
            if left == 0:
                break
            children.append(self.shape(sizes[left], levels - 1))
            left -= sizes[left]
        return tuple(children)
