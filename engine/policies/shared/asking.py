"""Asking: a round's tree in the making, the one place where policies ask a drafter, and where its answer is checked.

A check takes a few microseconds. Without it a wrong answer would end in an error of the tensor library, or in nothing but bad guesses.
A policy that draws its guesses may decide from earlier draws whether to draw again. Every draw stays in the tree, because the
acceptance rules count on it.

On a device the host waits here for every level. Where that matters, `engine.policies.shared.growing_gpu` grows trees there instead.
"""

import math
from collections import Counter
from typing import Any

import torch

from engine.contracts import Drafter, Policy
from engine.policies.shared.ranking import NO_LAW, Shortlist, shortlist_by_shared_gumbel
from engine.sampling import Sampling
from engine.tree import DraftTree

READABLE = torch.float32, torch.float64  # by NumPy, whose maximum is quicker

Guess = tuple[int, float, float]  # a token, its score and its q
Candidate = tuple[float, int, int, int, float]  # a path's score, minus the guess's rank, its parent, token and q


class GrowingTree:
    """A `tree` that grows below the token `root_token`, which stands at `root_position`. Nodes that are asked about together are
    of one level.
    """

    def __init__(self, drafter: Drafter, root_token: int, root_position: int, sampling: Sampling):
        self.drafter, self.position, self.sampling = drafter, root_position, sampling
        self.tree = DraftTree.from_root_token(root_token)

    def validated_log_q(self, nodes: list[int], on_host: bool = False) -> torch.Tensor | None:
        """`Drafter.log_q`, validated: log-probabilities `[len(nodes), V]`, or None for no guess. With `on_host` they are copied there.

        Else only shape and type are checked on other devices than a CPU, because whoever reads a number makes the host wait.

        Raises `ValueError` for another shape or type, NaN, plus infinity and a row of minus infinity alone, which is no distribution.
        """
        log_q = self.drafter.log_q(self.tree, nodes)
        if log_q is None:
            return None
        if not isinstance(log_q, torch.Tensor):
            raise self.bad_answer_error(len(nodes), f"a {type(log_q).__name__}")
        if log_q.dim() != 2 or len(log_q) != len(nodes) or not log_q.shape[1] or not log_q.is_floating_point():
            raise self.bad_answer_error(len(nodes), f"{str(log_q.dtype).removeprefix('torch.')} {list(log_q.shape)}")
        if on_host:
            log_q = log_q.cpu()
        if not log_q.is_cpu:
            return log_q
        # Of NaN it is NaN
        most = log_q.detach().numpy().max(-1) if log_q.dtype in READABLE else log_q.amax(-1)
        if not math.isfinite(most.sum()):
            raise self.bad_answer_error(len(nodes), NO_LAW)
        return log_q

    def bad_answer_error(self, node_count: int, answer_description: str) -> ValueError:
        where = "one node" if node_count == 1 else f"{node_count} nodes"
        return ValueError(
            f"The {self.drafter.title} drafter answered {answer_description} when it was asked what follows {where}. Its "
            f"`log_q` must return float32 log-probabilities [{node_count}, V], with V the target's vocabulary, or None for no guess."
        )

    def is_stop_node(self, node: int) -> bool:
        """Whether the text ends with this node, so that nothing below it can be emitted. The root is part of the text."""
        return node > 0 and self.tree.tokens[node] in self.drafter.stop_ids

    # ---- favourites

    def shortlist_tokens_after(self, nodes: list[int], width: int) -> Shortlist | None:
        """`engine.policies.shared.ranking.shortlist_by_shared_gumbel` behind the nodes. None for no guess."""
        log_q, behind = self.validated_log_q(nodes), self.position + self.tree.depth[nodes[0]] + 1
        return None if log_q is None else shortlist_by_shared_gumbel(log_q, behind, width, self.sampling)

    def rank_guesses_after(self, nodes: list[int], width: int) -> list[list[Guess]]:
        """The `width` favourites behind every node, the best first. Empty for no guess."""
        found = self.shortlist_tokens_after(nodes, width)
        rows = zip(*(each.tolist() for each in found), strict=True) if found else ()
        return [list(zip(*row, strict=True)) for row in rows]

    def rank_candidates(self, nodes: list[int], width: int) -> list[Candidate]:
        """The `width` best guesses behind every node as candidates, the most probable path first."""
        return sorted(self.build_candidates(nodes, self.rank_guesses_after(nodes, width)), reverse=True)

    def build_candidates(self, nodes: list[int], guesses: list[list[Guess]]) -> list[Candidate]:
        """A candidate for every guess behind every node. Its score is that of the node's path times that of the guess."""
        return [
            (self.tree.score[node] * score, -rank, node, token, q)
            for node, row in zip(nodes, guesses, strict=False)
            for rank, (token, score, q) in enumerate(row)
        ]

    def add_candidate_nodes(self, candidates: list[Candidate]) -> list[int]:
        """Add these to the tree. Returns their nodes."""
        return [self.tree.add(node, token, score, q) for score, _, node, token, q in candidates]

    # ---- draws

    def compute_and_store_draft_probabilities(self, nodes: list[int]) -> torch.Tensor | None:
        """q `[n, V]` behind the nodes, on the host, from which their children are drawn; None for no guess. The tree keeps q."""
        log_q = self.validated_log_q(nodes, on_host=True)
        if log_q is None:
            return None
        q = self.sampling.draft_probabilities(log_q)
        self.tree.q_rows.update(zip(nodes, q, strict=True))
        return q

    def draw_and_add_children_independently(self, draws_by_node: dict[int, int]) -> Counter[int]:
        """Draw so many tokens behind every node, independently of each other. Returns how often each of the new nodes was drawn."""
        nodes = list(draws_by_node)
        q = self.compute_and_store_draft_probabilities(nodes) if nodes else None
        if q is None:
            return Counter()
        level = self.tree.depth[nodes[0]] + 1
        rows = self.sampling.draw_with_replacement(q, list(draws_by_node.values()), "draft", self.position, level)
        return Counter(
            self.tree.record_drawn_child(node, *draw) for node, row in zip(nodes, rows, strict=True) for draw in row
        )


class LevelByLevelPolicy(Policy):
    """A policy that grows its tree one level after another."""

    # The first frontier, where it is another than a list of the root: nodes, or a dict with nodes as keys
    first_frontier: list[int] | dict[int, Any] | None = None

    def grow(
        self, drafter: Drafter, root_token: int, root_position: int, sampling: Sampling, max_levels: int
    ) -> DraftTree:
        growth = GrowingTree(drafter, root_token, root_position, sampling)
        frontier, levels = self.first_frontier or [0], min(self.depth, max_levels)
        for level in range(1, levels + 1):
            frontier = self.add_level_below(growth, frontier, level)
            going_on = [node for node in frontier if not growth.is_stop_node(node)]
            frontier = {node: frontier[node] for node in going_on} if isinstance(frontier, dict) else going_on
            if not frontier:
                break
        return growth.tree

    def add_level_below(self, growth: GrowingTree, frontier: Any, level: int) -> Any:
        """Add this level below the frontier. Returns the next frontier; where that is empty, the tree is done.

        No node of the frontier ends the text.
        """
        raise NotImplementedError
