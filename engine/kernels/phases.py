"""A Llama forward in phases, whose tasks threads share. No row's bits depend on the other rows or on who does which task."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, types

from engine.kernels import sharing
from engine.kernels.by_address import address_of, raise_again, trying
from engine.kernels.compiling import exactly_compiled, exactly_within
from engine.kernels.elementwise import exp, put
from engine.kernels.exact_attention import TOGETHER, dot
from engine.kernels.intrinsics import pointer
from engine.kernels.named_arrays import FIELDS, Cube, Ids, Matrix, Number, Table, Vector, arrays_of, row_of, unpacked
from engine.kernels.rounded import GROUP
from engine.kernels.sequences import COMMITTED, COUNT, EACH, FIRST, KV, VISIBLE, attend, enter, sequence_of, unit_row
from engine.kernels.stored import (
    BLOCK,
    ROUNDED,
    Entering,
    Stored,
    block_product,
    bytes_entering,
    enter_product,
    product_of,
)


class TargetEnds(NamedTuple):
    """What comes before and after the layers: the last norm times sqrt(H), rotations by position, and what keeps norms from zero."""

    embedding: Matrix
    norm: Vector
    head: Stored
    turns: Cube
    least: Number
    head_least: Number


class TargetLayer(NamedTuple):
    """A layer. Norms are times sqrt(H), and `scales [heads + kv_heads, head_dim]`, of norms of heads if any, times sqrt(head_dim)."""

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

    `limits [3]` holds the first row whose result is wanted behind the last layer, how many threads work, and how many layers there
    are. Row n belongs to the sequence `owners[n]` and sees no key of it from row `ends[n]` on. `sequences [EACH * B, 6]` is a table
    of `engine.kernels.sequences`, `alone` room for a single one's. `claims` counts tasks, see `engine.kernels.sharing`.
    """

    limits: Ids
    ends: Ids
    owners: Ids
    claims: Ids
    alone: Table
    x: Matrix
    normed: Matrix
    more: Matrix
    qkv: Matrix
    attended: Matrix
    gated: Matrix
    ids: Ids = np.zeros(0, np.int64)  # and all behind it belong to the caller
    positions: Ids = np.zeros(0, np.int64)
    taps: Ids = np.zeros(0, np.int64)
    sequences: Table = np.zeros((0, FIELDS), np.int64)
    logits: Matrix = np.zeros((0, 0), np.float32)
    features: Cube = np.zeros((0, 0, 0), np.float32)


class Work(NamedTuple):
    """A thread's own working space: products of a block, rows that enter a product, and what `TOGETHER` queries need in attention."""

    gates: np.ndarray
    ups: np.ndarray
    spare: np.ndarray
    entering: Entering
    asking: np.ndarray
    mixed: np.ndarray
    visible: np.ndarray
    ends: np.ndarray
    scores: np.ndarray
    totals: np.ndarray


ENDS, LAYER, ROOM = arrays_of(TargetEnds), arrays_of(TargetLayer), arrays_of(Room)
WORK_ON = types.void(types.int64[:, ::1], types.int64)
try_work = trying(WORK_ON)
PHASES = 8  # of a layer; one more begins and one ends a forward
SPACES = tuple(row_of(Room, name) for name in ("x", "normed", "more", "qkv", "attended", "gated"))
IDS, POSITIONS, TAPS = (row_of(Room, name) for name in ("ids", "positions", "taps"))
SEQUENCES, LOGITS, FEATURES = (row_of(Room, name) for name in ("sequences", "logits", "features"))


