"""Asking: the one place where policies ask a drafter, and where its answer is checked. Knows shapes and numbers.

A check takes a few microseconds. Without it a wrong answer would end in an error of the tensor library, or in nothing but bad guesses.
A policy that draws its guesses may decide from earlier draws whether to draw again. Every draw stays in the tree, because the
acceptance rules count on it.
"""

import math

import torch

from engine.contracts import Drafter
from engine.policies.shared.ranking import favourites
from engine.sampling import Sampling
from engine.tree import DraftTree

READABLE = torch.float32, torch.float64  # by NumPy, whose maximum is quicker


def guesses(drafter: Drafter, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
    """`drafter.log_q(tree, nodes)`: log-probabilities `[len(nodes), V]`, or None for no guess.

    Raises `ValueError` for another shape or type, for NaN and for plus infinity. A row of minus infinity alone is refused too, because
    it is no distribution. Minus infinity for some tokens rules them out.
    """
    log_q = drafter.log_q(tree, nodes)
    if log_q is None:
        return None
    if not isinstance(log_q, torch.Tensor):
        raise refused(drafter, len(nodes), f"a {type(log_q).__name__}")
    if log_q.dim() != 2 or len(log_q) != len(nodes) or not log_q.shape[1] or not log_q.is_floating_point():
        raise refused(drafter, len(nodes), f"{str(log_q.dtype).removeprefix('torch.')} {list(log_q.shape)}")
    # Of NaN it is NaN
    most = log_q.detach().numpy().max(-1) if log_q.is_cpu and log_q.dtype in READABLE else log_q.amax(-1)
    if not math.isfinite(most.sum()):
        raise refused(drafter, len(nodes), "a row with NaN, with plus infinity, or with minus infinity for every token")
    return log_q


Candidate = tuple[float, int, int, int, float]  # a path's score, minus the guess's rank, its parent, token and q


def candidates(
    drafter: Drafter, tree: DraftTree, nodes: list[int], position: int, width: int, sampling: Sampling
) -> list[Candidate] | None:
    """The `width` favourites behind every node, for the tokens at `position`; the likeliest path first. None for no guess."""
    log_q = guesses(drafter, tree, nodes)
    if log_q is None:
        return None
    found = (
        (tree.score[node] * score, -rank, node, token, q)
        for node, *row in zip(nodes, *favourites(log_q, position, width, sampling), strict=True)
        for rank, (token, score, q) in enumerate(zip(*row, strict=True))
    )
    return sorted(found, reverse=True)


def drawn_from(drafter: Drafter, tree: DraftTree, nodes: list[int], sampling: Sampling) -> torch.Tensor | None:
    """q `[n, V]` behind the nodes, from which their children are drawn; None when the drafter has no guess. The tree keeps q."""
    log_q = guesses(drafter, tree, nodes)
    if log_q is None:
        return None
    q = sampling.draft_probabilities(log_q)
    tree.q_rows.update(zip(nodes, q, strict=True))
    return q


def own_tree(drafter: Drafter, root: int, levels: int, width: int, nodes: int) -> DraftTree:
    """`drafter.own_tree`. Raises `ValueError` for a tree that has another root, too many nodes or too many levels."""
    tree = drafter.own_tree(root, levels, width, nodes)
    if tree.tokens[0] != root or len(tree) > nodes or max(tree.depth) > levels:
        raise ValueError(
            f"The {drafter.title} drafter laid out a tree of {len(tree)} nodes and {max(tree.depth)} levels below token "
            f"{tree.tokens[0]:,}. Its `own_tree` must return one of at most {nodes} nodes and {levels} levels below token {root:,}."
        )
    return tree


def bucket(drafter: Drafter, tree: DraftTree, node: int, kinds: int) -> int:
    """The rank head's bucket behind the node. Raises `ValueError` when it is no number from 0 to `kinds` - 1."""
    found = drafter.buckets(tree, [node])
    if not isinstance(found, list) or len(found) != 1 or found[0] not in range(kinds):
        raise ValueError(
            f"The {drafter.title} drafter answered {found!r} when it was asked for the bucket behind one node. "
            f"Its `buckets` must return a list with one whole number from 0 to {kinds - 1}."
        )
    return found[0]


def refused(drafter: Drafter, count: int, answer: str) -> ValueError:
    where = "one node" if count == 1 else f"{count} nodes"
    return ValueError(
        f"The {drafter.title} drafter answered {answer} when it was asked what follows {where}. "
        f"Its `log_q` must return float32 log-probabilities [{count}, V], with V the target's vocabulary, or None for no guess."
    )
