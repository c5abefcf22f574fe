"""DFlash drafter and DSpark: one forward a round guesses a whole block.

DFlash's slots do not know the path, so all nodes of a depth get the same guess. DSpark adds a bias by the token of the node.

Invariant: between rounds the cache holds only rows of the context, made from the target's true features. They end just before the first
token of `features`. Rows of a block are never kept.
"""

import numpy as np
import torch

from engine.contracts import LAYERS, Drafter, Features
from engine.drafters.shared.grows_at_once import GrowsAtOnce
from engine.forward.cache import KVCache
from engine.forward.uploads import rows_of, uploaded
from engine.kernels.expansion import Expansion
from engine.models.pairs import LoadedPair
from engine.nets.dflash import DFlash
from engine.nets.dflash_compiled import behind_level, grow_with_block
from engine.nets.dspark import DSpark
from engine.tree import DraftTree


class DFlashDrafter(Drafter):
    title = "DFlash"
    about = "A small net that fills a block of blanks in one forward."
    source = "DFlash (z-lab)"
    idea = LAYERS
    reads_features: bool | tuple[int, ...] = True
    takes = "dflash"

    def __init__(self, pair: LoadedPair, capacity: int):
        self.net: DFlash = pair.net(self.takes)
        sizes, device = self.net.sizes, self.net.embedding.device
        self.reads_features = sizes.reads
        room = capacity + sizes.block
        self.cache = KVCache(sizes.layers, sizes.kv_heads, sizes.head_dim, room, torch.float32, device)

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.cache.rows, self.features, self.root = 0, features, prompt[-1]
        self.levels: torch.Tensor | None = None  # this round's log-probabilities, a row for each depth

    def forward(self) -> torch.Tensor:
        """Log-probabilities `[depth, V]` behind the root. The context's new rows are kept."""
        net, cache, new = self.net, self.cache, len(self.features)
        if net.compiled:
            return net.compiled(cache, self.root, self.features)
        cache.room_for(new + net.sizes.block)
        if new:
            positions = torch.arange(cache.rows, cache.rows + new, device=net.embedding.device)
            net.read(self.features, positions, cache.kv, cache.rows)
            cache.rows += new
        tokens = uploaded([self.root, *[net.sizes.mask] * (net.sizes.block - 1)], net.embedding.device)
        positions = torch.arange(cache.rows, cache.rows + len(tokens), device=tokens.device)
        return net.log_q(tokens, positions, None, cache.kv, cache.rows)

    @torch.inference_mode()
    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """As `Drafter.log_q`; None where a node stands at the block's end."""
        depths = [tree.depth[node] for node in nodes]
        if max(depths) >= self.net.config.depth:
            return None
        if self.levels is None:
            self.levels = self.forward()
            self.features, self.forwards = self.features[:0], self.forwards + 1
        return self.net.following(rows_of(self.levels, depths), [tree.tokens[node] for node in nodes])

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        self.features, self.levels, self.root = torch.cat([self.features, rows_of(features, [0, *path])]), None, bonus


class DSparkDrafter(DFlashDrafter, GrowsAtOnce):
    title = "DSpark"
    about = "DFlash's block, and a bias by the token before each guess."
    source = "DSpark (DeepSeek)"
    takes = "dspark"
    net: DSpark

    def __init__(self, pair: LoadedPair, capacity: int):
        super().__init__(pair, capacity)
        if self.net.compiled:
            self.vocab = pair.target.vocab
            example = self.net.compiled.entering(self.cache, 0, torch.zeros(0, 1, 1))
            self.grow_by(grow_with_block, behind_level, self.cache, self.net.compiled.open(), example)

    def entering(self) -> tuple:
        return self.net.compiled.entering(self.cache, self.root, self.features)

    def grow_at_once(self, expansion: Expansion, noise: np.ndarray) -> None:
        expansion.terms["levels"] = min(expansion.terms["levels"], self.net.config.depth)
        super().grow_at_once(expansion, noise)
        self.features = self.features[:0]
