"""A Llama forward in phases, whose tasks threads share. Knows arrays; knows no model and no tree.

No row's bits depend on the other rows, on the number of threads or on who does which task.
"""

from typing import NamedTuple

import numpy as np
from numba import carray, types

from engine.kernels.by_address import calling
from engine.kernels.compiling import exactly_compiled, exactly_within
from engine.kernels.elementwise import put
from engine.kernels.exact_attention import TOGETHER, attend_exactly, dot, exp
from engine.kernels.intrinsics import pointer
from engine.kernels.named_arrays import (
    FIELDS,
    Cache,
    Cube,
    Ids,
    Mask,
    Matrix,
    Number,
    Table,
    Vector,
    arrays_of,
    compiled_type,
    unpacked,
)
from engine.kernels.sharing import ROWS, TABLE, WORK, close_call, leave, next_call, next_task, open_call, seen, turn_of
from engine.kernels.stored import BLOCK, Stored, block_product

QUERIES = 4  # of a task of attention, at least `TOGETHER`


class Ends(NamedTuple):
    """What comes before and after the layers, and what all layers share.

    `norm [H]` is the last norm's weight times sqrt(H). `turns` are the rotations by position; `least` and `head_least` keep norms from
    zero.
    """

    embedding: Matrix
    norm: Vector
    head: Stored
    turns: Cube
    least: Number
    head_least: Number


class Layer(NamedTuple):
    """A layer. Norms are times sqrt(H); `scales [heads + kv_heads, head_dim]` are the weights of the norms of queries and keys, times
    sqrt(head_dim), or no rows without such norms."""

    norm: Vector
    qkv: Stored
    scales: Matrix
    out: Stored
    norm_mlp: Vector
    gate: Stored
    up: Stored
    down: Stored


class Room(NamedTuple):
    """The call's own arrays, for N rows: what it reads, its working space, and what it writes.

    `limits [3]` are the committed rows, the first row that is wanted behind the last layer, and the threads. Query n sees no key from
    row `ends[n]` on. `claims` counts tasks that are taken and finished, see `engine.kernels.sharing`.
    """

    limits: Ids
    ends: Ids
    claims: Ids
    x: Matrix
    normed: Matrix
    more: Matrix
    qkv: Matrix
    attended: Matrix
    gated: Matrix
    ids: Ids
    positions: Ids
    taps: Ids
    visible: Mask
    kv: Cache
    logits: Matrix
    features: Cube


class Work(NamedTuple):
    """A thread's own working space: products of a block, and what `attend_exactly` needs for `TOGETHER` queries."""

    gates: np.ndarray
    ups: np.ndarray
    spare: np.ndarray
    asking: np.ndarray
    mixed: np.ndarray
    visible: np.ndarray
    ends: np.ndarray
    scores: np.ndarray
    totals: np.ndarray


ENDS, LAYER, ROOM = arrays_of(Ends), arrays_of(Layer), arrays_of(Room)
PHASES = 8  # of a layer; one more begins and one ends a forward
SPACES = range(Room._fields.index("x"), Room._fields.index("gated") + 1)
IDS, POSITIONS, TAPS, VISIBLE, KV, LOGITS, FEATURES = range(SPACES.stop, ROOM)
FIRST_SPACE, LAST_SPACE = SPACES.start, SPACES.stop


@exactly_within
def unit_row(x, weight, least, out):
    """Write the RMS norm of the row `x [n]`, whose weight comes times sqrt(n) and whose `least` is sqrt(n eps)."""
    factor = np.float32(1) / np.sqrt(dot(x, x) + least * least)
    for k in range(len(x)):
        out[k] = x[k] * factor * weight[k]


@exactly_within
def enter_row(room, row, layer, scales, ends):
    """Norm and rotate a row's queries and keys, scale its queries, and write its keys and values into the cache."""
    kv_heads, size, qkv = room.kv.shape[2], room.kv.shape[4], room.qkv[row]
    heads, half = len(qkv) // size - 2 * kv_heads, size // 2
    cos, sin = ends.turns[room.positions[row]]
    factor, place = np.float32(1 / np.sqrt(size)), room.limits[0] + row
    for head in range(heads + kv_heads):
        part = qkv[head * size : (head + 1) * size]
        if len(scales):
            unit_row(part, scales[head], ends.head_least, part)
        share = factor if head < heads else np.float32(1)
        for k in range(half):
            a, b = part[k], part[half + k]
            part[k] = (a * cos[k] - b * sin[k]) * share
            part[half + k] = (b * cos[k] + a * sin[k]) * share
    for head in range(kv_heads):
        first = (heads + head) * size
        put(qkv[first : first + size], room.kv[layer, 0, head, place])
        first += kv_heads * size
        put(qkv[first : first + size], room.kv[layer, 1, head, place])


