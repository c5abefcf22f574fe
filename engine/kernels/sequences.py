"""Keys, values and attention of a call's rows, sequence by sequence. Each sequence has a cache of its own, and sees no other's keys."""

from typing import NamedTuple

import numpy as np
from numba import carray

from engine.kernels.attention import rotate_head_in_place, write_kv_row
from engine.kernels.compiling import exactly_compiled_without_python_entry
from engine.kernels.elementwise import copy_row
from engine.kernels.exact_attention import TOGETHER, attend_in_key_order, exact_dot
from engine.kernels.intrinsics import pointer_from_address
from engine.kernels.named_arrays import (
    FIELDS,
    KVCacheArray,
    Mask,
    NamedArrays,
    count_arrays,
    table_row_of,
    unpack_named_arrays,
)
from engine.kernels.sharing import claim_task_or_finish_phase

QUERIES = 4  # of a task of attention, at least `TOGETHER`
# Numbers of a sequence: its first row in the call, its rows there, its committed rows
FIRST, COUNT, COMMITTED = range(3)


class SequenceInputs(NamedTuple):
    """What a sequence brings to a call. `visible [n, M]` says which of the last M rows each of its n rows sees."""

    visible: Mask
    kv: KVCacheArray


EACH = 1 + count_arrays(SequenceInputs)  # rows of a table of sequences: the numbers of one, then its arrays
VISIBLE, KV = (1 + table_row_of(SequenceInputs, name) for name in ("visible", "kv"))


def sequence_table_of(sequences: list[tuple[int, SequenceInputs]]) -> np.ndarray:
    """A table of sequences, int64 `[EACH * B, FIELDS]`: of each its committed rows and its arrays. Their rows follow each other."""
    table, first = np.zeros((len(sequences), EACH, FIELDS), np.int64), 0
    for rows, (committed, arrays) in zip(table, sequences, strict=True):
        rows[0, [FIRST, COUNT, COMMITTED]] = first, len(arrays.visible), committed
        rows[1:] = NamedArrays(arrays).table
        first += len(arrays.visible)
    return table.reshape(-1, FIELDS)


@exactly_compiled_without_python_entry
def read_sequence_arrays(sequences, sequence_index):
    """The arrays of a sequence, in a table of sequences."""
    return unpack_named_arrays(SequenceInputs, sequences, EACH * sequence_index + 1)


@exactly_compiled_without_python_entry
def rms_norm_row(x, weight, norm_floor, out):
    """Write the RMS norm of the row `x [n]`, whose weight comes times sqrt(n) and whose `norm_floor` is sqrt(n eps)."""
    factor = np.float32(1) / np.sqrt(exact_dot(x, x) + norm_floor * norm_floor)
    for k in range(len(x)):
        out[k] = x[k] * factor * weight[k]


@exactly_compiled_without_python_entry
def prepare_query_and_write_kv_of_row(workspace, row, layer, head_norm_scales, outer_weights):
    """Norm and rotate a row's queries and keys, scale its queries, and write its keys and values into its sequence's cache."""
    numbers, kv = (
        workspace.sequences[EACH * workspace.sequence_by_row[row]],
        read_sequence_arrays(workspace.sequences, workspace.sequence_by_row[row]).kv,
    )
    kv_heads, size, qkv = kv.shape[2], kv.shape[4], workspace.qkv[row]
    heads, (cos, sin) = len(qkv) // size - 2 * kv_heads, outer_weights.rotations[workspace.positions[row]]
    factor = np.float32(1 / np.sqrt(size))
    for head in range(heads + kv_heads):
        part = qkv[head * size : (head + 1) * size]
        if len(head_norm_scales):
            rms_norm_row(part, head_norm_scales[head], outer_weights.head_norm_floor, part)
        rotate_head_in_place(part, cos, sin)
    for k in range(heads * size):
        qkv[k] *= factor
    write_kv_row(qkv, kv[layer], numbers[COMMITTED] + row - numbers[FIRST])


