"""A Llama forward in phases, whose tasks threads share. No row's bits depend on the other rows or on who does which task."""

from typing import NamedTuple

import numpy as np

from engine.kernels import sharing
from engine.kernels.by_address import raise_returned_error
from engine.kernels.compiling import exactly_compiled, exactly_compiled_without_python_entry
from engine.kernels.elementwise import apply_silu_gate, copy_row
from engine.kernels.exact_attention import TOGETHER, exact_dot
from engine.kernels.named_arrays import (
    FIELDS,
    ByteRows,
    FloatCube,
    FloatScalar,
    Ids,
    Matrix,
    Table,
    Vector,
    count_arrays,
    point_table_row_at_array,
    table_row_of,
    unpack_named_arrays,
)
from engine.kernels.rounded import GROUP, rotate_and_round_row
from engine.kernels.sequences import (
    COMMITTED,
    COUNT,
    EACH,
    FIRST,
    KV,
    VISIBLE,
    attend_claimed_query_blocks,
    prepare_queries_and_write_kv_of_claimed_rows,
    read_sequence_arrays,
    rms_norm_row,
)
from engine.kernels.stored import (
    BLOCK,
    ROUNDED,
    StoredMatrix,
    block_arguments_of,
    bytes_of_rounded_row,
    multiply_block_and_add_bias,
    recompute_likeliest_logits,
)


class TargetOuterWeights(NamedTuple):
    """What comes before and after the layers: the last norm times sqrt(H), rotations by position, and what keeps norms from zero.

    `unrounded_head [V, H]` is that of a `head` in eight bits, and has no rows beside another.
    """

    embedding: Matrix
    norm: Vector
    head: StoredMatrix
    unrounded_head: Matrix
    rotations: FloatCube
    norm_floor: FloatScalar
    head_norm_floor: FloatScalar


class TargetLayerWeights(NamedTuple):
    """A layer. Norms are times sqrt(H), those of heads if any, `head_norm_scales [heads + kv_heads, head_dim]` times sqrt(head_dim)."""

    norm: Vector
    qkv: StoredMatrix
    head_norm_scales: Matrix
    out: StoredMatrix
    norm_mlp: Vector
    gate: StoredMatrix
    up: StoredMatrix
    down: StoredMatrix


class ForwardWorkspace(NamedTuple):
    """The call's own arrays, for N rows: what it reads, its working space, and what it writes.

    `call_limits [3]` holds the first row whose result is wanted behind the last layer, how many threads work, and how many layers there
    are. Row n belongs to the sequence `sequence_by_row[n]` and sees no key of it from row `ends[n]` on. `sequences [EACH * B, 6]` is
    a table of `engine.kernels.sequences`, `single_sequence_table` room for a single one's. `claims` counts tasks, see
    `engine.kernels.sharing`.
    """

    call_limits: Ids
    ends: Ids
    sequence_by_row: Ids
    claims: Ids
    single_sequence_table: Table
    x: Matrix
    normed: Matrix
    more: Matrix
    qkv: Matrix
    attended: Matrix
    gated: Matrix
    rounded: ByteRows
    rounded_gated: ByteRows
    ids: Ids = np.zeros(0, np.int64)  # and all behind it belong to the caller
    positions: Ids = np.zeros(0, np.int64)
    taps: Ids = np.zeros(0, np.int64)
    sequences: Table = np.zeros((0, FIELDS), np.int64)
    logits: Matrix = np.zeros((0, 0), np.float32)
    features: FloatCube = np.zeros((0, 0, 0), np.float32)


class ThreadWorkspace(NamedTuple):
    """A thread's own working space: products of a block, what attention gave as it enters a product in eight bits and room for a group
    of it, and what `TOGETHER` queries need in attention.
    """

    gates: np.ndarray
    ups: np.ndarray
    spare: np.ndarray
    rounded: np.ndarray
    group: np.ndarray
    asking: np.ndarray
    mixed: np.ndarray
    visible: np.ndarray
    ends: np.ndarray
    scores: np.ndarray
    totals: np.ndarray


