"""SpecBlock as a CPU drafts with it: a forward's blocks in one compiled call, in eight-bit weights, every norm's weight folded into the
matrix behind it."""

import numpy as np
import torch

from engine.forward.cache import KVCache
from engine.kernels.attention import causal, turn
from engine.kernels.compiling import compiled
from engine.kernels.eight_bit import Rounded, product
from engine.kernels.elementwise import add, log_softmax, put, side_by_side, unit_rows
from engine.kernels.layer import layer
from engine.kernels.packed_weights import bundled, layer_weights, matrix, rounded, vector
from engine.nets.layer import FEATURES, Net, unit

FIRST = 9  # array of the first layer in the bundle, behind what comes before and after the layers
ARRAYS = 10  # of a layer


@compiled
def entering(numbers, codes, layout, conditions, tokens, starts, x):
    """Into `x [N, H]` what enters the layers at N positions of blocks: block i, with `conditions[i]` and `tokens[i]`, has those from
    `starts[i]` to `starts[i + 1]`, and they are its last ones where it has not all."""
    said, queries, least = matrix(numbers, layout, 0), matrix(numbers, layout, 1), vector(numbers, layout, 2)[0]
    normed, prefix = np.empty_like(conditions), np.empty_like(conditions)
    unit_rows(conditions, least, normed)
    product(normed, rounded(numbers, codes, layout, 5), prefix)
    for block in range(len(tokens)):
        for row in range(starts[block], starts[block + 1]):
            put(prefix[block], x[row])
            add(said[tokens[block]], x[row])
            add(queries[row - starts[block]], x[row])


@compiled
def behind_blocks(numbers, codes, layout, turns, kv, x, before, positions, visible, rows, answers):
    """Last-layer states `[N, H]` of the entries `x [N, H]`, each of which takes in the state of its `before [N]`, and the
    log-probabilities `[answers, V]` of the last of them. `visible [N, M]` and `rows` are as in `engine.kernels.layer.layer`."""
    count, hidden = x.shape
    least = vector(numbers, layout, 2)[0]
    for number in range(len(kv)):
        at = FIRST + ARRAYS * number
        weights = layer_weights(numbers, codes, layout, at + 4)
        both, shifted = np.empty((count, 2 * hidden), np.float32), np.empty((count, hidden), np.float32)
        for row in range(count):
            put(x[row], both[row, :hidden])
            put(x[before[row]], both[row, hidden:])
        product(both, rounded(numbers, codes, layout, at), shifted)
        for row in range(count):
            add(x[row], shifted[row])
        normed, qkv = np.empty_like(shifted), np.empty((count, 3 * hidden), np.float32)
        unit_rows(shifted, least, normed)
        product(normed, rounded(numbers, codes, layout, at + 2), qkv)
        turn(qkv, 2 * kv.shape[2], turns, positions)
        x = layer(shifted, qkv, kv[number], visible, np.int64(0), rows, weights, least)
    vocab = layout[0, 1]
    log_q, normed = np.empty((answers, vocab), np.float32), np.empty((answers, hidden), np.float32)
    unit_rows(x[count - answers :], least, normed)
    product(normed, rounded(numbers, codes, layout, 7), log_q)
    log_softmax(log_q)
    return x, log_q


@compiled
def read(numbers, codes, layout, turns, kv, tokens, features, position, rows, slots):
    """States and log-probabilities, each `[1 + slots, ...]`, of the block at the last of these stream entries: `tokens [N]` with the
    target's `features [N, 4, H]`, the first at `position`."""
    entries, hidden = len(tokens), features.shape[2]
    conditions = np.empty((entries, hidden), np.float32)
    product(side_by_side(features, np.arange(entries)), rounded(numbers, codes, layout, 3), conditions)
    count, starts = entries + slots, np.arange(entries + 1)
    starts[entries] = count  # the last entry has the whole block
    x = np.empty((count, hidden), np.float32)
    entering(numbers, codes, layout, conditions, tokens, starts, x)
    before, positions = np.arange(count), np.arange(position, position + count)
    for row in range(entries, count):
        before[row] -= 1
    states, log_q = behind_blocks(
        numbers, codes, layout, turns, kv, x, before, positions, causal(count), rows, 1 + slots
    )
    return states[entries - 1 :], log_q


