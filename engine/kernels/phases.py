"""A Llama forward in phases, whose tasks threads share. No row's bits depend on the other rows or on who does which task."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, types

from engine.kernels import sharing
from engine.kernels.by_address import address_of, make_error_returning_call, raise_returned_error
from engine.kernels.compiling import exactly_compiled, exactly_within
from engine.kernels.elementwise import apply_silu_gate, copy_row
from engine.kernels.exact_attention import TOGETHER, dot
from engine.kernels.intrinsics import pointer_from_address
from engine.kernels.named_arrays import (
    FIELDS,
    Cube,
    Ids,
    Matrix,
    Number,
    Table,
    Vector,
    count_arrays,
    table_row_of,
    unpack_nest,
)
from engine.kernels.rounded import GROUP
from engine.kernels.sequences import (
    COMMITTED,
    COUNT,
    EACH,
    FIRST,
    KV,
    VISIBLE,
    attend_claimed_query_blocks,
    read_sequence,
    rms_norm_row,
    write_kv_of_claimed_rows,
)
from engine.kernels.stored import (
    BLOCK,
    ROUNDED,
    RoundedRowsWorkspace,
    StoredMatrix,
    block_arguments_of,
    bytes_of_rounded_row,
    multiply_block_and_add_bias,
    round_rows_and_block_arguments,
)


class TargetOuterWeights(NamedTuple):
    """What comes before and after the layers: the last norm times sqrt(H), rotations by position, and what keeps norms from zero."""

    embedding: Matrix
    norm: Vector
    head: StoredMatrix
    turns: Cube
    least: Number
    head_least: Number


class TargetLayerWeights(NamedTuple):
    """A layer. Norms are times sqrt(H), and `scales [heads + kv_heads, head_dim]`, of norms of heads if any, times sqrt(head_dim)."""

    norm: Vector
    qkv: StoredMatrix
    scales: Matrix
    out: StoredMatrix
    norm_mlp: Vector
    gate: StoredMatrix
    up: StoredMatrix
    down: StoredMatrix


class ForwardWorkspace(NamedTuple):
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


class ThreadWorkspace(NamedTuple):
    """A thread's own working space: products of a block, rows that enter a product, and what `TOGETHER` queries need in attention."""

    gates: np.ndarray
    ups: np.ndarray
    spare: np.ndarray
    entering: RoundedRowsWorkspace
    asking: np.ndarray
    mixed: np.ndarray
    visible: np.ndarray
    ends: np.ndarray
    scores: np.ndarray
    totals: np.ndarray


ENDS, LAYER, ROOM = count_arrays(TargetOuterWeights), count_arrays(TargetLayerWeights), count_arrays(ForwardWorkspace)
WORK_ON = types.void(types.int64[:, ::1], types.int64)
try_work = make_error_returning_call(WORK_ON)
PHASES = 8  # of a layer; one more begins and one ends a forward
SPACES = tuple(table_row_of(ForwardWorkspace, name) for name in ("x", "normed", "more", "qkv", "attended", "gated"))
IDS, POSITIONS, TAPS = (table_row_of(ForwardWorkspace, name) for name in ("ids", "positions", "taps"))
SEQUENCES, LOGITS, FEATURES = (table_row_of(ForwardWorkspace, name) for name in ("sequences", "logits", "features"))


