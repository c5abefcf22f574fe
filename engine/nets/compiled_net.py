"""CompiledNet: what nets in compiled loops and eight bits share. Each is its entry, the layers of `kernels/stack.py` and its head."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.kernels.named_arrays import NamedArrays
from engine.kernels.stack import EightBitLayer, NetEnds
from engine.nets.layer import Net


class CompiledNet:
    """A net's weights for compiled loops: those of its layers, its `NetEnds`, and `more` behind them."""

    # `loop(weights, turns, kv, tokens, features, position, rows, slots)` gives states `[n, H]` and log-probabilities `[n, V]` behind
    # the last of the `tokens [N]` and at the slots behind it. The first token stands at `position`. The entries read the target's
    # `features [N, 4, H]`, and their rows are written behind the first `rows` of the cache `kv`.
    loop: ClassVar[Callable]

    def __init__(self, net: Net, layers: Iterable[EightBitLayer], ends: NetEnds, *more: tuple):
        self.weights, self.rotary, self.config = NamedArrays(*layers, ends, *more), net.rotary, net.config

    def new_cache(self, capacity: int) -> KVCache:
        config = self.config
        width = config.hidden // config.heads
        return KVCache(config.layers, config.heads, width, capacity, torch.float32, torch.device("cpu"))

    def arrays_with(self, cache: KVCache) -> tuple[np.ndarray, np.ndarray, Any]:
        """The weights, the rotations by position and the cache, which every loop takes first."""
        return self.weights.table, self.rotary.rotation_table(cache.capacity), cache.numbers

    def __call__(
        self, cache: KVCache, tokens: list[int], features: Tensor, position: int, slots: int
    ) -> tuple[Tensor, Tensor]:
        """As `loop`. The entries' rows are committed in `cache`. Raises `ValueError` when it is full."""
        cache.refuse_overflow(len(tokens) + slots)
        entering = np.array(tokens), features.contiguous().numpy(), position, cache.rows, slots
        states, log_q = type(self).loop(*self.arrays_with(cache), *entering)
        cache.rows += len(tokens)
        return torch.from_numpy(states), torch.from_numpy(log_q)
