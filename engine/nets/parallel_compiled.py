"""The parallel-tree drafter as a CPU drafts with it: all depths in one compiled call, in eight-bit weights, every norm's weight folded
into the matrix behind it."""

import numpy as np
import torch
import torch.nn.functional as F

from engine.forward.cache import KVCache
from engine.kernels.attention import causal, turn
from engine.kernels.compiling import compiled
from engine.kernels.eight_bit import Rounded, product
from engine.kernels.elementwise import add, log_softmax, put, side_by_side, unit_rows
from engine.kernels.layer import layer
from engine.kernels.packed_weights import bundled, layer_weights, matrix, rounded, vector
from engine.nets.layer import FEATURES, Net

FIRST = 7  # array of the first layer in the bundle, behind what comes before and after the layers
ARRAYS = 8  # of a layer


@compiled
def answers(numbers, codes, layout, turns, kv, tokens, features, position, rows, slots):
    """Log-probabilities `[1 + slots, V]` behind the last of `tokens [N]`, the first of which stands at `position`, and at its slots; no
    rows at all where there are none. `features [N, 4, H]` are the target's behind the token before each."""
    said, slot = matrix(numbers, layout, 0), vector(numbers, layout, 1)
    least, last_least = vector(numbers, layout, 2)
    hidden, entries, asking = features.shape[2], len(tokens), 1 + slots
    count = entries + slots
    x = np.empty((count, hidden), np.float32)
    product(side_by_side(features, np.arange(entries)), rounded(numbers, codes, layout, 3), x[:entries])
    for row in range(entries):
        add(said[tokens[row]], x[row])
    for row in range(entries, count):
        put(slot, x[row])
    positions, visible = np.arange(position, position + count), causal(count)
    for number in range(len(kv)):
        at = FIRST + ARRAYS * number
        weights = layer_weights(numbers, codes, layout, at + 2)
        normed, qkv = np.empty_like(x), np.empty((count, 3 * hidden), np.float32)
        unit_rows(x, least, normed)
        product(normed, rounded(numbers, codes, layout, at), qkv)
        turn(qkv, 2 * kv.shape[2], turns, positions)
        seeing = visible[count - asking :] if number == len(kv) - 1 else visible
        x = layer(x, qkv, kv[number], seeing, np.int64(0), rows, weights, least)
    log_q = np.empty((asking if slots else 0, len(said)), np.float32)
    if slots:
        normed = np.empty_like(x)
        unit_rows(x, last_least, normed)
        product(normed, rounded(numbers, codes, layout, 5), log_q)
        log_softmax(log_q)
    return log_q


class ServedParallel:
    def __init__(self, net: Net, last_eps: float):
        """`last_eps` is that of the norm before the head."""
        config, root = net.config, net.config.hidden**0.5
        for_token, for_features = net.in_proj.weight.detach().split(config.hidden, 1)
        token = F.rms_norm(net.embedding, (config.hidden,))
        layers = [
            (
                Rounded.of(each.qkv.weight * norm.weight * root),
                each.rounded(),
            )
            for each, norm in zip(net.layers, net.norms, strict=True)
        ]
        least = np.array([net.norms[0].least, (config.hidden * last_eps) ** 0.5], np.float32)
        self.bundle = bundled(
            (token @ for_token.T).numpy(),
            net.slot().detach().numpy(),
            least,
            Rounded.of(for_features @ net.feat_proj.weight.detach()),
            Rounded.of(net.head * net.final_norm * root),
            *layers,
        )
        self.rotary = net.rotary

        # Compiling, or reading what was compiled before, belongs to loading.
        width = config.hidden // config.heads
        cache = KVCache(config.layers, config.heads, width, 2, torch.float32, torch.device("cpu"))
        self(cache, [0], torch.zeros(1, FEATURES + 1, config.hidden), 0, 1)

    def __call__(
        self, cache: KVCache, tokens: list[int], features: torch.Tensor, position: int, slots: int
    ) -> torch.Tensor:
        """As `answers`; the entries' rows are committed in `cache`."""
        rows = cache.rows
        cache.room_for(len(tokens) + slots)
        entering = np.array(tokens), features.contiguous().numpy(), position, rows, slots
        log_q = answers(*self.bundle, self.rotary.turns(cache.capacity), cache.numbers, *entering)
        cache.rows = rows + len(tokens)
        return torch.from_numpy(log_q)
