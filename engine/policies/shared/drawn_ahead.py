"""Drawn ahead: levels whose nodes are drawn, drafted on a device before the host draws them. Knows q and random numbers.

The device makes the draws of the policy from the same random numbers, to know which nodes come next. Its draws count for nothing else:
the host draws for itself, and a node that the device did not foresee is drafted when it is asked for.
"""

from collections.abc import Callable

import torch

from engine.contracts import Drafter
from engine.forward.devices import widest
from engine.policies.shared.ahead import TOGETHER, taken
from engine.sampling import Sampling
from engine.tree import DraftTree

Next = tuple[
    torch.Tensor, torch.Tensor
]  # of a level's nodes that will be asked about: tokens [m], and their parents' rows [m]


def drawn_ahead(
    drafter: Drafter,
    log_q: torch.Tensor,
    tree: DraftTree,
    nodes: list[int],
    sampling: Sampling,
    following: Callable[[torch.Tensor], Next | None],
) -> torch.Tensor:
    """q `[n, V]` on the host from `log_q [n, V]` behind the nodes. `Drafter.ahead` keeps the levels below.

    `following(q)` foresees the level below the last one; None when there is none. Raises `ValueError` for rows that are no
    distributions.
    """
    above = tokens = torch.zeros(len(nodes), dtype=torch.long, device=log_q.device)
    found: list[torch.Tensor] = []
    while True:
        q = sampling.draft_probabilities(log_q)
        found.append(
            torch.cat([q, above[:, None].float(), tokens[:, None].float()], -1)
        )  # whole numbers below 2^24 are exact
        foreseen = following(q) if len(found) < TOGETHER else None
        below = None if foreseen is None else drafter.deeper(*foreseen)
        if foreseen is None or below is None:
            return torch.from_numpy(taken(drafter, tree, nodes, found))
        (tokens, above), log_q = foreseen, below


def foreseen_distinct(q: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The tokens `[n, most]` that `engine.sampling.successive` draws from `q [n, V]` by `uniform [n, most]`, up to rounding.

    Where that draws no more tokens, the rest means nothing. Waits for no device.
    """
    edges = q.to(widest(q.device)).cumsum(-1)
    starts = lengths = edges[:, :0]  # of the intervals that are taken, in [0, total)
    tokens = []
    for number in uniform.split(1, -1):
        ordered = starts.sort(-1)
        behind = lengths.gather(-1, ordered.indices)
        point = number * (edges[:, -1:] - lengths.sum(-1, keepdim=True))
        passed = point >= ordered.values - (behind.cumsum(-1) - behind)
        point = point + (behind * passed).sum(-1, keepdim=True)
        token = torch.searchsorted(edges, point, right=True).clamp(max=q.shape[-1] - 1)
        start = torch.where(token > 0, edges.gather(-1, (token - 1).clamp(min=0)), 0.0)
        starts, lengths = torch.cat([starts, start], -1), torch.cat([lengths, edges.gather(-1, token) - start], -1)
        tokens.append(token)
    return torch.cat(tokens, -1)