@exactly_compiled_without_python_entry
def prepare_queries_and_write_kv_of_claimed_rows(task_cursor, workspace, layer_index, layer, outer_weights):
    """The layer's keys and values in the caches, and its queries; see `prepare_query_and_write_kv_of_row`."""
    count = len(workspace.ids)
    row = claim_task_or_finish_phase(task_cursor, count)
    while row >= 0:
        prepare_query_and_write_kv_of_row(workspace, row, layer_index, layer.head_norm_scales, outer_weights)
        row = claim_task_or_finish_phase(task_cursor, count)


@exactly_compiled_without_python_entry
def attend_query_block(workspace, sequence_index, layer, head, first_query, end_query, thread_workspace):
    """Attention of a sequence's queries from `first_query` to `end_query` of those that share a head's keys, a few at a time."""
    numbers, sequence = (
        workspace.sequences[EACH * sequence_index],
        read_sequence_arrays(workspace.sequences, sequence_index),
    )
    kv, begin = sequence.kv, numbers[FIRST]
    size, rows = kv.shape[4], numbers[COMMITTED] + numbers[COUNT]
    groups = workspace.attended.shape[1] // size // kv.shape[2]
    keys, values = kv[layer, 0, head, :rows], kv[layer, 1, head, :rows]
    following = keys.ctypes.data + 4 * size * kv.shape[3]  # the next head's keys
    columns = sequence.visible.shape[1]
    visible = carray(
        pointer_from_address(np.int64(thread_workspace.visible.ctypes.data)), (TOGETHER, columns), np.bool_
    )
    while first_query < end_query:
        count = min(end_query - first_query, TOGETHER)
        if count == 3:
            count = 2
        for each in range(count):
            row, part = (first_query + each) // groups, head * groups + (first_query + each) % groups
            copy_row(workspace.qkv[row, part * size : (part + 1) * size], thread_workspace.asking[each])
            copy_row(sequence.visible[row - begin], visible[each])
            thread_workspace.ends[each] = workspace.ends[row]
        asked = thread_workspace.asking[:count], keys, values, following, visible[:count], thread_workspace.ends[:count]
        attend_in_key_order(*asked, thread_workspace.scores, thread_workspace.mixed[:count], thread_workspace.totals)
        for each in range(count):
            row, part = (first_query + each) // groups, head * groups + (first_query + each) % groups
            copy_row(thread_workspace.mixed[each], workspace.attended[row, part * size : (part + 1) * size])
        first_query += count


@exactly_compiled_without_python_entry
def query_span_of(sequence_numbers, first_row, groups):
    """A sequence's queries behind the call's first `first_row` rows: the first one, and the one behind the last."""
    return max(sequence_numbers[FIRST], first_row) * groups, (
        sequence_numbers[FIRST] + sequence_numbers[COUNT]
    ) * groups


@exactly_compiled_without_python_entry
def count_query_blocks(sequence_numbers, first_row, groups):
    """How many tasks of `QUERIES` queries a sequence has for every head, behind the call's first `first_row` rows."""
    begin, end = query_span_of(sequence_numbers, first_row, groups)
    return max(0, -(-(end - begin) // QUERIES))


@exactly_compiled_without_python_entry
def attend_claimed_query_blocks(task_cursor, workspace, layer, first_row, thread_workspace):
    """Attention of the rows from `first_row` on. A head's tasks follow each other, so the thread that has them reads its keys once."""
    kv = read_sequence_arrays(workspace.sequences, np.int64(0)).kv
    heads, groups = kv.shape[2], workspace.attended.shape[1] // kv.shape[4] // kv.shape[2]
    blocks = 0
    for number in range(len(workspace.sequences) // EACH):
        blocks += count_query_blocks(workspace.sequences[EACH * number], first_row, groups)
    task = claim_task_or_finish_phase(task_cursor, heads * blocks)
    while task >= 0:
        number, block = np.int64(0), task % blocks
        here = count_query_blocks(workspace.sequences[0], first_row, groups)
        while block >= here:
            number, block = number + 1, block - here
            here = count_query_blocks(workspace.sequences[EACH * number], first_row, groups)
        begin, end = query_span_of(workspace.sequences[EACH * number], first_row, groups)
        at = begin + block * QUERIES
        attend_query_block(workspace, number, layer, task // blocks, at, min(at + QUERIES, end), thread_workspace)
        task = claim_task_or_finish_phase(task_cursor, heads * blocks)
