"""`engine.nets.specblock` in compiled loops; held equal by tests/fast/test_equal_to_reference.py[nets.specblock_compiled]."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.forward.cache import KVCache
from engine.kernels.attention import causal
from engine.kernels.compiling import compiled, within
from engine.kernels.eight_bit import EightBit, product
from engine.kernels.elementwise import add, put, side_by_side, unit_rows
from engine.kernels.named_arrays import Matrix, NamedArrays, unpacked
from engine.kernels.stack import LAYER, Stack, folded, log_q_behind, through
from engine.nets.layer import FEATURES, Net, unit


class SpecBlockEnds(NamedTuple):
    """What stands around the layers. A token adds `said [V, H]`, a position `queries [K, H]`; the rest are matrices."""

    said: Matrix
    queries: Matrix
    features: EightBit
    condition: EightBit
    head: EightBit
    stack: Stack


@within
def entering(ends, conditions, tokens, starts, x):
    """Write the layers' inputs at N positions of blocks into `x [N, H]`; block i has the rows `starts[i]` to `starts[i + 1]`."""
    normed, prefix = np.empty_like(conditions), np.empty_like(conditions)
    unit_rows(conditions, ends.stack.least, normed)
    product(normed, ends.condition, prefix)
    for block in range(len(tokens)):
        for row in range(starts[block], starts[block + 1]):
            put(prefix[block], x[row])
            add(ends.said[tokens[block]], x[row])
            add(ends.queries[row - starts[block]], x[row])


@within
def behind_blocks(weights, turns, kv, x, before, positions, visible, rows, answers):
    """States `[N, H]` of entries that take in those of `before [N]`, and the last log-probabilities `[answers, V]`."""
    ends, start, count = unpacked(SpecBlockEnds, weights, LAYER * len(kv)), np.int64(0), len(x)
    x = through(ends.stack, weights, turns, kv, x, before, before, positions, visible, start, rows, count)
    return x, log_q_behind(x[count - answers :], ends.stack, ends.head, len(ends.said))


@compiled
def read(weights, turns, kv, tokens, features, position, rows, slots):
    """States `[1 + slots, H]` and log-probabilities `[1 + slots, V]` behind the last of `tokens [N]`, given `features [N, 4, H]`."""
    ends, entries = unpacked(SpecBlockEnds, weights, LAYER * len(kv)), len(tokens)
    hidden = ends.said.shape[1]
    conditions = np.empty((entries, hidden), np.float32)
    product(side_by_side(features, np.arange(entries)), ends.features, conditions)
    count, starts = entries + slots, np.arange(entries + 1)
    starts[entries] = count  # the last entry has the whole block
    x = np.empty((count, hidden), np.float32)
    entering(ends, conditions, tokens, starts, x)
    before, positions = np.arange(count), np.arange(position, position + count)
    for row in range(entries, count):
        before[row] -= 1
    visible = causal(count)
    states, log_q = behind_blocks(weights, turns, kv, x, before, positions, visible, rows, 1 + slots)
    return states[entries - 1 :], log_q


@compiled
def go_on(weights, turns, kv, conditions, tokens, positions, visible, rows):
    """States `[n K, H]` and log-probabilities `[n K, V]` of n whole blocks, from `conditions [n, H]` and `tokens [n]`."""
    blocks, count = len(tokens), len(positions)
    starts, before = np.arange(blocks + 1) * (count // blocks), np.arange(count)
    x = np.empty((count, conditions.shape[1]), np.float32)
    entering(unpacked(SpecBlockEnds, weights, LAYER * len(kv)), conditions, tokens, starts, x)
    for block in range(blocks):
        for row in range(starts[block] + 1, starts[block + 1]):
            before[row] -= 1
    return behind_blocks(weights, turns, kv, x, before, positions, visible, rows, count)


class CompiledSpecBlock:
    def __init__(self, net: Net):
        config, root = net.config, net.config.hidden**0.5
        least = net.norm_out.least
        for_condition, for_token, for_query = net.fuse.weight.detach().split(config.hidden, 1)
        token = unit(net.embedding.detach(), least) * net.norm_token.weight.detach() * root
        query = unit(net.query_embed.detach(), least) * net.norm_query.weight.detach() * root
        ends = SpecBlockEnds(
            said=(token @ for_token.T).numpy(),
            queries=(query @ for_query.T).numpy(),
            features=EightBit.of(net.cond_proj.weight),
            condition=folded(for_condition, net.norm_condition.weight),
            head=folded(net.unembed, net.norm_out.weight),
            stack=Stack.of(config.hidden, net.norm_out.eps),
        )
        layers = (
            # without the identity, beside which eight bits would lose the shift's small numbers
            layer.in_eight_bits(norm)._replace(shift=EightBit.of(shift.weight - torch.eye(*shift.weight.shape)))
            for shift, norm, layer in zip(net.shifts, net.norms, net.layers, strict=True)
        )
        self.weights, self.rotary = NamedArrays(*layers, ends), net.rotary

        # These calls compile, or load compiled code, so that loading takes the time and no race does.
        width = config.hidden // config.heads
        cache = KVCache(config.layers, config.heads, width, config.depth + 1, torch.float32, torch.device("cpu"))
        states, _ = self(cache, [0], torch.zeros(1, FEATURES + 1, config.reads), 0, 0)
        visible = torch.ones(config.depth, config.depth, dtype=torch.bool)
        self.go_on(cache, states, [0], list(range(config.depth)), visible)

    def parts(self, cache: KVCache) -> tuple:
        """The arguments that every compiled call takes first."""
        return self.weights.table, self.rotary.turns(cache.capacity), cache.numbers

    def __call__(
        self, cache: KVCache, tokens: list[int], features: Tensor, position: int, slots: int
    ) -> tuple[Tensor, Tensor]:
        """As the function `read`. The entries' rows are committed in `cache`. Raises `ValueError` when it is full."""
        rows = cache.rows
        cache.room_for(len(tokens) + slots)
        found = read(*self.parts(cache), np.array(tokens), features.contiguous().numpy(), position, rows, slots)
        cache.rows = rows + len(tokens)
        return torch.from_numpy(found[0]), torch.from_numpy(found[1])

    def go_on(
        self, cache: KVCache, conditions: Tensor, tokens: list[int], positions: list[int], visible: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As the function `go_on`. All rows that it writes are committed. Raises `ValueError` when the cache is full."""
        rows = cache.rows
        cache.room_for(len(positions))
        seen = np.ascontiguousarray(visible.numpy())
        asked = conditions.contiguous().numpy(), np.array(tokens), np.array(positions), seen, rows
        found = go_on(*self.parts(cache), *asked)
        cache.rows = rows + len(positions)
        return torch.from_numpy(found[0]), torch.from_numpy(found[1])
