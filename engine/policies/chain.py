"""Chain policy: K tokens in a row, the classic draft (Leviathan et al. 2023; Chen et al. 2023)."""

import torch

from engine.calibration import Calibration
from engine.drafters import Drafter
from engine.policies.ranking import favourites
from engine.sampling import Sampling
from engine.tree import DraftTree


class Chain:
    proposals = frozenset({"ranked", "drawn"})

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: Calibration | None = None):
        self.depth, self.proposal = depth, proposal

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree = DraftTree.rooted(root)
        for level in range(1, min(self.depth, room) + 1):
            node = level - 1
            log_q = drafter.log_q(tree, [node])
            if log_q is None:
                break
            if self.proposal == "drawn":
                token, q = self.drawn(tree, node, log_q[0], position, sampling)
            else:
                [[token]], _, [[q]] = favourites(log_q, position + level, 1, sampling)
            tree.add(node, token, tree.score[node] * q, q)
        return tree

    def drawn(
        self, tree: DraftTree, node: int, log_q: torch.Tensor, position: int, sampling: Sampling
    ) -> tuple[int, float]:
        """A token sampled from the draft distribution, which stays in the tree for the acceptance rule."""
        row = sampling.probabilities(log_q)
        token = sampling.choose(row, "draft", position, tree.depth[node])
        tree.q_rows[node] = row
        return token, float(row[token])
