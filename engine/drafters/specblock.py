"""SpecBlock drafter: one forward drafts a block of K dependent positions. Further blocks go on from any of its nodes.

A round's first block starts at the root. A node has offset c in a block when position c - 1 predicted it; position c then answers for
it. At offset K, or where a policy asks for it, a new block starts from the drafter's own state there. All new blocks of a level take
one forward together.

Drafted rows are thrown away after a round.
"""

from dataclasses import dataclass

import torch

from engine.contracts import RANK_HEAD, Features
from engine.drafters.parallel import Guesses, ParallelDrafter
from engine.forward.cache import additive_mask
from engine.forward.devices import upload
from engine.tree import LARGEST_TREE, DraftTree


@dataclass(eq=False)
class DraftedBlock:
    """A drafted block: `states [K, H]` and `log_q [K, V]`.

    `path_cache_columns` are the cache columns of its path in earlier blocks, then its own K, all counted from the root's.
    `rank_buckets`, one for each position, are filled in when they are asked for.
    """

    states: torch.Tensor
    log_q: torch.Tensor
    path_cache_columns: list[int]
    rank_buckets: list[int] | None = None


class SpecBlockDrafter(ParallelDrafter):
    title = "SpecBlock"
    about = "A small net that guesses a block of several depths in one forward."
    source = "SpecBlock"
    capabilities = frozenset({RANK_HEAD})
    required_resource = "specblock"
    max_guess_forwards_per_round = LARGEST_TREE

    def discard_draft(self) -> None:
        self.stream = self.cache.rows
        self.places: dict[int, tuple[DraftedBlock, int]] = {}  # by node key: the block and the position that answer it

    def read_pending_and_draft_root_block(self) -> None:
        """Draft the root's block. The same forward reads the entries committed since the last round."""
        states, log_q = self.append_entries_and_guess_at_slots(*self.take_pending_entries(), self.depth - 1)
        self.stream, self.cache.rows = self.cache.rows, self.cache.rows + self.depth - 1
        self.places[0] = DraftedBlock(states, log_q, list(range(self.depth))), 0
        self.draft_forward_count += 1

    @torch.inference_mode()
    def draft_blocks_from_nodes(self, tree: DraftTree, nodes: list[int]) -> None:
        """Start new blocks at these nodes, in one forward. From now on each node's own block answers for it. Not for the root."""
        count, root = self.depth, self.stream - 1  # the root's row is the first that the mask is about
        start = self.cache.rows - root
        visible = torch.zeros(len(nodes) * count, start + len(nodes) * count, dtype=torch.bool)
        visible[:, start:] = torch.block_diag(*[torch.ones(count, count).tril_()] * len(nodes))
        conditions, columns = [], []
        for first, node in zip(range(0, len(visible), count), nodes, strict=True):
            block, offset = self.find_block_and_offset(tree, node)
            seen = block.path_cache_columns[: len(block.path_cache_columns) - count + offset]
            visible[first : first + count, seen] = True
            conditions.append(block.states[offset - 1])
            columns.append([*seen, *range(start + first, start + first + count)])
        tokens = [tree.tokens[node] for node in nodes]
        positions = [self.first + root + tree.depth[node] + k for node in nodes for k in range(count)]
        asked = torch.stack(conditions), tokens, positions, visible
        compiled = self.net.compiled
        found = compiled.forward_further_blocks(self.cache, *asked) if compiled else self.forward_further_blocks(*asked)
        self.draft_forward_count += 1
        for node, *parts in zip(nodes, *(each.split(count) for each in found), columns, strict=True):
            self.places[tree.creation_indices[node]] = DraftedBlock(*parts), 0

    def forward_further_blocks(
        self, start_states: torch.Tensor, tokens: list[int], positions: list[int], visible_rows: torch.Tensor
    ) -> Guesses:
        """The guesses of n blocks that start from `start_states [n, H]`. `visible_rows` bool `[n K, M]` is about the last M rows."""
        net, rows, device = self.net, self.cache.rows, self.net.embedding.device
        self.cache.refuse_overflow(len(positions))
        self.cache.rows += len(positions)
        x, before = net.block_inputs_and_predecessors(start_states, upload(tokens, device))
        mask, places = upload(additive_mask(visible_rows, self.cache.rows), device), upload(positions, device)
        return self.states_with_their_log_q(net(x[None], before, places, mask, kv=self.cache.kv, rows=rows)[0])

    def find_block_and_offset(self, tree: DraftTree, node: int) -> tuple[DraftedBlock, int]:
        """The node's block and its offset there: 0 for the token that the block starts at, K at most."""
        key = tree.creation_indices[node]
        if key not in self.places:
            block, offset = self.find_block_and_offset(tree, tree.parents[node])
            self.places[key] = block, offset + 1
        return self.places[key]

    def find_or_draft_predicting_blocks(self, tree: DraftTree, nodes: list[int]) -> list[tuple[DraftedBlock, int]]:
        """For each node the block and the position in it that predict the next token. A new block starts where the node's ends."""
        if 0 not in self.places:
            self.read_pending_and_draft_root_block()
        ended = [node for node in nodes if self.find_block_and_offset(tree, node)[1] == self.depth]
        if ended:
            self.draft_blocks_from_nodes(tree, ended)
        return [self.find_block_and_offset(tree, node) for node in nodes]

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        return torch.stack([block.log_q[offset] for block, offset in self.find_or_draft_predicting_blocks(tree, nodes)])

    @torch.inference_mode()
    def predict_rank_buckets(self, tree: DraftTree, nodes: list[int]) -> list[int]:
        found = self.find_or_draft_predicting_blocks(tree, nodes)
        asked = list({id(block): block for block, _ in self.places.values() if block.rank_buckets is None}.values())
        if asked:
            states, log_q = torch.stack([each.states for each in asked]), torch.stack([each.log_q for each in asked])
            for block, said in zip(asked, self.net.rank_head_logits(states, log_q).argmax(-1).tolist(), strict=True):
                block.rank_buckets = said
        return [block.rank_buckets[offset] for block, offset in found]  # type: ignore[index]  # filled in above

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        """No drafted row stays: accepted tokens are read again, with the target's own features."""
        self.cache.rows = self.stream
        super().commit(tree, path, bonus, features)
