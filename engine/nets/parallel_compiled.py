"""`engine.nets.parallel` in compiled loops, eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.parallel_compiled]."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.forward.cache import KVCache
from engine.kernels.attention import causal_mask
from engine.kernels.compiling import compiled
from engine.kernels.eight_bit import EightBit, multiply_eight_bit
from engine.kernels.elementwise import add_row, copy_row, join_feature_rows
from engine.kernels.named_arrays import Matrix, NamedArrays, Vector, unpack_nest
from engine.kernels.stack import LAYER, StackConstants, fold_norm_into_matrix, head_log_q, run_layers
from engine.nets.layer import FEATURES, Net


class ParallelEnds(NamedTuple):
    """What stands around the layers. A token adds `said [V, H]`, every slot's entry is `slot [H]`, and `features` is a matrix."""

    said: Matrix
    slot: Vector
    features: EightBit
    head: EightBit
    stack: StackConstants


@compiled
def log_q_of_root_and_slots(weights, rotations, kv, tokens, features, position, rows, slot_count):
    """Log-probabilities `[1 + slots, V]` behind the last of `tokens [N]` and at its slots; `[0, V]` when `slot_count` is 0.

    `features [N, 4, H]` are the target's behind the token before each, and the first token stands at `position`.
    """
    ends, entries, count = unpack_nest(ParallelEnds, weights, LAYER * len(kv)), len(tokens), len(tokens) + slot_count
    x = np.empty((count, ends.said.shape[1]), np.float32)
    multiply_eight_bit(join_feature_rows(features, np.arange(entries)), ends.features, x[:entries])
    for row in range(entries):
        add_row(ends.said[tokens[row]], x[row])
    for row in range(entries, count):
        copy_row(ends.slot, x[row])
    positions, start = np.arange(position, position + count), np.int64(0)
    x = run_layers(
        ends.stack,
        weights,
        rotations,
        kv,
        x,
        tokens,
        tokens,
        positions,
        causal_mask(count),
        start,
        rows,
        1 + slot_count,
    )
    if slot_count == 0:
        return np.empty((0, len(ends.said)), np.float32)
    return head_log_q(x, ends.stack, ends.head, len(ends.said))


class CompiledParallel:
    def __init__(self, net: Net):
        config = net.config
        for_token, for_features = net.in_proj.weight.detach().split(config.hidden, 1)
        token = F.rms_norm(net.embedding.detach(), (config.hidden,))
        ends = ParallelEnds(
            said=(token @ for_token.T).numpy(),
            slot=net.slot_entry().detach().numpy(),
            features=EightBit.of(for_features @ net.feat_proj.weight.detach()),
            head=fold_norm_into_matrix(net.head, net.final_norm),
            stack=StackConstants.of(config.hidden, net.norms[0].eps),
        )
        layers = (layer.to_eight_bits(norm) for layer, norm in zip(net.layers, net.norms, strict=True))
        self.weights, self.rotary = NamedArrays(*layers, ends), net.rotary

        # This call compiles, or loads compiled code, so that loading takes the time and no race does.
        width = config.hidden // config.heads
        cache = KVCache(config.layers, config.heads, width, 2, torch.float32, torch.device("cpu"))
        self(cache, [0], torch.zeros(1, FEATURES + 1, config.feature_size), 0, 1)

    def __call__(self, cache: KVCache, tokens: list[int], features: Tensor, position: int, slots: int) -> Tensor:
        """As `log_q_of_root_and_slots`. The entries' rows are committed in `cache`. Raises `ValueError` when it is full."""
        rows = cache.rows
        cache.refuse_overflow(len(tokens) + slots)
        entering = np.array(tokens), features.contiguous().numpy(), position, rows, slots
        log_q = log_q_of_root_and_slots(
            self.weights.table, self.rotary.rotation_table(cache.capacity), cache.numbers, *entering
        )
        cache.rows = rows + len(tokens)
        return torch.from_numpy(log_q)
