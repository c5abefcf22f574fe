"""Asking: a round's tree in the making, the one place where policies ask a drafter, and where its answer is checked.

A check takes a few microseconds. Without it a wrong answer would end in an error of the tensor library, or in nothing but bad guesses.
A policy that draws its guesses may decide from earlier draws whether to draw again. Every draw stays in the tree, because the
acceptance rules count on it.

On a device the host waits once for several levels, where it would wait for each. To draft the next level, the device picks by itself
the nodes that the policy may ask about. The policy then asks level by level, as ever, and finds the answers here. What it asks for and
is not here is drafted then, so no tree depends on what was picked.
"""

import math
from collections import Counter
from collections.abc import Callable
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch

from engine.contracts import Drafter, Policy
from engine.forward.devices import widest
from engine.forward.uploads import uploaded
from engine.kernels.expansion import NO_CHANCES
from engine.kernels.ranking_compiled import SHORTLIST
from engine.policies.shared.ranking import NO_LAW, Shortlist, likely, on_host, ranked, read, shortlist, split
from engine.sampling import Sampling
from engine.tree import DraftTree

READABLE = torch.float32, torch.float64  # by NumPy, whose maximum is quicker
TOGETHER = 4  # levels that are read together at most; those that are not asked for were drafted in vain

Guess = tuple[int, float, float]  # a token, its score and its q
Candidate = tuple[float, int, int, int, float]  # a path's score, minus the guess's rank, its parent, token and q
Reading = Callable[[torch.Tensor], torch.Tensor]  # what a policy needs of a level's answers [n, V], as [n, columns]
Next = tuple[torch.Tensor, torch.Tensor]  # nodes that will be asked about: tokens [m], and their parents' rows [m]
Foresee = Callable[[torch.Tensor], Next | None]  # picks them from what was read of the level above


class Reach(NamedTuple):
    """How much of a tree may be asked about: this level and those below, `levels` in all, and the `beams` best nodes of each."""

    levels: int
    beams: int
    chances: np.ndarray = NO_CHANCES  # correct scores, as in `engine.kernels.expansion.Expansion`


