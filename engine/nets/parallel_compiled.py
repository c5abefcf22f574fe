"""`engine.nets.parallel` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.parallel_compiled].

All depths are one compiled call. Every norm's weight is folded into the matrix that reads it.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from engine.forward.cache import KVCache
from engine.kernels.attention import causal, turn
from engine.kernels.compiling import compiled
from engine.kernels.eight_bit import EightBit, product
from engine.kernels.elementwise import add, log_softmax, put, side_by_side, unit_rows
from engine.kernels.layer import LayerWeights, layer
from engine.kernels.named_arrays import Matrix, NamedArrays, Number, Vector, arrays_of, unpacked
from engine.nets.layer import FEATURES, Net


class Ends(NamedTuple):
    """What comes before and after the layers.

    `said [V, H]` is what a token adds to an entry. `slot [H]` is every slot's entry. `features` is the matrix for the target's
    features.
    """

    said: Matrix
    slot: Vector
    features: EightBit
    head: EightBit
    least: Number
    last_least: Number


class Block(NamedTuple):
    qkv: EightBit
    rest: LayerWeights


ENDS, BLOCK = arrays_of(Ends), arrays_of(Block)


@compiled
def answers(weights, turns, kv, tokens, features, position, rows, slots):
    """Log-probabilities `[1 + slots, V]` behind the last of `tokens [N]` and at its slots; `[0, V]` when `slots` is 0.

    The first token stands at `position`. `features [N, 4, H]` are the target's behind the token before each. `weights` holds the `Ends`
    and a `Block` for every layer.
    """
    ends = unpacked(Ends, weights, 0)
    hidden, entries, asking = features.shape[2], len(tokens), 1 + slots
    count = entries + slots
    x = np.empty((count, hidden), np.float32)
    product(side_by_side(features, np.arange(entries)), ends.features, x[:entries])
    for row in range(entries):
        add(ends.said[tokens[row]], x[row])
    for row in range(entries, count):
        put(ends.slot, x[row])
    positions, visible = np.arange(position, position + count), causal(count)
    for number in range(len(kv)):
        block = unpacked(Block, weights, ENDS + BLOCK * number)
        normed, qkv = np.empty_like(x), np.empty((count, 3 * hidden), np.float32)
        unit_rows(x, ends.least, normed)
        product(normed, block.qkv, qkv)
        turn(qkv, 2 * kv.shape[2], turns, positions)
        seeing = visible[count - asking :] if number == len(kv) - 1 else visible
        x = layer(x, qkv, kv[number], seeing, np.int64(0), rows, block.rest, ends.least)
    log_q = np.empty((asking if slots else 0, len(ends.said)), np.float32)
    if slots:
        normed = np.empty_like(x)
        unit_rows(x, ends.last_least, normed)
        product(normed, ends.head, log_q)
        log_softmax(log_q)
    return log_q


class CompiledParallel:
    def __init__(self, net: Net, last_eps: float):
        """`last_eps` is the eps of the norm before the head."""
        config, root = net.config, net.config.hidden**0.5
        for_token, for_features = net.in_proj.weight.detach().split(config.hidden, 1)
        token = F.rms_norm(net.embedding, (config.hidden,))
        self.weights = NamedArrays(
            Ends(
                said=(token @ for_token.T).numpy(),
                slot=net.slot().detach().numpy(),
                features=EightBit.of(for_features @ net.feat_proj.weight.detach()),
                head=EightBit.of(net.head * net.final_norm * root),
                least=net.norms[0].least.numpy(),
                last_least=np.array((config.hidden * last_eps) ** 0.5, np.float32),
            ),
            *(
                Block(EightBit.of(each.qkv.weight * norm.weight * root), each.in_eight_bits())
                for each, norm in zip(net.layers, net.norms, strict=True)
            ),
        )
        self.rotary = net.rotary

        # This call compiles, or loads compiled code, so that loading takes the time and no race does.
        width = config.hidden // config.heads
        cache = KVCache(config.layers, config.heads, width, 2, torch.float32, torch.device("cpu"))
        self(cache, [0], torch.zeros(1, FEATURES + 1, config.hidden), 0, 1)

    def __call__(
        self, cache: KVCache, tokens: list[int], features: torch.Tensor, position: int, slots: int
    ) -> torch.Tensor:
        """As `answers`. The entries' rows are committed in `cache`. Raises `ValueError` when it is full."""
        rows = cache.rows
        cache.room_for(len(tokens) + slots)
        entering = np.array(tokens), features.contiguous().numpy(), position, rows, slots
        log_q = answers(self.weights.table, self.rotary.turns(cache.capacity), cache.numbers, *entering)
        cache.rows = rows + len(tokens)
        return torch.from_numpy(log_q)
