"""KVCache: keys and values of all layers in one tensor, so that a commit is one gather. Knows rows; knows no tokens.

Invariant: rows `0 .. rows-1` are committed. A forward writes its rows behind them; `keep` says which of those survive.
"""

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class KVCache:
    """`kv` is `[layers, 2, heads, capacity, head_dim]`."""

    def __init__(self, layers: int, heads: int, head_dim: int, capacity: int, dtype: torch.dtype, device: torch.device):
        self.kv = torch.zeros(layers, 2, heads, capacity, head_dim, dtype=dtype, device=device)
        self.rows = 0

    @property
    def capacity(self) -> int:
        return self.kv.shape[3]

    def room_for(self, count: int) -> None:
        """Raises `ValueError` when `count` more rows do not fit."""
        if self.rows + count > self.capacity:
            raise ValueError(
                f"The KV cache holds {self.capacity} rows; {self.rows} are committed and {count} more do not fit. "
                "Ask for fewer new tokens, a shorter prompt or a smaller tree."
            )

    def keep(self, written: list[int]) -> None:
        """Commit the rows `written` (offsets behind the committed ones, in path order); all other new rows are dropped."""
        base, count = self.rows, len(written)
        if written != list(range(count)):  # a path that is a prefix of the written rows already lies in place
            source = torch.tensor(written, device=self.kv.device) + base
            self.kv[:, :, :, base : base + count] = self.kv.index_select(3, source)
        self.rows += count


class TransformersLayer(CacheLayerMixin):
    """One layer of a `KVCache` in the form that transformers' attention expects."""

    is_sliding = False

    def __init__(self, cache: KVCache, layer: int):
        super().__init__()
        self.cache, self.layer, self.is_initialized = cache, layer, True

    def lazy_initialization(self, key_states, value_states):
        pass

    def update(self, key_states, value_states, *args, **kwargs):
        start = self.cache.rows
        end = start + key_states.shape[2]
        keys, values = self.cache.kv[self.layer].unsqueeze(1)  # each [1, heads, capacity, head_dim]
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        return keys[:, :, :end], values[:, :, :end]

    def get_mask_sizes(self, query_length):
        return self.cache.rows + query_length, 0

    def get_seq_length(self):
        return self.cache.rows

    def get_max_length(self):
        return self.cache.capacity


def transformers_cache(cache: KVCache) -> Cache:
    return Cache(layers=[TransformersLayer(cache, layer) for layer in range(cache.kv.shape[0])])
