"""Asking: the one place where policies ask a drafter, and where its answer is checked. Knows shapes and numbers.

A check takes a few microseconds. Without it a wrong answer would end in an error of the tensor library, or in nothing but bad guesses.
A policy that draws its guesses may decide from earlier draws whether to draw again. Every draw stays in the tree, because the
acceptance rules count on it.
"""

import math
from collections.abc import Callable

import torch

from engine.contracts import Drafter
from engine.kernels.ranking_compiled import SHORTLIST
from engine.policies.shared.ahead import Reach, answered, drafted_ahead
from engine.policies.shared.drawn_ahead import Next, drawn_ahead
from engine.policies.shared.ranking import NO_LAW, Shortlist, read, shortlist, split
from engine.sampling import Sampling
from engine.tree import DraftTree

READABLE = torch.float32, torch.float64  # by NumPy, whose maximum is quicker


def guesses(drafter: Drafter, tree: DraftTree, nodes: list[int], to_draw: bool = False) -> torch.Tensor | None:
    """`drafter.log_q(tree, nodes)`: log-probabilities `[len(nodes), V]`, or None for no guess.

    What is `to_draw` from comes to the host, once. Else only shape and type are checked on other devices than a CPU, because whoever
    reads a number makes the host wait.

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
    if to_draw:
        log_q = log_q.cpu()
    if not log_q.is_cpu:
        return log_q
    # Of NaN it is NaN
    most = log_q.detach().numpy().max(-1) if log_q.dtype in READABLE else log_q.amax(-1)
    if not math.isfinite(most.sum()):
        raise refused(drafter, len(nodes), NO_LAW)
    return log_q


def shortlists(
    drafter: Drafter,
    tree: DraftTree,
    nodes: list[int],
    position: int,
    width: int,
    sampling: Sampling,
    reach: Callable[[], Reach] | None = None,
) -> Shortlist | None:
    """`engine.policies.shared.ranking.shortlist` behind nodes of one level, for the tokens at `position`. None for no guess.

    On a device levels are read together: those that the drafter guessed at once, and those that it drafts ahead within `reach()`.
    """
    if (found := answered(drafter, tree, nodes)) is not None:
        return split(found)
    log_q = guesses(drafter, tree, nodes)
    if log_q is None:
        return None
    together = None if log_q.is_cpu else drafter.at_once
    if together is None:
        if log_q.is_cpu or reach is None:
            return shortlist(log_q, position, width, sampling)
        return drafted_ahead(drafter, log_q, tree, nodes, position, width, sampling, reach())
    level = tree.depth[nodes[0]]
    wide = max(width, SHORTLIST)  # below that the scores are the same, so one copy serves all widths
    asked = (position - level, wide)
    if drafter.last_read is None or drafter.last_read[0] is not together or drafter.last_read[1] != asked:
        positions = [position - level + each for each in range(len(together))]
        drafter.last_read = together, asked, read(together, positions, wide, sampling)
    tokens, scores, q = (each[level : level + 1, :width].repeat(len(nodes), 0) for each in drafter.last_read[2])
    return tokens, scores, q


Candidate = tuple[float, int, int, int, float]  # a path's score, minus the guess's rank, its parent, token and q


def candidates(
    drafter: Drafter,
    tree: DraftTree,
    nodes: list[int],
    position: int,
    width: int,
    sampling: Sampling,
    reach: Callable[[], Reach] | None = None,
) -> list[Candidate] | None:
    """The `width` favourites behind every node, for the tokens at `position`; the likeliest path first. None for no guess."""
    ranking = shortlists(drafter, tree, nodes, position, width, sampling, reach)
    if ranking is None:
        return None
    found = (
        (tree.score[node] * score, -rank, node, token, q)
        for node, *row in zip(nodes, *(each.tolist() for each in ranking), strict=True)
        for rank, (token, score, q) in enumerate(zip(*row, strict=True))
    )
    return sorted(found, reverse=True)


def drawn_from(
    drafter: Drafter,
    tree: DraftTree,
    nodes: list[int],
    sampling: Sampling,
    following: Callable[[torch.Tensor], Next | None] | None = None,
) -> torch.Tensor | None:
    """q `[n, V]` behind the nodes, on the host, from which their children are drawn; None for no guess. The tree keeps q.

    On a device a policy that foresees its draws, by `following`, has several levels read together.
    """
    found = answered(drafter, tree, nodes)
    if found is not None:
        q = torch.from_numpy(found)
    else:
        log_q = guesses(drafter, tree, nodes, to_draw=following is None)
        if log_q is None:
            return None
        if following is None or log_q.is_cpu:
            q = sampling.draft_probabilities(log_q)
        else:
            q = drawn_ahead(drafter, log_q, tree, nodes, sampling, following)
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
