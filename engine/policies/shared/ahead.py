"""Ahead: a drafter's levels that are drafted on its device before they are asked for, and read together. Knows trees and numbers.

The host waits once for several levels, where it would wait for each. To draft the next level, the device picks by itself the nodes that
the policy may ask about. The policy then asks level by level, as ever, and finds the answers here. What it asks for and is not here is
drafted then, so no tree depends on what was picked.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from engine.contracts import Drafter
from engine.forward.devices import widest
from engine.forward.uploads import uploaded
from engine.kernels.expansion import BINS, NO_CHANCES, OTHER, TRUST
from engine.policies.shared.ranking import Shortlist, on_host, ranked, split
from engine.sampling import Sampling
from engine.tree import DraftTree

TOGETHER = 4  # levels that are read together at most; those that are not asked for were drafted in vain


@dataclass(frozen=True)
class Reach:
    """How much of a tree a policy may ask about: this level and below it `levels` in all, and the `beams` best nodes of each.

    `chances` correct scores as in `engine.kernels.expansion.Expansion`.
    """

    levels: int
    beams: int
    chances: np.ndarray = field(default_factory=lambda: NO_CHANCES)


class Level:
    """A level that was drafted: the answers, and the row of every node by the row of its parent and its token."""

    def __init__(self, numbers: np.ndarray):
        """`numbers [n, columns + 2]` are the answer behind a node, its parent's row and its token."""
        self.answers = numbers[:, :-2]
        ends = enumerate(numbers[:, -2:].astype(np.int64).tolist())
        self.rows = {(above, token): row for row, (above, token) in ends}


class Ahead:
    """The levels of one round that are drafted and not yet asked for."""

    def __init__(self, tree: DraftTree, nodes: list[int], levels: list[Level]):
        """`nodes` were asked about last, and `levels` follow them."""
        self.rows, self.levels = {tree.keys[node]: row for row, node in enumerate(nodes)}, levels

    def answers(self, drafter: Drafter, tree: DraftTree, nodes: list[int]) -> np.ndarray | None:
        """What was drafted behind nodes of the next level, `[n, columns]`; None when one of them is not there."""
        if not self.levels:
            return None
        level = self.levels[0]
        asked = [(self.rows.get(tree.keys[tree.parents[node]], -1), tree.tokens[node]) for node in nodes]
        if not all(each in level.rows for each in asked):
            return None
        rows = [level.rows[each] for each in asked]
        drafter.drafted(tree, nodes, rows)
        self.rows, self.levels = {tree.keys[node]: row for node, row in zip(nodes, rows, strict=True)}, self.levels[1:]
        return level.answers[rows]


def answered(drafter: Drafter, tree: DraftTree, nodes: list[int]) -> np.ndarray | None:
    """What was drafted ahead behind the nodes. None where nothing was, and then all that was drafted ahead is dropped."""
    found = drafter.ahead.answers(drafter, tree, nodes) if drafter.ahead is not None and nodes != [0] else None
    if found is None:
        drafter.ahead = None
    return found


def drafted_ahead(
    drafter: Drafter,
    log_q: torch.Tensor,
    tree: DraftTree,
    nodes: list[int],
    position: int,
    width: int,
    sampling: Sampling,
    reach: Reach,
) -> Shortlist:
    """`engine.policies.shared.ranking.shortlist` of `log_q [n, V]` behind the nodes. `Drafter.ahead` keeps the levels below.

    Raises `ValueError` for rows that are no distributions.
    """
    count = max(1, min(reach.levels, TOGETHER))
    noise = None
    if not sampling.greedy:
        noise = sampling.noise.rows(list(range(position, position + count)), log_q.shape[-1]).to(log_q.device)
    score, answer = uploaded([tree.score[node] for node in nodes], log_q.device), log_q
    chances, wide = uploaded(reach.chances, log_q.device), widest(log_q.device)
    above = chosen = torch.zeros(len(nodes), dtype=torch.long, device=log_q.device)
    found: list[torch.Tensor] = []
    while True:
        ranking = ranked(sampling.scaled(answer), None if noise is None else noise[len(found)], width)
        found.append(torch.cat([each.to(wide) for each in (*ranking, above[:, None], chosen[:, None])], -1))
        if len(found) == count:
            break
        paths = (score[:, None] * likely(ranking[1].to(wide), chances)).flatten()
        places = paths.sort(descending=True, stable=True).indices[: reach.beams].sort().values
        score, above, chosen = paths[places], places // ranking[0].shape[1], ranking[0].flatten()[places]
        below = drafter.deeper(chosen, above)
        if below is None:
            break
        answer = below
    return split(taken(drafter, tree, nodes, found))


def taken(drafter: Drafter, tree: DraftTree, nodes: list[int], found: list[torch.Tensor]) -> np.ndarray:
    """Brings the levels to the host, each as `Level` takes it. Returns the answers of the first, which are those behind the nodes."""
    ends = np.cumsum([len(each) for each in found])[:-1]
    first, *others = map(Level, np.split(on_host(torch.cat(found)), ends))
    drafter.ahead = Ahead(tree, nodes, others)
    return first.answers


def likely(scores: torch.Tensor, chances: torch.Tensor) -> torch.Tensor:
    """`engine.kernels.expansion.chance` of the `scores [n, width]` of a drafter's guesses, the first one of a row its favourite."""
    if not chances.numel():
        return scores
    kinds = torch.arange(scores.shape[1], device=scores.device).clamp(max=OTHER)
    cells = kinds * BINS + (scores * BINS).long().clamp(max=BINS - 1)
    true, all_ = (each.index_select(0, cells.flatten()).view_as(scores) for each in chances)
    return (true + TRUST * scores) / (all_ + TRUST)
