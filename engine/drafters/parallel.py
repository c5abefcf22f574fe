"""Parallel-tree drafter: one forward a round answers every depth. All nodes of a depth get the same guess.

Invariant: between rounds the cache holds only rows of stream entries, made from the target's true features. They end just before the
first token of `pending`. Rows of slots are never kept.
"""

from typing import Any

import torch

from engine.contracts import LAYERS, Drafter, Features
from engine.drafters.shared.drafted_rows import stream_start_and_features
from engine.forward.cache import KVCache, additive_mask
from engine.forward.uploads import select_rows, upload
from engine.models.pairs import LoadedPair
from engine.tree import DraftTree


class ParallelDrafter(Drafter):
    title = "parallel"
    about = "A small net that guesses every depth in one forward."
    source = "the feature-conditioned parallel-tree drafter"
    idea = LAYERS
    reads_features: bool | tuple[int, ...] = True
    takes = "parallel"

    blocks = 1  # forwards of a round that guess, at most

    def __init__(self, pair: LoadedPair, capacity: int):
        self.net: Any = pair.net(self.takes)
        config, device = self.net.config, self.net.embedding.device
        self.depth = config.depth
        width, room = config.hidden // config.heads, capacity + self.blocks * config.depth
        self.cache = KVCache(config.layers, config.heads, width, room, torch.float32, device)

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.cache.rows = 0
        self.first, features = stream_start_and_features(prompt, features)
        if len(features) > 1:  # the first round writes the root's entry, together with its slots
            self.feed_entries(prompt[self.first : -1], features[:-1], slots=0)
        self.pending, self.features = prompt[-1:], features[-1:]
        self.discard_draft()

    def discard_draft(self) -> None:
        """Drop what was guessed, as at the start of a round."""
        self.levels: torch.Tensor | None = None  # this round's log-probabilities, a row for each depth

    @torch.inference_mode()
    def feed_entries(self, tokens: list[int], features: torch.Tensor, slots: int) -> Any:
        """The guesses at the last of these entries, whose rows stay, and at its slots; without slots there may be none."""
        net, rows, count = self.net, self.cache.rows, len(tokens)
        if net.compiled:
            return net.compiled(self.cache, tokens, features, self.first + rows, slots)
        self.cache.refuse_overflow(count + slots)
        end, ids = rows + count + slots, upload(tokens, features.device)
        mask = additive_mask(torch.ones(end - rows, end - rows, dtype=torch.bool, device=ids.device).tril_(), end)
        positions = torch.arange(self.first + rows, self.first + end, device=ids.device)
        last = ids.new_full((1,), count - 1)
        states = net.forward_block(ids, features, last, positions, mask, self.cache.kv, rows)[count - 1 :]
        self.cache.rows = rows + count
        return self.guess_from_states(states)

    def guess_from_states(self, states: torch.Tensor) -> Any:
        """Log-probabilities `[n, V]` at `states [n, H]`."""
        return self.net.logits(states).log_softmax(-1)

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """As `Drafter.log_q`; None where a node stands deeper than the net was trained for."""
        depths = [tree.depth[node] for node in nodes]
        if max(depths) >= self.depth:
            return None
        if self.levels is None:
            # Without slots a forward answers nothing: a net of one depth asks for one that nobody reads.
            self.levels = self.feed_entries(self.pending, self.features, slots=max(1, self.depth - 1))[: self.depth]
            self.pending, self.features, self.forwards = [], self.features[:0], self.forwards + 1
        return select_rows(self.levels, depths)

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        self.pending = self.pending + [tree.tokens[node] for node in path] + [bonus]
        self.features = torch.cat([self.features, select_rows(features, [0, *path])])
        self.discard_draft()