@exactly_within
def blocks_of(matrix):
    return -(-matrix.shape[0] // matrix.shape[2])


@exactly_within
def multiply(turn, x, matrix, out, work):
    """The product of `x [n, in]` and a matrix, `out [n, out]`."""
    product, blocks = enter_product(x, matrix, work.entering), blocks_of(matrix)
    target, apart, spare = np.int64(out.ctypes.data), 4 * out.shape[1], np.int64(work.spare.ctypes.data)
    task = sharing.next_task(turn, blocks)
    while task >= 0:
        block_product(product, task, target + 4 * task * product.width, apart, spare)
        task = sharing.next_task(turn, blocks)


@exactly_within
def begin(turn, room, ends, weight):
    """The tokens' embeddings and their first norm."""
    count = len(room.ids)
    row = sharing.next_task(turn, count)
    while row >= 0:
        put(ends.embedding[room.ids[row]], room.x[row])
        unit_row(room.x[row], weight, ends.least, room.normed[row])
        row = sharing.next_task(turn, count)


@exactly_within
def gate(turn, room, layer, first, work):
    """silu(gate) * up of the rows from `first` on."""
    x, width, apart, blocks = room.normed[first:], layer.gate.shape[2], np.int64(4 * BLOCK), blocks_of(layer.gate)
    gates_of = enter_product(x, layer.gate, work.entering)
    ups_of = product_of(x, layer.up, work.entering)
    gates_at, ups_at = np.int64(work.gates.ctypes.data), np.int64(work.ups.ctypes.data)
    spare = np.int64(work.spare.ctypes.data)
    block = sharing.next_task(turn, blocks)
    while block >= 0:
        block_product(gates_of, block, gates_at, apart, spare)
        block_product(ups_of, block, ups_at, apart, spare)
        here = min(width, room.gated.shape[1] - block * width)
        for row in range(len(x)):
            gates, ups = work.gates[row], work.ups[row]
            out = room.gated[first + row, block * width : block * width + here]
            for k in range(here):
                out[k] = gates[k] / (np.float32(1) + exp(-gates[k])) * ups[k]
        block = sharing.next_task(turn, blocks)


@exactly_within
def add(turn, room, first, after, weight, least):
    """Add `more` to the stream, for the rows from `first` on, and norm it for what comes next.

    `after` counts the layers behind it, 0 in the middle of one. Features of negative taps are written as they are.
    """
    count, taps = len(room.ids) - first, len(room.taps)
    row = sharing.next_task(turn, count)
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
        if taps and after == room.limits[2]:
            put(normed, room.features[row, taps])
        row = sharing.next_task(turn, count)


@exactly_within
def work_on(table, part):
    """This thread's part of the forward whose arrays stand in `table`."""
    ends, room = unpacked(TargetEnds, table, 0), unpacked(Room, table, len(table) - ROOM)
    count, wanted, parts, layers = len(room.ids), room.limits[0], room.limits[1], room.limits[2]
    turn, size, rows, columns = sharing.turn_of(room.claims, part, parts), ends.turns.shape[2] * 2, 0, 0
    for number in range(len(room.sequences) // EACH):
        numbers = room.sequences[EACH * number]
        rows = max(rows, numbers[COMMITTED] + numbers[COUNT])
        columns = max(columns, sequence_of(room.sequences, number).visible.shape[1])
    pieces, longest = np.empty((3, count, BLOCK), np.float32), 0
    if unpacked(TargetLayer, table, ENDS).qkv.shape[3] == ROUNDED:
        longest = bytes_entering(max(room.normed.shape[1], room.attended.shape[1], room.gated.shape[1]))
    entering = Entering(np.empty((count, longest), np.uint8), np.empty(GROUP, np.float32))
    queries, scores = np.empty((2, TOGETHER, size), np.float32), np.empty((TOGETHER, rows), np.float32)
    seen, seen_up_to = np.empty(TOGETHER * columns, np.bool_), np.empty(TOGETHER, np.int64)
    rooms = entering, queries[0], queries[1], seen, seen_up_to, scores, np.empty(TOGETHER, np.float32)
    work = Work(pieces[0], pieces[1], pieces[2], *rooms)
    every = np.int64(0)  # a slice from the first row on, so that `multiply` is compiled for one type of array
    begin(turn, room, ends, unpacked(TargetLayer, table, ENDS).norm)
    for number in range(layers):
        layer = unpacked(TargetLayer, table, ENDS + LAYER * number)
        first, norm = every, ends.norm
        if number == layers - 1:
            first = wanted
        else:
            norm = unpacked(TargetLayer, table, ENDS + LAYER * (number + 1)).norm
        multiply(turn, room.normed[every:], layer.qkv, room.qkv[every:], work)
        enter(turn, room, number, layer, ends)
        attend(turn, room, number, first, work)
        multiply(turn, room.attended[first:], layer.out, room.more[first:], work)
        add(turn, room, first, np.int64(0), layer.norm_mlp, ends.least)
        gate(turn, room, layer, first, work)
        multiply(turn, room.gated[first:], layer.down, room.more[first:], work)
        add(turn, room, first, np.int64(number + 1), norm, ends.least)
    multiply(turn, room.normed[count - len(room.logits) :], ends.head, room.logits[every:], work)


@exactly_within
def do_work(state, table, part):
    """This thread's part of a call. Returns what it raised, or 0; no thread then waits for the tasks that it left undone."""
    raised = try_work(state[sharing.WORK], table, part)
    if raised != 0:
        sharing.give_up(unpacked(Room, table, len(table) - ROOM).claims)
    return raised


@exactly_compiled
def helping(state, part, last, looks):
    """Join calls as thread `part`, see `Team`. Returns the number of the last call."""
    base = state.ctypes.data
    while True:
        address = sharing.next_table(state, last, looks)
        if address == 0:
            return last
        last, rows = sharing.seen(base + 8 * sharing.CALL), sharing.seen(base + 8 * sharing.ROWS)
        raised = do_work(state, carray(pointer(address), (rows, FIELDS), np.int64), part)
        if raised != 0:
            sharing.told(base + 8 * sharing.RAISED, raised)
        sharing.leave(state)


@cache
def team_of(threads: int) -> sharing.Team:
    """So many threads for forwards; a process keeps them."""
    return sharing.Team(threads, helping, address_of(work_on, WORK_ON))


@exactly_compiled
def forward(state, table, whole, parts, first, ids, positions, taps, visible, kv, rows, logits, features):
    """`forward_together` of one sequence. Rows are written behind the first `rows` of `kv`; `visible [N, M]` is over the last M."""
    alone = unpacked(Room, table, len(table) - ROOM).alone
    alone[0, FIRST], alone[0, COUNT], alone[0, COMMITTED] = 0, len(ids), rows
    aim(alone, VISIBLE, visible.ctypes.data, visible.shape)
    aim(alone, KV, kv.ctypes.data, kv.shape)
    forward_together(state, table, whole, parts, first, len(kv), ids, positions, taps, alone, logits, features)


@exactly_compiled
def forward_together(state, table, whole, parts, first, layers, ids, positions, taps, sequences, logits, features):
    """The forward of `ids [N]` at `positions [N]`, which are the rows of B sequences, one sequence's behind the other's.

    `sequences [EACH * B, 6]` is their table. Keys and values are written behind each sequence's committed rows. It writes `logits
    [n, V]` of the last n rows and, with `taps`, `features [N, taps + 1, H]`; the last layer ends with the rows from `first` on. The
    work is laid out for `parts` threads; with `whole`, the team of this `state` joins in. An error of any thread is raised here.
    """
    at = len(table) - ROOM
    aim(table, at + IDS, ids.ctypes.data, ids.shape)
    aim(table, at + POSITIONS, positions.ctypes.data, positions.shape)
    aim(table, at + TAPS, taps.ctypes.data, taps.shape)
    aim(table, at + SEQUENCES, sequences.ctypes.data, sequences.shape)
    aim(table, at + LOGITS, logits.ctypes.data, logits.shape)
    aim(table, at + FEATURES, features.ctypes.data, features.shape)
    for row in SPACES:
        table[at + row, 1] = len(ids)
    room = unpacked(Room, table, at)
    room.limits[0], room.limits[1], room.limits[2] = first, parts, layers
    for index in range(len(room.claims)):
        room.claims[index] = 0
    for number in range(len(sequences) // EACH):
        numbers, visible = sequences[EACH * number], sequence_of(sequences, number).visible
        columns, begin = visible.shape[1], numbers[FIRST]
        for row in range(numbers[COUNT]):
            last = columns - 1
            while last >= 0 and not visible[row, last]:
                last -= 1
            room.owners[begin + row] = number
            room.ends[begin + row] = numbers[COMMITTED] + numbers[COUNT] - columns + last + 1
    if whole:
        sharing.open_call(state, table)
    raised = do_work(state, table, 0)
    if whole:
        others = sharing.close_call(state)
        if raised == 0:
            raised = others
    raise_again(raised)


@exactly_within
def aim(table, row, address, shape):
    """Let a row of a `NamedArrays` table stand for the array at the address."""
    table[row, 0] = address
    for axis in range(len(shape)):
        table[row, 1 + axis] = shape[axis]
