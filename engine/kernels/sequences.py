"""Keys, values and attention of a call's rows, sequence by sequence. Each sequence has a cache of its own, and sees no other's keys."""

from typing import NamedTuple

import numpy as np
from numba import carray

from engine.kernels.attention import rotate_head, write_kv_row
from engine.kernels.compiling import exactly_within
from engine.kernels.elementwise import copy_row
from engine.kernels.exact_attention import TOGETHER, attend_exactly, dot
from engine.kernels.intrinsics import pointer
from engine.kernels.named_arrays import FIELDS, Cache, Mask, NamedArrays, count_arrays, table_row_of, unpack_nest
from engine.kernels.sharing import claim_task

QUERIES = 4  # of a task of attention, at least `TOGETHER`
# Numbers of a sequence: its first row in the call, its rows there, its committed rows
FIRST, COUNT, COMMITTED = range(3)


class SequenceInputs(NamedTuple):
    """What a sequence brings to a call. `visible [n, M]` says which of the last M rows each of its n rows sees."""

    visible: Mask
    kv: Cache


EACH = 1 + count_arrays(SequenceInputs)  # rows of a table of sequences: the numbers of one, then its arrays
VISIBLE, KV = (1 + table_row_of(SequenceInputs, name) for name in ("visible", "kv"))


def table_of(sequences: list[tuple[int, SequenceInputs]]) -> np.ndarray:
    """A table of sequences, int64 `[EACH * B, FIELDS]`: of each its committed rows and its arrays. Their rows follow each other."""
    table, first = np.zeros((len(sequences), EACH, FIELDS), np.int64), 0
    for rows, (committed, arrays) in zip(table, sequences, strict=True):
        rows[0, [FIRST, COUNT, COMMITTED]] = first, len(arrays.visible), committed
        rows[1:] = NamedArrays(arrays).table
        first += len(arrays.visible)
    return table.reshape(-1, FIELDS)


@exactly_within
def read_sequence(sequences, number):
    """The arrays of a sequence, in a table of sequences."""
    return unpack_nest(SequenceInputs, sequences, EACH * number + 1)


@exactly_within
def rms_norm_row(x, weight, least, out):
    """Write the RMS norm of the row `x [n]`, whose weight comes times sqrt(n) and whose `least` is sqrt(n eps)."""
    factor = np.float32(1) / np.sqrt(dot(x, x) + least * least)
    for k in range(len(x)):
        out[k] = x[k] * factor * weight[k]


@exactly_within
def write_row_kv_and_query(workspace, row, layer, scales, ends):
    """Norm and rotate a row's queries and keys, scale its queries, and write its keys and values into its sequence's cache."""
    numbers, kv = (
        workspace.sequences[EACH * workspace.owners[row]],
        read_sequence(workspace.sequences, workspace.owners[row]).kv,
    )
    kv_heads, size, qkv = kv.shape[2], kv.shape[4], workspace.qkv[row]
    heads, (cos, sin) = len(qkv) // size - 2 * kv_heads, ends.turns[workspace.positions[row]]
    factor = np.float32(1 / np.sqrt(size))
    for head in range(heads + kv_heads):
        part = qkv[head * size : (head + 1) * size]
        if len(scales):
            rms_norm_row(part, scales[head], ends.head_least, part)
        rotate_head(part, cos, sin)
    for k in range(heads * size):
        qkv[k] *= factor
    write_kv_row(qkv, kv[layer], numbers[COMMITTED] + row - numbers[FIRST])


@exactly_within
def write_keys_and_queries(cursor, workspace, number, layer, ends):
    """The layer's keys and values in the caches, and its queries; see `write_row_kv_and_query`."""
    count = len(workspace.ids)
    row = claim_task(cursor, count)
    while row >= 0:
        write_row_kv_and_query(workspace, row, number, layer.scales, ends)
        row = claim_task(cursor, count)


@exactly_within
def attend_query_block(workspace, number, layer, head, first, last, work):
    """Attention of a sequence's queries from `first` to `last` of those that share a head's keys, a few at a time."""
    numbers, sequence = workspace.sequences[EACH * number], read_sequence(workspace.sequences, number)
    kv, begin = sequence.kv, numbers[FIRST]
    size, rows = kv.shape[4], numbers[COMMITTED] + numbers[COUNT]
    groups = workspace.attended.shape[1] // size // kv.shape[2]
    keys, values = kv[layer, 0, head, :rows], kv[layer, 1, head, :rows]
    following = keys.ctypes.data + 4 * size * kv.shape[3]  # the next head's keys
    columns = sequence.visible.shape[1]
    visible = carray(pointer(np.int64(work.visible.ctypes.data)), (TOGETHER, columns), np.bool_)
    while first < last:
        count = min(last - first, TOGETHER)
        if count == 3:
            count = 2
        for each in range(count):
            row, part = (first + each) // groups, head * groups + (first + each) % groups
            copy_row(workspace.qkv[row, part * size : (part + 1) * size], work.asking[each])
            copy_row(sequence.visible[row - begin], visible[each])
            work.ends[each] = workspace.ends[row]
        asked = work.asking[:count], keys, values, following, visible[:count], work.ends[:count]
        attend_exactly(*asked, work.scores, work.mixed[:count], work.totals)
        for each in range(count):
            row, part = (first + each) // groups, head * groups + (first + each) % groups
            copy_row(work.mixed[each], workspace.attended[row, part * size : (part + 1) * size])
        first += count


@exactly_within
def query_span_of(numbers, first, groups):
    """A sequence's queries behind the call's first `first` rows: the first one, and the one behind the last."""
    return max(numbers[FIRST], first) * groups, (numbers[FIRST] + numbers[COUNT]) * groups


@exactly_within
def count_query_blocks(numbers, first, groups):
    """How many tasks of `QUERIES` queries a sequence has for every head, behind the call's first `first` rows."""
    begin, end = query_span_of(numbers, first, groups)
    return max(0, -(-(end - begin) // QUERIES))


@exactly_within
def attend_shared(cursor, workspace, layer, first, work):
    """Attention of the rows from `first` on. A head's tasks follow each other, so the thread that has them reads its keys once."""
    kv = read_sequence(workspace.sequences, np.int64(0)).kv
    heads, groups = kv.shape[2], workspace.attended.shape[1] // kv.shape[4] // kv.shape[2]
    blocks = 0
    for number in range(len(workspace.sequences) // EACH):
        blocks += count_query_blocks(workspace.sequences[EACH * number], first, groups)
    task = claim_task(cursor, heads * blocks)
    while task >= 0:
        number, block = np.int64(0), task % blocks
        here = count_query_blocks(workspace.sequences[0], first, groups)
        while block >= here:
            number, block = number + 1, block - here
            here = count_query_blocks(workspace.sequences[EACH * number], first, groups)
        begin, end = query_span_of(workspace.sequences[EACH * number], first, groups)
        at = begin + block * QUERIES
        attend_query_block(workspace, number, layer, task // blocks, at, min(at + QUERIES, end), work)
        task = claim_task(cursor, heads * blocks)