@exactly_within
def count_output_blocks(matrix):
    return -(-matrix.shape[0] // matrix.shape[2])


@exactly_within
def multiply_claimed_blocks(task_cursor, x, matrix, out, thread_workspace):
    """The product of `x [n, in]` and a matrix, `out [n, out]`."""
    product, blocks = round_rows_and_block_arguments(x, matrix, thread_workspace.entering), count_output_blocks(matrix)
    target, apart, spare = np.int64(out.ctypes.data), 4 * out.shape[1], np.int64(thread_workspace.spare.ctypes.data)
    task = sharing.claim_task(task_cursor, blocks)
    while task >= 0:
        multiply_block_and_add_bias(product, task, target + 4 * task * product.width, apart, spare)
        task = sharing.claim_task(task_cursor, blocks)


@exactly_within
def embed_and_norm_claimed_rows(task_cursor, workspace, ends, weight):
    """The tokens' embeddings and their first norm."""
    count = len(workspace.ids)
    row = sharing.claim_task(task_cursor, count)
    while row >= 0:
        copy_row(ends.embedding[workspace.ids[row]], workspace.x[row])
        rms_norm_row(workspace.x[row], weight, ends.least, workspace.normed[row])
        row = sharing.claim_task(task_cursor, count)


@exactly_within
def apply_gate_to_claimed_blocks(task_cursor, workspace, layer, first_row, thread_workspace):
    """silu(gate) * up of the rows from `first_row` on."""
    x, width, apart, blocks = (
        workspace.normed[first_row:],
        layer.gate.shape[2],
        np.int64(4 * BLOCK),
        count_output_blocks(layer.gate),
    )
    gates_of = round_rows_and_block_arguments(x, layer.gate, thread_workspace.entering)
    ups_of = block_arguments_of(x, layer.up, thread_workspace.entering)
    gates_at, ups_at = np.int64(thread_workspace.gates.ctypes.data), np.int64(thread_workspace.ups.ctypes.data)
    spare = np.int64(thread_workspace.spare.ctypes.data)
    block = sharing.claim_task(task_cursor, blocks)
    while block >= 0:
        multiply_block_and_add_bias(gates_of, block, gates_at, apart, spare)
        multiply_block_and_add_bias(ups_of, block, ups_at, apart, spare)
        here = min(width, workspace.gated.shape[1] - block * width)
        for row in range(len(x)):
            out = workspace.gated[first_row + row, block * width : block * width + here]
            apply_silu_gate(thread_workspace.gates[row], thread_workspace.ups[row], out)
        block = sharing.claim_task(task_cursor, blocks)


@exactly_within
def add_and_norm_claimed_rows(task_cursor, workspace, first_row, layers_left, norm_weight, min_length):
    """Add `more` to the stream, for the rows from `first_row` on, and norm it for what comes next.

    `layers_left` counts the layers behind it, 0 in the middle of one. Features of negative taps are written as they are.
    """
    count, taps = len(workspace.ids) - first_row, len(workspace.taps)
    row = sharing.claim_task(task_cursor, count)
    while row >= 0:
        x, more, normed = (
            workspace.x[first_row + row],
            workspace.more[first_row + row],
            workspace.normed[first_row + row],
        )
        for k in range(len(x)):
            x[k] += more[k]
        rms_norm_row(x, norm_weight, min_length, normed)
        for tap in range(taps):
            if abs(workspace.taps[tap]) == layers_left:
                factor = np.float32(1)
                if workspace.taps[tap] > 0:
                    factor = np.sqrt(np.float32(len(x)) / (dot(x, x) + np.float32(1e-12)))
                for k in range(len(x)):
                    workspace.features[row, tap, k] = x[k] * factor
        if taps and layers_left == workspace.limits[2]:
            copy_row(normed, workspace.features[row, taps])
        row = sharing.claim_task(task_cursor, count)


@exactly_within
def run_thread_part_of_forward(table, part):
    """This thread's part of the forward whose arrays stand in `table`."""
    ends, room = unpack_nest(TargetOuterWeights, table, 0), unpack_nest(ForwardWorkspace, table, len(table) - ROOM)
    count, wanted, parts, layers = len(room.ids), room.limits[0], room.limits[1], room.limits[2]
    turn, size, rows, columns = sharing.make_task_cursor(room.claims, part, parts), ends.turns.shape[2] * 2, 0, 0
    for number in range(len(room.sequences) // EACH):
        numbers = room.sequences[EACH * number]
        rows = max(rows, numbers[COMMITTED] + numbers[COUNT])
        columns = max(columns, read_sequence(room.sequences, number).visible.shape[1])
    pieces, longest = np.empty((3, count, BLOCK), np.float32), 0
    if unpack_nest(TargetLayerWeights, table, ENDS).qkv.shape[3] == ROUNDED:
        longest = bytes_of_rounded_row(max(room.normed.shape[1], room.attended.shape[1], room.gated.shape[1]))
    entering = RoundedRowsWorkspace(np.empty((count, longest), np.uint8), np.empty(GROUP, np.float32))
    queries, scores = np.empty((2, TOGETHER, size), np.float32), np.empty((TOGETHER, rows), np.float32)
    seen, seen_up_to = np.empty(TOGETHER * columns, np.bool_), np.empty(TOGETHER, np.int64)
    rooms = entering, queries[0], queries[1], seen, seen_up_to, scores, np.empty(TOGETHER, np.float32)
    work = ThreadWorkspace(pieces[0], pieces[1], pieces[2], *rooms)
    every = np.int64(
        0
    )  # a slice from the first row on, so that `multiply_claimed_blocks` is compiled for one type of array
    embed_and_norm_claimed_rows(turn, room, ends, unpack_nest(TargetLayerWeights, table, ENDS).norm)
    for number in range(layers):
        layer = unpack_nest(TargetLayerWeights, table, ENDS + LAYER * number)
        first, norm = every, ends.norm
        if number == layers - 1:
            first = wanted
        else:
            norm = unpack_nest(TargetLayerWeights, table, ENDS + LAYER * (number + 1)).norm
        multiply_claimed_blocks(turn, room.normed[every:], layer.qkv, room.qkv[every:], work)
        write_kv_of_claimed_rows(turn, room, number, layer, ends)
        attend_claimed_query_blocks(turn, room, number, first, work)
        multiply_claimed_blocks(turn, room.attended[first:], layer.out, room.more[first:], work)
        add_and_norm_claimed_rows(turn, room, first, np.int64(0), layer.norm_mlp, ends.least)
        apply_gate_to_claimed_blocks(turn, room, layer, first, work)
        multiply_claimed_blocks(turn, room.gated[first:], layer.down, room.more[first:], work)
        add_and_norm_claimed_rows(turn, room, first, np.int64(number + 1), norm, ends.least)
    multiply_claimed_blocks(turn, room.normed[count - len(room.logits) :], ends.head, room.logits[every:], work)


@exactly_within
def run_part_or_abandon_call(state, table, part):
    """This thread's part of a call. Returns what it raised, or 0; no thread then waits for the tasks that it left undone."""
    raised = try_work(state[sharing.WORK], table, part)
    if raised != 0:
        sharing.abandon_call(unpack_nest(ForwardWorkspace, table, len(table) - ROOM).claims)
    return raised


@exactly_compiled
def join_calls_until_idle(state, part, last_call, max_looks):
    """Join calls as thread `part`, see `Team`. Returns the number of the last call."""
    base = state.ctypes.data
    while True:
        address = sharing.join_next_call(state, last_call, max_looks)
        if address == 0:
            return last_call
        last_call, rows = sharing.atomic_load(base + 8 * sharing.CALL), sharing.atomic_load(base + 8 * sharing.ROWS)
        raised = run_part_or_abandon_call(state, carray(pointer_from_address(address), (rows, FIELDS), np.int64), part)
        if raised != 0:
            sharing.atomic_store(base + 8 * sharing.RAISED, raised)
        sharing.leave_call(state)


@cache
def thread_team_of_size(threads: int) -> sharing.ThreadTeam:
    """So many threads for forwards; a process keeps them."""
    return sharing.ThreadTeam(threads, join_calls_until_idle, address_of(run_thread_part_of_forward, WORK_ON))


@exactly_compiled
def forward_sequence(state, table, whole, parts, first, ids, positions, taps, visible, kv, rows, logits, features):
    """`forward_sequences` of one sequence. Rows are written behind the first `rows` of `kv`; `visible [N, M]` is over the last M.

    A table of one sequence that Python made would slow the small target's forward of one row by a tenth.
    """
    alone = unpack_nest(ForwardWorkspace, table, len(table) - ROOM).alone
    alone[0, FIRST], alone[0, COUNT], alone[0, COMMITTED] = 0, len(ids), rows
    point_table_row_at_array(alone, VISIBLE, visible.ctypes.data, visible.shape)
    point_table_row_at_array(alone, KV, kv.ctypes.data, kv.shape)
    forward_sequences(state, table, whole, parts, first, len(kv), ids, positions, taps, alone, logits, features)


@exactly_compiled
def forward_sequences(state, table, whole, parts, first, layers, ids, positions, taps, sequences, logits, features):
    """The forward of `ids [N]` at `positions [N]`, which are the rows of B sequences, one sequence's behind the other's.

    `sequences [EACH * B, 6]` is their table. Keys and values are written behind each sequence's committed rows. It writes `logits
    [n, V]` of the last n rows and, with `taps`, `features [N, taps + 1, H]`; the last layer ends with the rows from `first` on. The
    work is laid out for `parts` threads; with `whole`, the team of this `state` joins in. An error of any thread is raised here.
    """
    at = len(table) - ROOM
    point_table_row_at_array(table, at + IDS, ids.ctypes.data, ids.shape)
    point_table_row_at_array(table, at + POSITIONS, positions.ctypes.data, positions.shape)
    point_table_row_at_array(table, at + TAPS, taps.ctypes.data, taps.shape)
    point_table_row_at_array(table, at + SEQUENCES, sequences.ctypes.data, sequences.shape)
    point_table_row_at_array(table, at + LOGITS, logits.ctypes.data, logits.shape)
    point_table_row_at_array(table, at + FEATURES, features.ctypes.data, features.shape)
    for row in SPACES:
        table[at + row, 1] = len(ids)
    room = unpack_nest(ForwardWorkspace, table, at)
    room.limits[0], room.limits[1], room.limits[2] = first, parts, layers
    for index in range(len(room.claims)):
        room.claims[index] = 0
    for number in range(len(sequences) // EACH):
        numbers, visible = sequences[EACH * number], read_sequence(sequences, number).visible
        columns, begin = visible.shape[1], numbers[FIRST]
        for row in range(numbers[COUNT]):
            last = columns - 1
            while last >= 0 and not visible[row, last]:
                last -= 1
            room.owners[begin + row] = number
            room.ends[begin + row] = numbers[COMMITTED] + numbers[COUNT] - columns + last + 1
    if whole:
        sharing.announce_call(state, table)
    raised = run_part_or_abandon_call(state, table, 0)
    if whole:
        others = sharing.close_call_and_wait(state)
        if raised == 0:
            raised = others
    raise_returned_error(raised)


@exactly_within
def point_table_row_at_array(table, row, address, shape):
    """Let a row of a `NamedArrays` table stand for the array at the address."""
    table[row, 0] = address
    for axis in range(len(shape)):
        table[row, 1 + axis] = shape[axis]