@exactly_within
def attend_some(room, layer, head, first, last, work):
    """Attention of the queries from `first` to `last` of those that share a head's keys, a few at a time."""
    size, rows = room.kv.shape[4], room.limits[0] + len(room.ids)
    groups = room.attended.shape[1] // size // room.kv.shape[2]
    keys, values = room.kv[layer, 0, head, :rows], room.kv[layer, 1, head, :rows]
    while first < last:
        count = min(last - first, TOGETHER)
        if count == 3:
            count = 2
        for each in range(count):
            row, part = (first + each) // groups, head * groups + (first + each) % groups
            put(room.qkv[row, part * size : (part + 1) * size], work.asking[each])
            put(room.visible[row], work.visible[each])
            work.ends[each] = room.ends[row]
        asked = work.asking[:count], keys, values, work.visible[:count], work.ends[:count]
        attend_exactly(*asked, work.scores, work.mixed[:count], work.totals)
        for each in range(count):
            row, part = (first + each) // groups, head * groups + (first + each) % groups
            put(work.mixed[each], room.attended[row, part * size : (part + 1) * size])
        first += count


@exactly_within
def blocks_of(matrix):
    return -(-matrix.shape[0] // matrix.shape[2])


@exactly_within
def multiply(turn, x, matrix, out, spare):
    """The product of `x [n, in]` and a matrix, `out [n, out]`."""
    task = next_task(turn, blocks_of(matrix))
    while task >= 0:
        block_product(x, matrix, task, np.int64(out.ctypes.data) + 4 * task * matrix.shape[2], out.shape[1], spare)
        task = next_task(turn, blocks_of(matrix))


@exactly_within
def begin(turn, room, ends, weight):
    """The tokens' embeddings and their first norm."""
    count = len(room.ids)
    row = next_task(turn, count)
    while row >= 0:
        put(ends.embedding[room.ids[row]], room.x[row])
        unit_row(room.x[row], weight, ends.least, room.normed[row])
        row = next_task(turn, count)


@exactly_within
def enter(turn, room, number, layer, ends):
    """The layer's keys and values in the cache, and its queries; see `enter_row`."""
    count = len(room.ids)
    row = next_task(turn, count)
    while row >= 0:
        enter_row(room, row, number, layer.scales, ends)
        row = next_task(turn, count)


@exactly_within
def attend(turn, room, number, first, work):
    """Attention of the rows from `first` on."""
    heads, groups = room.kv.shape[2], room.attended.shape[1] // room.kv.shape[4] // room.kv.shape[2]
    begin, end = first * groups, len(room.ids) * groups
    tasks = heads * -(-(end - begin) // QUERIES)
    task = next_task(turn, tasks)
    while task >= 0:
        at = begin + task // heads * QUERIES
        attend_some(room, number, task % heads, at, min(at + QUERIES, end), work)
        task = next_task(turn, tasks)


@exactly_within
def gate(turn, room, layer, first, work):
    """silu(gate) * up of the rows from `first` on."""
    x, width, apart = room.normed[first:], layer.gate.shape[2], np.int64(BLOCK)
    block = next_task(turn, blocks_of(layer.gate))
    while block >= 0:
        block_product(x, layer.gate, block, np.int64(work.gates.ctypes.data), apart, work.spare)
        block_product(x, layer.up, block, np.int64(work.ups.ctypes.data), apart, work.spare)
        here = min(width, room.gated.shape[1] - block * width)
        for row in range(len(x)):
            gates, ups = work.gates[row], work.ups[row]
            out = room.gated[first + row, block * width : block * width + here]
            for k in range(here):
                out[k] = gates[k] / (np.float32(1) + exp(-gates[k])) * ups[k]
        block = next_task(turn, blocks_of(layer.gate))


@exactly_within
def add(turn, room, first, after, weight, least):
    """Add `more` to the stream, for the rows from `first` on, and norm it for what comes next.

    `after` counts the layers behind it, 0 in the middle of one. It decides which features are written, a negative tap's as they are.
    """
    count, taps = len(room.ids) - first, len(room.taps)
    row = next_task(turn, count)
    while row >= 0:
        x, more, normed = room.x[first + row], room.more[first + row], room.normed[first + row]
        for k in range(len(x)):
            x[k] += more[k]
        unit_row(x, weight, least, normed)
        for tap in range(taps):
            if abs(room.taps[tap]) == after:
                factor = np.float32(1)
                if room.taps[tap] > 0:
                    factor = np.sqrt(np.float32(len(x)) / (dot(x, x) + np.float32(1e-12)))
                for k in range(len(x)):
                    room.features[row, tap, k] = x[k] * factor
        if taps and after == len(room.kv):
            put(normed, room.features[row, taps])
        row = next_task(turn, count)


@exactly_within
def work_on(table, part):
    """This thread's part of the forward whose arrays stand in `table`."""
    ends, room = unpacked(Ends, table, 0), unpacked(Room, table, len(table) - ROOM)
    count, wanted, parts = len(room.ids), room.limits[1], room.limits[2]
    turn, layers, size = turn_of(room.claims, part, parts), len(room.kv), room.kv.shape[4]
    pieces = np.empty((3, count, BLOCK), np.float32)
    work = Work(
        pieces[0],
        pieces[1],
        pieces[2],
        np.empty((TOGETHER, size), np.float32),
        np.empty((TOGETHER, size), np.float32),
        np.empty((TOGETHER, room.visible.shape[1]), np.bool_),
        np.empty(TOGETHER, np.int64),
        np.empty((TOGETHER, room.limits[0] + count), np.float32),
        np.empty(TOGETHER, np.float32),
    )
    every = np.int64(0)  # a slice from the first row on, so that `multiply` is compiled for one type of array
    begin(turn, room, ends, unpacked(Layer, table, ENDS).norm)
    for number in range(layers):
        layer = unpacked(Layer, table, ENDS + LAYER * number)
        first, norm = every, ends.norm
        if number == layers - 1:
            first = wanted
        else:
            norm = unpacked(Layer, table, ENDS + LAYER * (number + 1)).norm
        multiply(turn, room.normed[every:], layer.qkv, room.qkv[every:], work.spare)
        enter(turn, room, number, layer, ends)
        attend(turn, room, number, first, work)
        multiply(turn, room.attended[first:], layer.out, room.more[first:], work.spare)
        add(turn, room, first, np.int64(0), layer.norm_mlp, ends.least)
        gate(turn, room, layer, first, work)
        multiply(turn, room.gated[first:], layer.down, room.more[first:], work.spare)
        add(turn, room, first, np.int64(number + 1), norm, ends.least)
    multiply(turn, room.normed[count - len(room.logits) :], ends.head, room.logits[every:], work.spare)


WORK_ON = types.void(compiled_type(Table), types.int64)
do_work = calling(WORK_ON)


@exactly_compiled
def helping(state, part, last, looks):
    """Join calls as thread `part`, see `Team`. Returns the number of the last call."""
    while True:
        call = next_call(state, last, looks)
        if call == last:
            return last
        base, last = state.ctypes.data, call
        table = carray(pointer(seen(base + 8 * TABLE)), (seen(base + 8 * ROWS), FIELDS), np.int64)
        do_work(state[WORK], table, part)
        leave(state)


@exactly_compiled
def forward(state, table, whole, parts, first, ids, positions, taps, visible, kv, rows, logits, features):
    """The forward of `ids [N]` at `positions [N]`, whose keys and values are written behind the first `rows` rows of `kv`.

    It writes `logits [n, V]` of the last n and, with `taps`, `features [N, taps + 1, H]`. Behind the last layer only the rows from
    `first` on are computed. `visible [N, M]` says which of the last M rows each sees. The work is laid out for `parts` threads; with
    `whole`, the team of this `state` joins in.
    """
    at = len(table) - ROOM
    aim(table, at + IDS, ids.ctypes.data, ids.shape)
    aim(table, at + POSITIONS, positions.ctypes.data, positions.shape)
    aim(table, at + TAPS, taps.ctypes.data, taps.shape)
    aim(table, at + VISIBLE, visible.ctypes.data, visible.shape)
    aim(table, at + KV, kv.ctypes.data, kv.shape)
    aim(table, at + LOGITS, logits.ctypes.data, logits.shape)
    aim(table, at + FEATURES, features.ctypes.data, features.shape)
    for row in range(at + FIRST_SPACE, at + LAST_SPACE):
        table[row, 1] = len(ids)
    room = unpacked(Room, table, at)
    room.limits[0], room.limits[1], room.limits[2] = rows, first, parts
    for index in range(len(room.claims)):
        room.claims[index] = 0
    columns = visible.shape[1]
    for row in range(len(ids)):
        last = columns - 1
        while last >= 0 and not visible[row, last]:
            last -= 1
        room.ends[row] = room.limits[0] + len(ids) - columns + last + 1
    if whole:
        open_call(state, table)
    do_work(state[WORK], table, 0)
    if whole:
        close_call(state)


@exactly_within
def aim(table, row, address, shape):
    """Let a row of a `NamedArrays` table stand for the array at the address."""
    table[row, 0] = address
    for axis in range(len(shape)):
        table[row, 1 + axis] = shape[axis]
