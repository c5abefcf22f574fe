"""`engine.policies.best_first` as tensors; held equal by tests/fast/test_equal_to_reference.py[rounds.best_first_gpu].

The tree grows over a draft model, in fixed shapes, without waiting for the host. A tree of `nodes` nodes has at most `nodes - 1`
nodes on a level, so every level drafts that many at once. The policy would not have expanded some of them, but its budget leaves
their children out. Dead nodes fill the shapes and have no living descendants.
"""

from dataclasses import dataclass, replace

import torch

from engine.forward.layer_ops import fitted
from engine.forward.runner_gpu import StaticForward
from engine.policies.best_first import LEAST_SCORE
from engine.policies.shared.ranking import ranked

DEAD = -1.0  # the score of a node that only fills a shape


@dataclass(frozen=True)
class DeviceTree:
    """A `DraftTree` as tensors `[N]`; dead nodes come last.

    - `tokens`, `parents`, `depth`: int64; the root's parent is -1
    - `score`: float64, `DEAD` for dead nodes
    - `q`: float32
    - `lineage`: bool `[N, N]`, which nodes each may attend to
    - `slots`: int64, the nodes' rows in the draft's cache, counted from the root's. Nothing is written for a leaf on the last level.
    """

    tokens: torch.Tensor
    parents: torch.Tensor
    depth: torch.Tensor
    score: torch.Tensor
    q: torch.Tensor
    lineage: torch.Tensor
    slots: torch.Tensor

    @classmethod
    def rooted(cls, root: torch.Tensor) -> "DeviceTree":
        """The tree of the token `root [1]` alone."""
        zero, one = torch.zeros_like(root), torch.ones_like(root)
        return cls(root, zero - 1, zero, one.double(), one.float(), one.bool()[None], zero)

    def kept(self, nodes: int) -> "DeviceTree":
        """The subtree of the `nodes` best nodes, in their order, dead ones last.

        It holds every kept node's parent, because scores do not grow along a path and ties go to the earlier node.
        """
        order = self.score[1:].sort(descending=True, stable=True).indices[: nodes - 1] + 1
        size = len(self.tokens)
        behind = torch.where(self.score.index_select(0, order) > 0, order, order + size).sort().values % size
        chosen = torch.cat([torch.zeros_like(order[:1]), behind])
        place = torch.zeros_like(self.parents).scatter(0, chosen, torch.arange(nodes, device=order.device))
        rows = {name: value.index_select(0, chosen) for name, value in vars(self).items()}
        parents = torch.cat([self.parents[:1], place.index_select(0, rows["parents"][1:])])
        return DeviceTree(**rows | {"parents": parents, "lineage": rows["lineage"].index_select(1, chosen)})


def best(scores: torch.Tensor, count: int) -> torch.Tensor:
    """The indices of the `count` highest of `scores [n]`, in ascending order. A tie goes to the earlier one."""
    return scores.sort(descending=True, stable=True).indices[:count].sort().values


class DeviceDraft:
    def __init__(
        self,
        forward: StaticForward,
        vocab: int,
        depth: int,
        width: int,
        nodes: int,
        stop_ids: frozenset[int] = frozenset(),
    ):
        """`vocab` is the number of the target's logits. A tree writes at most `size` rows behind the committed ones.

        Nothing grows below the tokens `stop_ids`.
        """
        self.forward, self.vocab, self.width = forward, vocab, min(width, vocab)
        self.levels, room = [], 1  # how many nodes each level drafts
        for _ in range(depth):
            room = min(nodes - 1, room * self.width)
            self.levels.append(room)
        self.size = 1 + sum(self.levels)
        self.nodes, self.depth = min(nodes, self.size), depth
        self.numbers = torch.arange(self.size, device=forward.runner.device)
        self.stop_ids = torch.tensor(sorted(stop_ids), dtype=torch.int64).to(forward.runner.device)

    def grow(
        self,
        previous: torch.Tensor,
        root: torch.Tensor,
        base: torch.Tensor,
        room: torch.Tensor,
        temperature: torch.Tensor,
        noise: torch.Tensor | None,
    ) -> DeviceTree:
        """A tree of at most `nodes` nodes and `room` levels below the token `root`.

        The root stands at position `base`, behind the token `previous`. All five are tensors of one number. `noise [>= depth, V]` is
        that of the positions behind the root, None when greedy.
        """
        parents, scores = self.numbers[:1], torch.ones(1, dtype=torch.float64, device=root.device)
        lineage, start = self.numbers[None] == 0, 1
        levels = [replace(DeviceTree.rooted(root), lineage=lineage)]
        log_q = self.first(previous, root, base)
        for level, count in enumerate(self.levels, 1):
            scaled = log_q if noise is None else log_q / temperature
            tokens, shares, q = ranked(scaled, None if noise is None else noise[level - 1], self.width)
            scores = (scores[:, None] * shares.double()).flatten()
            scores = scores.masked_fill((scores < LEAST_SCORE) | (room < level), DEAD)
            chosen = best(scores, count)
            above = chosen // self.width
            numbers = self.numbers[start : start + count]
            lineage = lineage.index_select(0, above) | (self.numbers == numbers[:, None])
            tokens, q = tokens.flatten().index_select(0, chosen), q.flatten().index_select(0, chosen)
            parents, scores = parents.index_select(0, above), scores.index_select(0, chosen)
            levels.append(DeviceTree(tokens, parents, torch.full_like(tokens, level), scores, q, lineage, numbers))
            parents, start = numbers, start + count
            scores = scores.masked_fill((tokens[:, None] == self.stop_ids).any(-1), DEAD)
            if level < self.depth:
                log_q = self.below(levels[-1], base)
        grown = {name: torch.cat([getattr(each, name) for each in levels]) for name in vars(levels[0])}
        return DeviceTree(**grown).kept(self.nodes)

    def first(self, previous: torch.Tensor, root: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
        """Log q `[1, V]` behind the root.

        The token before the root is computed again, because its row is missing when it was a leaf of the last tree. A text of one token
        has none before it, and the cache's last row takes what is written for it.
        """
        columns = self.forward.columns
        slots = torch.cat([torch.where(base > 0, base - 1, columns[-1:]), base])
        positions = torch.cat([(base - 1).clamp(min=0), base])
        logits, _ = self.forward(torch.cat([previous, root]), positions, slots, columns <= slots[:, None])
        return fitted(logits[1:], self.vocab)

    def below(self, level: DeviceTree, base: torch.Tensor) -> torch.Tensor:
        """Log q `[n, V]` behind the n nodes of a level. Their ancestors' rows are written already."""
        positions = torch.where(level.score > 0, base + level.depth, base)
        visible = self.forward.behind(base, level.lineage)
        logits, _ = self.forward(level.tokens, positions, base + level.slots, visible)
        return fitted(logits, self.vocab)
