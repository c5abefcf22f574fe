"""DFlash drafter and DSpark: one forward a round guesses a whole block.

DFlash's slots do not know the path, so all nodes of a depth get the same guess. DSpark adds a bias by the token of the node.

Invariant: between rounds the cache holds only rows of the context, made from the target's true features. They end just before the first
token of `features`. Rows of a block are never kept.
"""

import numpy as np
import torch

from engine.contracts import Features
from engine.drafters.parallel import ParallelDrafter
from engine.drafters.shared.grows_at_once import CompiledTreeDrafter
from engine.forward.cache import KVCache
from engine.forward.devices import upload
from engine.kernels.expansion import TreeExpansion
from engine.models.pairs import LoadedPair
from engine.nets.dflash import DFlash
from engine.nets.dflash_compiled import log_q_of_level, log_q_of_root
from engine.nets.dspark import DSpark
from engine.tree import DraftTree


class DFlashDrafter(ParallelDrafter):
    title = "DFlash"
    about = "A small net that fills a block of blanks in one forward."
    source = "DFlash (z-lab)"
    required_resource = "dflash"

    def __init__(self, pair: LoadedPair, capacity: int):
        self.net: DFlash = pair.net(self.required_resource)
        sizes, device = self.net.sizes, self.net.embedding.device
        self.reads_features, self.depth = sizes.reads_features, self.net.config.depth
        room = capacity + sizes.block_size
        self.cache = KVCache(sizes.layers, sizes.kv_heads, sizes.head_dim, room, torch.float32, device)

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.cache.rows, self.pending, self.features = 0, prompt[-1:], features
        self.discard_draft()

    @torch.inference_mode()
    def read_pending_and_guess_all_depths(self) -> torch.Tensor:
        """Log-probabilities `[depth, V]` of the block behind the root. The rows of the context's new features stay."""
        [*_, root], features = self.take_pending_entries()
        net, cache, new = self.net, self.cache, len(features)
        if net.compiled:
            return net.expand_slots_to_full_vocab(net.compiled.write_context_and_block_to_log_q(cache, root, features))
        cache.refuse_overflow(new + net.sizes.block_size)
        if new:
            positions = torch.arange(cache.rows, cache.rows + new, device=net.embedding.device)
            net.write_context_kv_rows(features, positions, cache.kv, cache.rows)
            cache.rows += new
        block = upload([root, *[net.sizes.mask_token_id] * (net.sizes.block_size - 1)], net.embedding.device)
        positions = torch.arange(cache.rows, cache.rows + len(block), device=block.device)
        return net.expand_slots_to_full_vocab(net.forward_block_to_log_q(block, positions, None, cache.kv, cache.rows))


class DSparkDrafter(DFlashDrafter, CompiledTreeDrafter):
    title = "DSpark"
    about = "DFlash's block, and a bias by the token before each guess."
    source = "DSpark (DeepSeek)"
    required_resource = "dspark"
    net: DSpark

    def __init__(self, pair: LoadedPair, capacity: int):
        super().__init__(pair, capacity)
        if self.net.compiled:
            self.vocab = pair.target.vocab
            arrays = self.net.compiled.weights_and_lane_arrays(self.cache)
            self.compile_and_use_growing_loops(
                log_q_of_root,
                log_q_of_level,
                self.cache,
                arrays,
                levels_are_free=True,
                vocabulary=self.net.vocabulary.numpy(),
            )

    @torch.inference_mode()
    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        slots = super().log_q(tree, nodes)
        return None if slots is None else self.net.condition_on_tokens(slots, [tree.tokens[node] for node in nodes])

    def take_root_forward_inputs(self) -> tuple[list[int], np.ndarray, int, int, int]:
        [*_, root], features = self.take_pending_entries()
        position = self.cache.rows + len(features)
        self.cache.refuse_overflow(len(features) + self.net.sizes.block_size)
        return [root], features.contiguous().numpy(), position, position, len(features)

    def grow_compiled_tree_into_expansion(self, expansion: TreeExpansion) -> None:
        expansion.terms["levels"] = min(expansion.terms["levels"], self.depth)
        super().grow_compiled_tree_into_expansion(expansion)
