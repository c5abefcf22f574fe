"""CompiledNet: what nets in compiled loops and eight bits share. Each is its entry, the layers of `kernels/stack.py` and its head."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.kernels.named_arrays import NamedArrays
from engine.kernels.stack import DraftOuterWeights, EightBitLayer
from engine.nets.layer import Net


class CompiledNet:
    """A net's weights for compiled loops: those of its layers, its `DraftOuterWeights`, and the `further_arrays` behind them."""

    # `forward_loop(weights, rotations, kv, tokens, features, position, committed_rows, slot_count)` gives states `[n, H]` and
    # log-probabilities `[n, V]` behind the last of the `tokens [N]` and at the slots behind it. The first token stands at
    # `position`. The entries read the target's `features [N, 4, H]`, and their rows are written behind the first `committed_rows` of
    # the cache `kv`.
    forward_loop: ClassVar[Callable]

    def __init__(
        self, net: Net, layers: Iterable[EightBitLayer], outer_weights: DraftOuterWeights, *further_arrays: tuple
    ):
        self.weights, self.rotary, self.config = (
            NamedArrays(*layers, outer_weights, *further_arrays),
            net.rotary,
            net.config,
        )

    def new_cache(self, capacity: int) -> KVCache:
        config = self.config
        width = config.hidden // config.heads
        return KVCache(config.layers, config.heads, width, capacity, torch.float32, torch.device("cpu"))

    def weights_rotations_and_kv_of(self, cache: KVCache) -> tuple[np.ndarray, np.ndarray, Any]:
        """The weights, the rotations by position and the cache, which every loop takes first."""
        return self.weights.table, self.rotary.rotation_table(cache.capacity), cache.numbers

    def __call__(
        self, cache: KVCache, tokens: list[int], features: Tensor, position: int, slot_count: int
    ) -> tuple[Tensor, Tensor]:
        """As `forward_loop`. The entries' rows are committed in `cache`. Raises `ValueError` when it is full."""
        cache.refuse_overflow(len(tokens) + slot_count)
        entering = np.array(tokens), features.contiguous().numpy(), position, cache.rows, slot_count
        states, log_q = type(self).forward_loop(*self.weights_rotations_and_kv_of(cache), *entering)
        cache.rows += len(tokens)
        return torch.from_numpy(states), torch.from_numpy(log_q)
