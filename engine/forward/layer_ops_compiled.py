"""`engine.forward.layer_ops` in compiled loops; held equal by tests/fast/test_equal_to_reference.py[forward.layer_ops_compiled].

The loops run on one thread, for a few rows in float32, and take a fifth of the time there. All lanes of a race use the same ones.
"""

import numpy as np
import torch

from engine.forward.cache import KVCache
from engine.forward.layer_ops import LayerOps, Sizes
from engine.kernels.attention import attention
from engine.kernels.elementwise import features_of, gated, normed_sum


class CompiledLayerOps(LayerOps):
    def __init__(self, sizes: Sizes, dtype: torch.dtype):
        super().__init__(sizes, dtype)
        none = np.zeros((0, sizes.head_dim), np.float32)
        self.norms = [each.numpy() for each in sizes.norms]
        self.head_norms = [none if each is None else each.numpy() for each in sizes.head_norms]
        self.places, self.limits = sizes.turns.numpy(), (np.float32(sizes.least), np.float32(sizes.head_least))

    def where(self, cache: KVCache, positions: torch.Tensor, visible: torch.Tensor | None):
        seen = np.ones((1, 1), np.bool_) if visible is None else visible.numpy()
        return cache.kv.numpy(), cache.rows, positions.numpy(), seen

    def attended(self, qkv: torch.Tensor, layer: int, where) -> torch.Tensor:
        kv, rows, positions, visible = where
        turned = self.sizes.heads + self.sizes.kv_heads
        return torch.from_numpy(
            attention(
                qkv.numpy(),
                kv[layer],
                visible,
                rows,
                positions,
                self.places,
                turned,
                self.head_norms[layer],
                self.limits[1],
            )
        )

    def added(self, x: torch.Tensor, more: torch.Tensor, norm: int) -> tuple[torch.Tensor, torch.Tensor]:
        total, out = normed_sum(x.numpy(), more.numpy(), self.norms[norm], self.limits[0])
        return torch.from_numpy(total), torch.from_numpy(out)

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(gated(gate_up.numpy()))

    def features(self, tapped: list[torch.Tensor], last: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(features_of(tuple(each.numpy() for each in tapped), last.numpy()))
