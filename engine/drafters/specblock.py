"""SpecBlock drafter: one forward drafts a block of K dependent positions. Further blocks go on from any of its nodes.

A round's first block starts at the root. A node has offset c in a block when position c - 1 predicted it; position c then answers for
it. At offset K, or where a policy asks for it, a new block starts from the drafter's own state there. All new blocks of a level take
one forward together.

Invariant: between rounds the cache holds only rows of stream entries, made from the target's true features. They end just before the
first token of `pending`. Drafted rows are thrown away.
"""

from dataclasses import dataclass
from typing import Any

import torch

from engine.contracts import RANK_HEAD, Features
from engine.drafters.parallel import ParallelDrafter
from engine.forward.cache import additive
from engine.forward.uploads import uploaded
from engine.tree import LARGEST_TREE, DraftTree


@dataclass(eq=False)
class DraftedBlock:
    """A drafted block: `states [K, H]` and `log_q [K, V]`.

    `columns` are the cache columns of its path in earlier blocks, then its own K, all counted from the root's. `buckets`, one for each
    position, are filled in when they are asked for.
    """

    states: torch.Tensor
    log_q: torch.Tensor
    columns: list[int]
    buckets: list[int] | None = None


class SpecBlockDrafter(ParallelDrafter):
    title = "SpecBlock"
    about = "A small net that guesses a block of several depths in one forward."
    source = "SpecBlock"
    offers = frozenset({RANK_HEAD})
    takes = "specblock"
    blocks = LARGEST_TREE

    def forget(self) -> None:
        self.stream = self.cache.rows
        self.places: dict[int, tuple[DraftedBlock, int]] = {}  # by node key: the block and the position that answer it

    def answer(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return states, super().answer(states)

    def open_first(self) -> None:
        """Draft the root's block. The same forward reads the entries committed since the last round."""
        states, log_q = self.read(self.pending, self.features, self.depth - 1)
        self.stream, self.cache.rows = self.cache.rows, self.cache.rows + self.depth - 1
        self.places[0] = DraftedBlock(states, log_q, list(range(self.depth))), 0
        self.pending, self.features, self.forwards = [], self.features[:0], self.forwards + 1

    @torch.inference_mode()
    def restart(self, tree: DraftTree, nodes: list[int]) -> None:
        """Start new blocks at these nodes, in one forward. From now on each node's own block answers for it. Not for the root."""
        count, root = self.depth, self.stream - 1  # the root's row is the first that the mask is about
        start = self.cache.rows - root
        visible = torch.zeros(len(nodes) * count, start + len(nodes) * count, dtype=torch.bool)
        visible[:, start:] = torch.block_diag(*[torch.ones(count, count).tril_()] * len(nodes))
        conditions, columns = [], []
        for first, node in zip(range(0, len(visible), count), nodes, strict=True):
            block, offset = self.place(tree, node)
            seen = block.columns[: len(block.columns) - count + offset]
            visible[first : first + count, seen] = True
            conditions.append(block.states[offset - 1])
            columns.append([*seen, *range(start + first, start + first + count)])
        tokens = [tree.tokens[node] for node in nodes]
        positions = [self.first + root + tree.depth[node] + k for node in nodes for k in range(count)]
        asked = torch.stack(conditions), tokens, positions, visible
        found = self.net.compiled.go_on(self.cache, *asked) if self.net.compiled else self.go_on(*asked)
        self.forwards += 1
        for node, *parts in zip(nodes, *(each.split(count) for each in found), columns, strict=True):
            self.places[tree.keys[node]] = DraftedBlock(*parts), 0

    def go_on(self, conditions: torch.Tensor, tokens: list[int], positions: list[int], visible: torch.Tensor) -> Any:
        """The `answer` of n blocks that start from `conditions [n, H]`; `visible` bool `[n K, M]` is about the last M rows."""
        net, rows, device = self.net, self.cache.rows, self.net.embedding.device
        self.cache.room_for(len(positions))
        self.cache.rows += len(positions)
        x, before = net.blocks(conditions, uploaded(tokens, device))
        mask = uploaded(additive(visible, self.cache.rows), device)
        return self.answer(net(x[None], before, uploaded(positions, device), mask, kv=self.cache.kv, rows=rows)[0])

    def place(self, tree: DraftTree, node: int) -> tuple[DraftedBlock, int]:
        """The node's block and its offset there: 0 for the token that the block starts at, K at most."""
        key = tree.keys[node]
        if key not in self.places:
            block, offset = self.place(tree, tree.parents[node])
            self.places[key] = block, offset + 1
        return self.places[key]

    def answering(self, tree: DraftTree, nodes: list[int]) -> list[tuple[DraftedBlock, int]]:
        """The block and position that predict the token after each node. Starts new blocks where old ones end."""
        if 0 not in self.places:
            self.open_first()
        ended = [node for node in nodes if self.place(tree, node)[1] == self.depth]
        if ended:
            self.restart(tree, ended)
        return [self.place(tree, node) for node in nodes]

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        return torch.stack([block.log_q[offset] for block, offset in self.answering(tree, nodes)])

    @torch.inference_mode()
    def buckets(self, tree: DraftTree, nodes: list[int]) -> list[int]:
        found = self.answering(tree, nodes)
        asked = list({id(block): block for block, _ in self.places.values() if block.buckets is None}.values())
        if asked:
            states, log_q = torch.stack([each.states for each in asked]), torch.stack([each.log_q for each in asked])
            for block, said in zip(asked, self.net.ranks(states, log_q).argmax(-1).tolist(), strict=True):
                block.buckets = said
        return [block.buckets[offset] for block, offset in found]  # type: ignore[index]  # filled in above

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        self.cache.rows = self.stream
        super().commit(tree, path, bonus, features)
