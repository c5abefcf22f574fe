"""Drawing: the distribution that guesses are drawn from. Shared by the policies that sample instead of ranking.

What was drawn stays in the tree. A policy may decide whether to draw once more, from what it has seen so far; it never leaves out what
it drew, for the acceptance rules count on every draw.
"""

import torch

from engine.contracts import Drafter
from engine.sampling import Sampling
from engine.tree import DraftTree


def ask(drafter: Drafter, tree: DraftTree, nodes: list[int], sampling: Sampling) -> torch.Tensor | None:
    """q `[n, V]` behind the nodes, noted in the tree as what their children are drawn from; None when the drafter has no guess."""
    log_q = drafter.log_q(tree, nodes)
    if log_q is None:
        return None
    q = sampling.draft_probabilities(log_q)
    tree.q_rows.update(zip(nodes, q, strict=True))
    return q
