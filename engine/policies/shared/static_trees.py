"""Static trees: the most valuable shape when a[b] is the probability that a node's b-th child is the first accepted one.

Source: the dynamic program of Sequoia (Chen et al. 2024, section 3.1).
"""

Shape = tuple["Shape", ...]  # the shapes below a node's children, in order; () is a leaf


class BestTrees:
    """The best trees of up to `nodes` nodes, root included, and up to `depth` levels below the root.

    `value[l][m]` is the expected number of tokens a round, bonus included, from the best subtree of at most m nodes and l levels below
    its top. `size[l][b][m]`: when m nodes are left for the children b, b + 1, ..., so many go to child b and what is below it.
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
        """The best tree itself. It is smaller than `nodes` where depth and width hold fewer."""
        children, left = [], nodes - 1
        for sizes in self.size[levels]:
            if left == 0:
                break
            children.append(self.shape(sizes[left], levels - 1))
            left -= sizes[left]
        return tuple(children)
