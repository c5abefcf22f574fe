"""K-ary policy: the top-k children everywhere, down to a fixed depth (tree-based speculative decoding for nanoGPT)."""

from engine.contracts import Counterpart, Drafter, Policy
from engine.policies.shared.asking import guesses
from engine.policies.shared.ranking import favourites, most_probable
from engine.record.calibration import Calibration
from engine.sampling import Sampling
from engine.tree import LARGEST_TREE, DraftTree

FULL = ((1, 2), (1, 4), (2, 2), (1, 7), (2, 3), (3, 2))  # depths and widths worth a try


class Kary(Policy):
    title = "full tree"
    about = "A full tree: the same number of branches everywhere."
    source = "tree-based speculative decoding for nanoGPT"
    counterpart = Counterpart("full tree")
    proposals = frozenset({"ranked", "top"})

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: Calibration | None = None):
        """Raises `ValueError` when depth and width ask for more than `LARGEST_TREE` nodes; the node budget is not used."""
        size = full(depth, width)
        if size > LARGEST_TREE:
            raise ValueError(
                f"A full tree of depth {depth} and width {width} has {size:,} nodes, over the limit of {LARGEST_TREE}. "
                "Choose a smaller depth or width (depth 3 and width 2 make 15), or the system tree, which keeps to a node budget."
            )
        self.depth, self.width, self.top = depth, width, proposal == "top"

    @classmethod
    def shapes(cls, width: int) -> list[tuple[int, int, int]]:
        return [(depth, wide, full(depth, wide)) for depth, wide in FULL]

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, frontier = DraftTree.rooted(root), [0]
        for level in range(1, min(self.depth, room) + 1):
            log_q = guesses(drafter, tree, frontier, to_draw=self.top)
            if log_q is None:
                break
            if self.top:
                ranking, q_rows = most_probable(log_q, self.width, sampling)
                tree.q_rows.update(zip(frontier, q_rows, strict=True))
            else:
                ranking = favourites(log_q, position + level, self.width, sampling)
            rows = zip(frontier, *ranking, strict=True)
            frontier = [
                tree.add(node, token, tree.score[node] * score, probability)
                for node, tokens, scores, q in rows
                for token, score, probability in zip(tokens, scores, q, strict=True)
            ]
        return tree


def full(depth: int, width: int) -> int:
    """The nodes of a full tree."""
    return sum(width**level for level in range(depth + 1))