@compiled
def go_on(numbers, codes, layout, turns, kv, conditions, tokens, positions, visible, rows):
    """States `[n K, H]` and log-probabilities `[n K, V]` of n whole blocks, from `conditions [n, H]` and `tokens [n]`."""
    blocks, count = len(tokens), len(positions)
    starts, before = np.arange(blocks + 1) * (count // blocks), np.arange(count)
    x = np.empty((count, conditions.shape[1]), np.float32)
    entering(numbers, codes, layout, conditions, tokens, starts, x)
    for block in range(blocks):
        for row in range(starts[block] + 1, starts[block + 1]):
            before[row] -= 1
    return behind_blocks(numbers, codes, layout, turns, kv, x, before, positions, visible, rows, count)


class ServedSpecBlock:
    def __init__(self, net: Net):
        config, root = net.config, net.config.hidden**0.5
        least = net.norm_out.least
        for_condition, for_token, for_query = net.fuse.weight.detach().split(config.hidden, 1)
        token = unit(net.embedding, least) * net.norm_token.weight.detach() * root
        query = unit(net.query_embed.detach(), least) * net.norm_query.weight.detach() * root
        layers = [  # what is all but the identity would lose its small numbers in eight bits beside it
            (
                Rounded.of(shift.weight - torch.eye(*shift.weight.shape)),
                Rounded.of(each.qkv.weight * norm.weight * root),
                each.rounded(),
            )
            for shift, norm, each in zip(net.shifts, net.norms, net.layers, strict=True)
        ]
        self.bundle = bundled(
            (token @ for_token.T).numpy(),
            (query @ for_query.T).numpy(),
            least[None].numpy(),
            Rounded.of(net.cond_proj.weight),
            Rounded.of(for_condition * net.norm_condition.weight * root),
            Rounded.of(net.unembed * net.norm_out.weight * root),
            *layers,
        )
        self.rotary = net.rotary

        # Compiling, or reading what was compiled before, belongs to loading.
        width = config.hidden // config.heads
        cache = KVCache(config.layers, config.heads, width, config.depth + 1, torch.float32, torch.device("cpu"))
        states, _ = self.read(cache, [0], torch.zeros(1, FEATURES + 1, config.hidden), 0, 0)
        visible = torch.ones(config.depth, config.depth, dtype=torch.bool)
        self.go_on(cache, states, [0], list(range(config.depth)), visible)

    def parts(self, cache: KVCache) -> tuple:
        """What every call hands over."""
        return *self.bundle, self.rotary.turns(cache.capacity), cache.numbers

    def read(
        self, cache: KVCache, tokens: list[int], features: torch.Tensor, position: int, slots: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `read` above; all rows that it writes are committed."""
        rows, count = cache.rows, len(tokens) + slots
        cache.room_for(count)
        found = read(*self.parts(cache), np.array(tokens), features.contiguous().numpy(), position, rows, slots)
        cache.rows = rows + count
        return tuple(map(torch.from_numpy, found))

    def go_on(
        self, cache: KVCache, conditions: torch.Tensor, tokens: list[int], positions: list[int], visible: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `go_on` above; all rows that it writes are committed."""
        rows = cache.rows
        cache.room_for(len(positions))
        wanted = conditions.contiguous().numpy(), np.array(tokens), np.array(positions), visible.numpy(), rows
        found = go_on(*self.parts(cache), *wanted)
        cache.rows = rows + len(positions)
        return tuple(map(torch.from_numpy, found))
