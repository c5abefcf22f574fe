"""Sequoia policy: one static tree, the best for a measured acceptance vector (Sequoia, Chen et al. 2024).

Its nodes are drawn without replacement. A node budget below `OPEN_BUDGET` is used up. From `OPEN_BUDGET` on, the pair's measured cost
curve decides: the tree has the nodes and levels that promise the most tokens a second. Depth, width and budget limit it. One draft
forward per level.
"""

from functools import cache

from engine.policies.shared.asking import GrowingTree, LevelByLevelPolicy
from engine.record.calibration import Calibration
from engine.record.costs import Costs

OPEN_BUDGET = 64
UNMEASURED_BUDGET = 16  # nodes where no cost curve was measured
Shape = tuple["Shape", ...]  # the shapes below a node's children, in order; () is a leaf
TYPICAL = Calibration(acceptance=[0.65, 0.12, 0.05, 0.03, 0.02, 0.015, 0.01, 0.008])  # of a pair that was not measured


class SequoiaStaticTree(LevelByLevelPolicy):
    title = "Sequoia"
    about = "One fixed shape, the best for how often guesses were right when measured."
    source = "Sequoia (Chen et al. 2024), dynamic program"
    supported_proposal_modes = frozenset({"without replacement"})

    def validate_and_precompute(self) -> None:
        measured = self.calibration if self.calibration.acceptance else TYPICAL
        trees = cached_dynamic_program(tuple(measured.acceptance[: self.width]), self.nodes, self.depth)
        size = self.nodes, self.depth
        if self.nodes >= OPEN_BUDGET:
            size = (
                choose_fastest_nodes_and_levels(trees, measured.costs)
                if measured.costs.verify_ms
                else (min(self.nodes, UNMEASURED_BUDGET), self.depth)
            )
        self.shape = trees.build_best_tree_shape(*size)
        self.first_frontier = {0: self.shape}

    def add_level_below(self, growth: GrowingTree, frontier: dict[int, Shape], level: int) -> dict[int, Shape]:
        frontier = {node: children for node, children in frontier.items() if children}
        q = growth.compute_and_store_draft_probabilities(list(frontier)) if frontier else None
        if q is None:
            return {}
        rows = growth.sampling.draw_without_replacement(
            q, max(map(len, frontier.values())), "draft", growth.position, level
        )
        return {
            growth.tree.record_drawn_child(node, *draw): grandchildren
            for (node, children), draws in zip(frontier.items(), rows, strict=True)
            for grandchildren, draw in zip(children, draws, strict=False)
        }


class SequoiaDynamicProgram:
    """The best trees of up to `nodes` nodes, root included, and up to `depth` levels below the root, by the paper's dynamic program.

    `acceptance[b]` is the probability that a node's b-th child is the first accepted one.
    `value[l][m]` is the expected number of tokens a round, bonus included, from the best subtree of at most m nodes and l levels below
    its top. `size[l][b][m]`: when m nodes are left for the children b, b + 1, ..., so many go to child b and what is below it.
    """

    def __init__(self, acceptance_by_rank: tuple[float, ...], max_nodes: int, max_levels: int):
        self.acceptance, self.nodes, self.depth = acceptance_by_rank, max_nodes, max_levels
        self.value, self.size = [[0.0] + [1.0] * max_nodes], [[]]
        for _ in range(max_levels):
            below, rest, sizes = self.value[-1], [0.0] * max_nodes, []
            for chance in reversed(acceptance_by_rank):
                best = [
                    max((chance * below[y] + rest[m - y], -y) for y in range(1, m + 1)) if m else (0.0, 0)
                    for m in range(max_nodes)
                ]
                rest = [value for value, _ in best]
                sizes.insert(0, [-y for _, y in best])
            self.value.append([0.0] + [1.0 + value for value in rest])
            self.size.append(sizes)

    def build_best_tree_shape(self, nodes: int, max_levels: int) -> Shape:
        """The best tree itself. It is smaller than `nodes` where depth and width hold fewer."""
        children, left = [], nodes - 1
        for sizes in self.size[max_levels]:
            if left == 0:
                break
            children.append(self.build_best_tree_shape(sizes[left], max_levels - 1))
            left -= sizes[left]
        return tuple(children)


cached_dynamic_program = cache(SequoiaDynamicProgram)


def choose_fastest_nodes_and_levels(program: SequoiaDynamicProgram, costs: Costs) -> tuple[int, int]:
    """The (nodes, levels) with the most expected tokens a second."""
    sizes = [(nodes, levels) for levels in range(1, program.depth + 1) for nodes in range(2, program.nodes + 1)]
    return max(sizes, key=lambda size: program.value[size[1]][size[0]] / costs.round_ms(*size))
