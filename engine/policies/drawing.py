"""Drawing: the distribution that guesses are drawn from. Shared by the policies that sample instead of ranking.

A policy may decide from earlier draws whether to draw again. Every draw stays in the tree, because the acceptance rules count on it.
"""

import torch

from engine.contracts import Drafter
from engine.policies.asking import guesses
from engine.sampling import Sampling
from engine.tree import DraftTree


def ask(drafter: Drafter, tree: DraftTree, nodes: list[int], sampling: Sampling) -> torch.Tensor | None:
    """q `[n, V]` behind the nodes, from which their children are drawn; None when the drafter has no guess. The tree keeps q."""
    log_q = guesses(drafter, tree, nodes)
    if log_q is None:
        return None
    q = sampling.draft_probabilities(log_q)
    tree.q_rows.update(zip(nodes, q, strict=True))
    return q
