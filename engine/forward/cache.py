"""KVCache: keys and values of all layers in one tensor, so that a commit is one gather.

Invariant: rows `0 .. rows-1` are committed. A forward writes its rows behind them; `keep` says which of those survive.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from engine.kernels.attention import move_cache_rows


class KVCache:
    """Keys and values `kv [layers, 2, heads, capacity, head_dim]`, of which the first `rows` rows are committed.

    `parts` are the tensors of single devices, here `kv` alone; their last but one dimension counts rows. `layers` are views: keys
    and values of a layer, each `[1, heads, capacity, head_dim]`. `numbers` is one in numpy, or None unless `kv` is float32 on a
    CPU.
    """

    def __init__(self, layers: int, heads: int, head_dim: int, capacity: int, dtype: torch.dtype, device: torch.device):
        self.bind_tensor(torch.zeros(layers, 2, heads, capacity, head_dim, dtype=dtype, device=device))
        self.numbers: Any = self.kv.numpy() if device.type == "cpu" and dtype == torch.float32 else None
        self.rows = 0

    def bind_tensor(self, kv: Tensor) -> None:
        """Take this tensor for `kv`."""
        self.kv, self.parts, self.layers = kv, [kv], [layer.unsqueeze(1).unbind() for layer in kv]

    @property
    def capacity(self) -> int:
        return self.parts[0].shape[-2]

    def refuse_overflow(self, new_rows: int) -> None:
        """Raises `ValueError` when `new_rows` more rows do not fit."""
        if self.rows + new_rows > self.capacity:
            raise ValueError(
                f"The KV cache holds {self.capacity} rows; {self.rows} are committed and {new_rows} more do not fit. "
                "Ask for fewer new tokens, a shorter prompt or a smaller tree."
            )

    @torch.inference_mode()
    def clear(self) -> None:
        """Forget every row and fill the whole capacity with zeros, because some forwards read all of it."""
        for part in self.parts:
            part.zero_()
        self.rows = 0

    def keep(self, offsets_in_path_order: list[int]) -> None:
        """Commit the rows `offsets_in_path_order`, which are offsets behind the committed ones, in path order. Other new rows are
        dropped.
        """
        base, moved = self.rows, [(row, offset) for row, offset in enumerate(offsets_in_path_order) if row != offset]
        if moved and self.numbers is not None:
            move_cache_rows(self.numbers, base, np.array(moved))
        else:
            for row, offset in moved:  # rows only move to earlier places, so none is overwritten before it has moved
                for part in self.parts:
                    part.select(-2, base + row).copy_(part.select(-2, base + offset))
        self.rows = base + len(offsets_in_path_order)


class MultiDeviceKVCache(KVCache):
    """A cache whose layers lie on devices of their own, each `[2, heads, capacity, head_dim]`."""

    def __init__(
        self, heads: int, head_dim: int, capacity: int, dtype: torch.dtype, device_by_layer: list[torch.device]
    ):
        """`device_by_layer` holds a device for every layer."""
        shape = (2, heads, capacity, head_dim)
        self.parts = [torch.zeros(shape, dtype=dtype, device=place) for place in device_by_layer]
        self.layers = [part.unsqueeze(1).unbind() for part in self.parts]
        self.numbers, self.rows = None, 0


class TransformersCacheLayer(CacheLayerMixin):
    """One layer of a `KVCache` in the form that transformers' attention expects."""

    is_sliding = False

    def __init__(self, cache: Any, layer: int):
        super().__init__()
        self.cache, self.layer, self.is_initialized = cache, layer, True

    def lazy_initialization(self, key_states, value_states):
        pass

    def update(self, key_states, value_states, *args, **kwargs):
        start = self.cache.rows
        end = start + key_states.shape[2]
        keys, values = self.cached_kv_sized_like(key_states, value_states)
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        return keys[:, :, :end], values[:, :, :end]

    def cached_kv_sized_like(self, new_keys: Tensor, new_values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values `[1, heads, capacity, width]`, cut to the heads and the width of the new rows, in which layers differ."""
        keys, values = self.cache.layers[self.layer]
        return cut_heads_and_width_like(keys, new_keys), cut_heads_and_width_like(values, new_values)

    def get_mask_sizes(self, query_length):
        return self.cache.rows + query_length, 0

    def get_seq_length(self):
        return self.cache.rows

    def get_max_length(self):
        return self.cache.capacity

    get_max_cache_shape = get_max_length  # its name in earlier versions of transformers 5


def cut_heads_and_width_like(rows: Tensor, new_rows: Tensor) -> Tensor:
    """The part of `rows [B, heads, capacity, width]` that has the heads and the width of the `new_rows` ones `[B, heads, N, width]`."""
    return rows[:, : new_rows.shape[1], :, : new_rows.shape[-1]]


def wrap_as_transformers_cache(cache: KVCache) -> Cache:
    return Cache(layers=[TransformersCacheLayer(cache, layer) for layer in range(len(cache.layers))])


def additive_mask(visible: Tensor, column_count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """An additive mask `[..., column_count]` from `visible` bool `[..., M]` over the last M columns. All rows see the earlier
    columns.
    """
    mask = torch.zeros(*visible.shape[:-1], column_count, dtype=dtype, device=visible.device)
    mask[..., column_count - visible.shape[-1] :].masked_fill_(~visible, torch.finfo(dtype).min)
    return mask