ENDS, LAYER, ROOM = count_arrays(TargetOuterWeights), count_arrays(TargetLayerWeights), count_arrays(ForwardWorkspace)
PHASES = 8  # of a layer; one more begins and two end a forward
# Spaces with a row for each of a call's
SHARED = ("x", "normed", "more", "qkv", "attended", "gated", "rounded", "rounded_gated")
SPACES = tuple(table_row_of(ForwardWorkspace, name) for name in SHARED)
IDS, POSITIONS, TAPS = (table_row_of(ForwardWorkspace, name) for name in ("ids", "positions", "taps"))
SEQUENCES, LOGITS, FEATURES = (table_row_of(ForwardWorkspace, name) for name in ("sequences", "logits", "features"))


@exactly_compiled_without_python_entry
def count_output_blocks(matrix):
    return -(-matrix.shape[0] // matrix.shape[2])


@exactly_compiled_without_python_entry
def multiply_claimed_blocks(task_cursor, x, rounded, matrix, out, thread_workspace):
    """The product of `x [n, in]` and a matrix, `out [n, out]`. `rounded` is as in `block_arguments_of`."""
    product, blocks = block_arguments_of(x, rounded, matrix), count_output_blocks(matrix)
    target, apart, spare = np.int64(out.ctypes.data), 4 * out.shape[1], np.int64(thread_workspace.spare.ctypes.data)
    task = sharing.claim_task_or_finish_phase(task_cursor, blocks)
    while task >= 0:
        multiply_block_and_add_bias(product, task, target + 4 * task * product.width, apart, spare)
        task = sharing.claim_task_or_finish_phase(task_cursor, blocks)


@exactly_compiled_without_python_entry
def round_row_if_wanted(row, rounded_row, first_group, thread_workspace):
    """`rounded.rotate_and_round_row`, where the layers' matrices are in eight bits and there is room for it."""
    if len(rounded_row) > 0:
        rotate_and_round_row(row, rounded_row, first_group, thread_workspace.group)


@exactly_compiled_without_python_entry
def embed_and_norm_claimed_rows(task_cursor, workspace, outer_weights, norm_weight, thread_workspace):
    """The tokens' embeddings and their first norm."""
    count = len(workspace.ids)
    row = sharing.claim_task_or_finish_phase(task_cursor, count)
    while row >= 0:
        copy_row(outer_weights.embedding[workspace.ids[row]], workspace.x[row])
        rms_norm_row(workspace.x[row], norm_weight, outer_weights.norm_floor, workspace.normed[row])
        round_row_if_wanted(workspace.normed[row], workspace.rounded[row], np.int64(0), thread_workspace)
        row = sharing.claim_task_or_finish_phase(task_cursor, count)


@exactly_compiled_without_python_entry
def multiply_and_gate_claimed_blocks(task_cursor, workspace, layer, first_row, thread_workspace):
    """silu(gate) * up of the rows from `first_row` on. In eight bits a task is a whole group, and what others read of it is rounded."""
    x, width, apart = workspace.normed[first_row:], layer.gate.shape[2], np.int64(4 * BLOCK)
    rounds, columns = layer.down.shape[3] == ROUNDED, workspace.gated.shape[1]
    task_width = np.int64(GROUP) if rounds else width
    gates_of = block_arguments_of(x, workspace.rounded[first_row:], layer.gate)
    ups_of = block_arguments_of(x, workspace.rounded[first_row:], layer.up)
    gates_at, ups_at = np.int64(thread_workspace.gates.ctypes.data), np.int64(thread_workspace.ups.ctypes.data)
    spare, tasks = np.int64(thread_workspace.spare.ctypes.data), -(-columns // task_width)
    task = sharing.claim_task_or_finish_phase(task_cursor, tasks)
    while task >= 0:
        first, end = task * task_width, min(columns, (task + 1) * task_width)
        for column in range(first, end, width):
            beside = 4 * (column - first)
            multiply_block_and_add_bias(gates_of, column // width, gates_at + beside, apart, spare)
            multiply_block_and_add_bias(ups_of, column // width, ups_at + beside, apart, spare)
        for row in range(len(x)):
            gates, ups = thread_workspace.gates[row], thread_workspace.ups[row]
            if rounds:
                gated = thread_workspace.spare[row, : end - first]
                apply_silu_gate(gates, ups, gated)  # in place it would not be vectorised
                rotate_and_round_row(gated, workspace.rounded_gated[first_row + row], task, thread_workspace.group)
            else:
                apply_silu_gate(gates, ups, workspace.gated[first_row + row, first:end])
        task = sharing.claim_task_or_finish_phase(task_cursor, tasks)


@exactly_compiled_without_python_entry
def add_norm_and_tap_claimed_rows(
    task_cursor, workspace, first_row, layers_done, norm_weight, norm_floor, thread_workspace
):
    """Add `more` to the stream, for the rows from `first_row` on, and norm it for what comes next.

    `layers_done` counts the layers that are done, 0 in the middle of one. Features of negative taps are written as they are.
    """
    count, taps = len(workspace.ids) - first_row, len(workspace.taps)
    row = sharing.claim_task_or_finish_phase(task_cursor, count)
    while row >= 0:
        at = first_row + row
        x, more, normed = workspace.x[at], workspace.more[at], workspace.normed[at]
        for k in range(len(x)):
            x[k] += more[k]
        rms_norm_row(x, norm_weight, norm_floor, normed)
        round_row_if_wanted(normed, workspace.rounded[at], np.int64(0), thread_workspace)
        for tap in range(taps):
            if abs(workspace.taps[tap]) == layers_done:
                factor = np.float32(1)
                if workspace.taps[tap] > 0:
                    factor = np.sqrt(np.float32(len(x)) / (exact_dot(x, x) + np.float32(1e-12)))
                for k in range(len(x)):
                    workspace.features[row, tap, k] = x[k] * factor
        if taps and layers_done == workspace.call_limits[2]:
            copy_row(normed, workspace.features[row, taps])
        row = sharing.claim_task_or_finish_phase(task_cursor, count)


@exactly_compiled_without_python_entry
def recompute_likeliest_logits_of_claimed_rows(task_cursor, workspace, outer_weights):
    """The logits that a head in eight bits may not round, see `stored.recompute_likeliest_logits`."""
    count, last = len(workspace.logits), len(workspace.ids) - len(workspace.logits)
    row = sharing.claim_task_or_finish_phase(task_cursor, count)
    while row >= 0:
        recompute_likeliest_logits(
            workspace.logits[row], workspace.normed[last + row], outer_weights.unrounded_head, outer_weights.head.bias
        )
        row = sharing.claim_task_or_finish_phase(task_cursor, count)


@exactly_compiled_without_python_entry
def run_thread_part_of_forward(table, thread_index):
    """This thread's part of the forward whose arrays stand in `table`."""
    ends = unpack_named_arrays(TargetOuterWeights, table, 0)
    room = unpack_named_arrays(ForwardWorkspace, table, len(table) - ROOM)
    count, wanted, parts, layers = len(room.ids), room.call_limits[0], room.call_limits[1], room.call_limits[2]
    turn = sharing.make_task_cursor(room.claims, thread_index, parts)
    size, rows, columns = ends.rotations.shape[2] * 2, 0, 0
    for number in range(len(room.sequences) // EACH):
        numbers = room.sequences[EACH * number]
        rows = max(rows, numbers[COMMITTED] + numbers[COUNT])
        columns = max(columns, read_sequence_arrays(room.sequences, number).visible.shape[1])
    pieces, attended_bytes = np.empty((3, count, BLOCK), np.float32), np.int64(0)
    if room.rounded.shape[1] > 0:
        attended_bytes = bytes_of_rounded_row(room.attended.shape[1])
    queries, scores = np.empty((2, TOGETHER, size), np.float32), np.empty((TOGETHER, rows), np.float32)
    seen, seen_up_to = np.empty(TOGETHER * columns, np.bool_), np.empty(TOGETHER, np.int64)
    rounding = np.empty((count, attended_bytes), np.uint8), np.empty(GROUP, np.float32)
    rooms = queries[0], queries[1], seen, seen_up_to, scores, np.empty(TOGETHER, np.float32)
    work = ThreadWorkspace(pieces[0], pieces[1], pieces[2], *rounding, *rooms)
    every = np.int64(0)  # where slices of all rows begin: `multiply_claimed_blocks` is compiled for one type of array
    embed_and_norm_claimed_rows(turn, room, ends, unpack_named_arrays(TargetLayerWeights, table, ENDS).norm, work)
    for number in range(layers):
        layer = unpack_named_arrays(TargetLayerWeights, table, ENDS + LAYER * number)
        first, norm = every, ends.norm
        if number == layers - 1:
            first = wanted
        else:
            norm = unpack_named_arrays(TargetLayerWeights, table, ENDS + LAYER * (number + 1)).norm
        multiply_claimed_blocks(turn, room.normed[every:], room.rounded[every:], layer.qkv, room.qkv[every:], work)
        prepare_queries_and_write_kv_of_claimed_rows(turn, room, number, layer, ends)
        attend_claimed_query_blocks(turn, room, number, first, work)
        for row in range(first, count):  # every thread rounds for itself: waiting for the others would take longer
            round_row_if_wanted(room.attended[row], work.rounded[row - first], np.int64(0), work)
        multiply_claimed_blocks(turn, room.attended[first:], work.rounded, layer.out, room.more[first:], work)
        add_norm_and_tap_claimed_rows(turn, room, first, np.int64(0), layer.norm_mlp, ends.norm_floor, work)
        multiply_and_gate_claimed_blocks(turn, room, layer, first, work)
        multiply_claimed_blocks(
            turn, room.gated[first:], room.rounded_gated[first:], layer.down, room.more[first:], work
        )
        add_norm_and_tap_claimed_rows(turn, room, first, np.int64(number + 1), norm, ends.norm_floor, work)
    last = count - len(room.logits)
    multiply_claimed_blocks(turn, room.normed[last:], room.rounded[last:], ends.head, room.logits[every:], work)
    if len(ends.unrounded_head) > 0:
        recompute_likeliest_logits_of_claimed_rows(turn, room, ends)


@exactly_compiled
def forward_sequence(
    state, work_address, table, shares_with_team, thread_count, first_wanted_row,
    ids, positions, taps, visible, kv, committed_rows, logits, features,
):  # fmt: skip
    """`forward_sequences` of one sequence. Rows are written behind the first `committed_rows` of `kv`; `visible [N, M]` is over the
    last M.

    A table of one sequence that Python made would slow the small target's forward of one row by a tenth.
    """
    alone = unpack_named_arrays(ForwardWorkspace, table, len(table) - ROOM).single_sequence_table
    alone[0, FIRST], alone[0, COUNT], alone[0, COMMITTED] = 0, len(ids), committed_rows
    point_table_row_at_array(alone, VISIBLE, visible.ctypes.data, visible.shape)
    point_table_row_at_array(alone, KV, kv.ctypes.data, kv.shape)
    forward_sequences(
        state, work_address, table, shares_with_team, thread_count, first_wanted_row, len(kv),
        ids, positions, taps, alone, logits, features,
    )  # fmt: skip


@exactly_compiled
def forward_sequences(
    state, work_address, table, shares_with_team, thread_count, first_wanted_row, layer_count,
    ids, positions, taps, sequences, logits, features,
):  # fmt: skip
    """The forward of `ids [N]` at `positions [N]`, which are the rows of B sequences, one sequence's behind the other's.

    `sequences [EACH * B, 6]` is their table. Keys and values are written behind each sequence's committed rows. It writes `logits
    [n, V]` of the last n rows and, with `taps`, `features [N, taps + 1, H]`; the last layer ends with the rows from
    `first_wanted_row` on. The work is laid out for `thread_count` threads; with `shares_with_team`, the team of this `state`
    joins in. `work_address` is that of `run_thread_part_of_forward`. An error of any thread is raised here.
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
    room = unpack_named_arrays(ForwardWorkspace, table, at)
    room.call_limits[0], room.call_limits[1], room.call_limits[2] = first_wanted_row, thread_count, layer_count
    for index in range(len(room.claims)):
        room.claims[index] = 0
    for number in range(len(sequences) // EACH):
        numbers, visible = sequences[EACH * number], read_sequence_arrays(sequences, number).visible
        columns, begin = visible.shape[1], numbers[FIRST]
        for row in range(numbers[COUNT]):
            last = columns - 1
            while last >= 0 and not visible[row, last]:
                last -= 1
            room.sequence_by_row[begin + row] = number
            room.ends[begin + row] = numbers[COMMITTED] + numbers[COUNT] - columns + last + 1
    if shares_with_team:
        sharing.announce_call(state, work_address, table, room.claims)
    raised = sharing.run_part_or_abandon_call(work_address, table, np.int64(0), room.claims)
    if shares_with_team:
        others = sharing.close_call_wait_and_return_error(state)
        if raised == 0:
            raised = others
    raise_returned_error(raised)