class Growth:
    """A `tree` that grows below the token `root`, which stands at `position`. Nodes that are asked about together are of one level."""

    def __init__(self, drafter: Drafter, root: int, position: int, sampling: Sampling):
        self.drafter, self.position, self.sampling = drafter, position, sampling
        self.tree = DraftTree.rooted(root)
        self.at_once: tuple[torch.Tensor, int, Shortlist] | None = (
            None  # what was read of `Drafter.at_once`, and how wide
        )
        self.rows: dict[int, int] = {}  # by key, the rows of the nodes that were asked about last
        # The levels below these that are drafted and not yet asked for: answers, and each one's row by its parent's row and its token
        self.ahead: list[tuple[np.ndarray, dict[tuple[int, int], int]]] = []

    def behind(self, nodes: list[int]) -> int:
        """The position of the tokens behind the nodes."""
        return self.position + self.tree.depth[nodes[0]] + 1

    def guesses(self, nodes: list[int], to_draw: bool = False) -> torch.Tensor | None:
        """`Drafter.log_q`: log-probabilities `[len(nodes), V]`, or None for no guess.

        What is `to_draw` from comes to the host, once. Else only shape and type are checked on other devices than a CPU, because
        whoever reads a number makes the host wait.

        Raises `ValueError` for another shape or type, for NaN and for plus infinity. A row of minus infinity alone is refused too,
        because it is no distribution. Minus infinity for some tokens rules them out.
        """
        log_q = self.drafter.log_q(self.tree, nodes)
        if log_q is None:
            return None
        if not isinstance(log_q, torch.Tensor):
            raise self.refused(len(nodes), f"a {type(log_q).__name__}")
        if log_q.dim() != 2 or len(log_q) != len(nodes) or not log_q.shape[1] or not log_q.is_floating_point():
            raise self.refused(len(nodes), f"{str(log_q.dtype).removeprefix('torch.')} {list(log_q.shape)}")
        if to_draw:
            log_q = log_q.cpu()
        if not log_q.is_cpu:
            return log_q
        # Of NaN it is NaN
        most = log_q.detach().numpy().max(-1) if log_q.dtype in READABLE else log_q.amax(-1)
        if not math.isfinite(most.sum()):
            raise self.refused(len(nodes), NO_LAW)
        return log_q

    def refused(self, count: int, answer: str) -> ValueError:
        where = "one node" if count == 1 else f"{count} nodes"
        return ValueError(
            f"The {self.drafter.title} drafter answered {answer} when it was asked what follows {where}. "
            f"Its `log_q` must return float32 log-probabilities [{count}, V], with V the target's vocabulary, or None for no guess."
        )

    def is_end(self, node: int) -> bool:
        """Whether the text ends with this node, so that nothing below it can be emitted. The root is part of the text."""
        return node > 0 and self.tree.tokens[node] in self.drafter.stop_ids

    # ---- favourites

    def shortlists(self, nodes: list[int], width: int, reach: Reach | None = None) -> Shortlist | None:
        """`engine.policies.shared.ranking.shortlist` behind the nodes. None for no guess.

        On a device levels are read together: those that the drafter guessed at once, and those that it drafts ahead within the `reach`.
        """
        if (found := self.answered(nodes)) is not None:
            return split(found)
        log_q, position = self.guesses(nodes), self.behind(nodes)
        if log_q is None:
            return None
        together = None if log_q.is_cpu else self.drafter.at_once
        if together is None:
            if log_q.is_cpu or reach is None:
                return shortlist(log_q, position, width, self.sampling)
            return self.ranked_ahead(log_q, nodes, width, reach)
        level = self.tree.depth[nodes[0]]
        wide = max(width, SHORTLIST)  # below that the scores are the same, so one copy serves all widths
        if self.at_once is None or self.at_once[0] is not together or self.at_once[1] != wide:
            positions = [position - level + each for each in range(len(together))]
            self.at_once = together, wide, read(together, positions, wide, self.sampling)
        tokens, scores, q = (each[level : level + 1, :width].repeat(len(nodes), 0) for each in self.at_once[2])
        return tokens, scores, q

    def favourites(self, nodes: list[int], width: int, reach: Reach | None = None) -> list[list[Guess]]:
        """The `width` favourites behind every node, the best first. Empty for no guess."""
        found = self.shortlists(nodes, width, reach)
        rows = zip(*(each.tolist() for each in found), strict=True) if found else ()
        return [list(zip(*row, strict=True)) for row in rows]

    def candidates(self, nodes: list[int], width: int, reach: Reach | None = None) -> list[Candidate]:
        """The same, the likeliest path first."""
        found = (
            (self.tree.score[node] * score, -rank, node, token, q)
            for node, row in zip(nodes, self.favourites(nodes, width, reach), strict=False)
            for rank, (token, score, q) in enumerate(row)
        )
        return sorted(found, reverse=True)

    def add(self, found: list[Candidate]) -> list[int]:
        """Add these to the tree. Returns their nodes."""
        return [self.tree.add(node, token, score, q) for score, _, node, token, q in found]

    # ---- draws

    def drawn_from(self, nodes: list[int], following: Foresee | None = None) -> torch.Tensor | None:
        """q `[n, V]` behind the nodes, on the host, from which their children are drawn; None for no guess. The tree keeps q.

        On a device a policy that foresees its draws has several levels read together. `following(q)` foresees the level below the last
        one; None when there is none. The host draws for itself, so what the device foresees counts for nothing else.
        """
        answer, draft = self.answered(nodes), self.sampling.draft_probabilities
        if answer is not None:
            q = torch.from_numpy(answer)
        else:
            log_q = self.guesses(nodes, to_draw=following is None)
            if log_q is None:
                return None
            if following is None or log_q.is_cpu:
                q = draft(log_q)
            else:
                q = torch.from_numpy(self.drafted_ahead(log_q, nodes, TOGETHER, draft, following))
        self.tree.q_rows.update(zip(nodes, q, strict=True))
        return q

    def draw(self, counts: dict[int, int]) -> Counter[int]:
        """Draw so many tokens behind every node, independently of each other. Returns how often each of the new nodes was drawn."""
        nodes = list(counts)
        q = self.drawn_from(nodes) if nodes else None
        if q is None:
            return Counter()
        level = self.tree.depth[nodes[0]] + 1
        rows = self.sampling.repeated(q, list(counts.values()), "draft", self.position, level)
        return Counter(self.tree.draw(node, *draw) for node, draws in zip(nodes, rows, strict=True) for draw in draws)

    # ---- levels that are drafted before they are asked for

    def answered(self, nodes: list[int]) -> np.ndarray | None:
        """What was drafted ahead behind the nodes, `[n, columns]`. None where one is not there, and then all the rest is dropped."""
        if not self.ahead:
            return None
        tree, ((answers, known), *others) = self.tree, self.ahead
        self.ahead = []
        asked = [(self.rows.get(tree.keys[tree.parents[node]], -1), tree.tokens[node]) for node in nodes]
        if not all(each in known for each in asked):
            return None
        rows = [known[each] for each in asked]
        self.drafter.drafted(tree, nodes, rows)
        self.rows, self.ahead = {tree.keys[node]: row for node, row in zip(nodes, rows, strict=True)}, others
        return answers[rows]

    def ranked_ahead(self, log_q: torch.Tensor, nodes: list[int], width: int, reach: Reach) -> Shortlist:
        """`shortlist` of `log_q [n, V]` behind the nodes. The levels below wait in `ahead`."""
        sampling, count, device = self.sampling, max(1, min(reach.levels, TOGETHER)), log_q.device
        noises: Any = repeat(None)
        if not sampling.greedy:
            positions = list(range(self.behind(nodes), self.behind(nodes) + count))
            noises = iter(sampling.noise.rows(positions, log_q.shape[-1]).to(device))
        score, chances = uploaded([self.tree.score[node] for node in nodes], device), uploaded(reach.chances, device)

        def ranking(log_q: torch.Tensor) -> torch.Tensor:
            found = ranked(sampling.scaled(log_q), next(noises), width)
            return torch.cat([each.to(widest(device)) for each in found], -1)

        def best(found: torch.Tensor) -> Next:
            nonlocal score
            tokens, scores, _ = found.tensor_split(3, -1)
            paths = (score[:, None] * likely(scores, chances)).flatten()
            places = paths.sort(descending=True, stable=True).indices[: reach.beams].sort().values
            score = paths[places]
            return tokens.flatten()[places].long(), places // tokens.shape[1]

        return split(self.drafted_ahead(log_q, nodes, count, ranking, best))

    def drafted_ahead(
        self, log_q: torch.Tensor, nodes: list[int], count: int, reading: Reading, foresee: Foresee
    ) -> np.ndarray:
        """What `reading` reads of `log_q [n, V]` behind the nodes, `[n, columns]` on the host. Up to `count` levels are drafted for it.

        `foresee` picks the next level from what was read of one. Those levels wait in `ahead`. Raises `ValueError` for rows that are
        no distributions.
        """
        above = tokens = torch.zeros(len(nodes), dtype=torch.long, device=log_q.device)
        found: list[torch.Tensor] = []
        while True:
            numbers = reading(log_q)
            # whole numbers below 2^24 are exact
            found.append(torch.cat([numbers, above[:, None].to(numbers.dtype), tokens[:, None].to(numbers.dtype)], -1))
            foreseen = foresee(numbers) if len(found) < count else None
            below = None if foreseen is None else self.drafter.deeper(*foreseen)
            if foreseen is None or below is None:
                break
            (tokens, above), log_q = foreseen, below
        first, *others = np.split(on_host(torch.cat(found)), np.cumsum([len(each) for each in found])[:-1])
        self.rows = {self.tree.keys[node]: row for row, node in enumerate(nodes)}
        for each in others:
            ends = map(tuple, each[:, -2:].astype(np.int64).tolist())
            self.ahead.append((each[:, :-2], {end: row for row, end in enumerate(ends)}))
        return first[:, :-2]


class LevelByLevel(Policy):
    """A policy that grows its tree one level after another."""

    start: Any = (
        None  # the first frontier, if it is another than a list of the root: nodes, or a dict with nodes as keys
    )

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        growth, frontier, levels = Growth(drafter, root, position, sampling), self.start or [0], min(self.depth, room)
        for level in range(1, levels + 1):
            frontier = self.level(growth, frontier, level, levels)
            going_on = [node for node in frontier if not growth.is_end(node)]
            frontier = {node: frontier[node] for node in going_on} if isinstance(frontier, dict) else going_on
            if not frontier:
                break
        return growth.tree

    def level(self, growth: Growth, frontier: Any, level: int, levels: int) -> Any:
        """Add the `level` of `levels` below the frontier. Returns the next frontier; where that is empty, the tree is done.

        No node of the frontier ends the text.
        """
        raise NotImplementedError
