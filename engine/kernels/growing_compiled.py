"""`engine.policies.shared.growing` in one compiled call; held equal by tests/fast/test_equal_to_reference.py[kernels.growing_compiled].

It serves drafters that are compiled, each of which hands over the addresses of two loops: for the root, and for the levels below.
Asking such a drafter from Python once a level takes 1.4 to 1.9 times as long, and asking it so for the root alone 5 to 30 % longer.
"""

import numpy as np
from numba import types

from engine.kernels.by_address import make_call_by_address
from engine.kernels.compiling import (
    compile_for_argument_types,
    compiled_assuming_no_nan,
    compiled_no_nan_without_python_entry,
)
from engine.kernels.elementwise import write_gumbel_of_tokens, write_gumbel_row
from engine.kernels.expansion import (
    TreeExpansion,
    TreeExpansionArrays,
    add_level_and_sum_frontier_scores,
    prune_to_best_nodes,
    start_tree,
)
from engine.kernels.named_arrays import FloatCube, Ids, Mask, Matrix, Table, numba_type_of, unpack_named_arrays
from engine.kernels.ranking_compiled import compiled_top_tokens_scores_q

# A drafter's loop `root(table, tokens, features, position, first_row, committed_rows)` returns the log-probabilities `[1, K]`
# behind the last of the `tokens [N]`, of which the first stands at `position`. `table` is the drafter's own, and `features [n,
# taps + 1, H]` are the target's, if it reads any. The rows of its entries are written behind the first `committed_rows`.
ROOT = numba_type_of(Matrix)(*map(numba_type_of, (Table, Ids, FloatCube, types.int64, types.int64, types.int64)))
# Its loop `below(table, tokens, parent_outputs, positions, visible, first_row, committed_rows, first_output)` returns the
# log-probabilities `[n, K]` behind a level's nodes. `tokens [n]` and `positions [n]` are the nodes'. `parent_outputs [n]` holds
# the places of their parents, and `first_output` is the place of the first node. The nodes' rows are written behind the first
# `committed_rows`. `visible` bool `[n, M]` says which of the last M rows each may see. Neither sees a row before `first_row`.
BELOW = numba_type_of(Matrix)(*map(numba_type_of, (Table, Ids, Ids, Ids, Mask, types.int64, types.int64, types.int64)))
call_root, call_below = make_call_by_address(ROOT), make_call_by_address(BELOW)


@compiled_no_nan_without_python_entry
def noise_of_level(terms, level, vocabulary, token_count):
    """The noise `[token_count]` of a level's guesses, `[0]` when greedy."""
    noise, position = np.empty(0 if terms.greedy else token_count, np.float32), terms.root_position + 1 + level
    if len(vocabulary) > 0 and len(noise) > 0:
        write_gumbel_of_tokens(terms.seed, position, vocabulary, noise)
    elif len(noise) > 0:
        write_gumbel_row(terms.seed, position, noise)
    return noise


@compiled_assuming_no_nan
def grow_tree_with_compiled_drafter(
    root_loop_address,
    level_loop_address,
    drafter_table,
    tokens,
    features,
    position,
    first_visible_row,
    committed_rows,
    capacity,
    levels_are_free,
    vocabulary,
    expansion,
):
    """Grow a tree behind the last of `tokens [N]`. It ends early when the cache is full.

    `root_loop_address` and `level_loop_address` are the addresses of a drafter's loops, which are given `drafter_table`,
    `first_visible_row` and what `ROOT` says. With `levels_are_free` 1 levels take neither a forward nor any of the `capacity`
    rows, else 0. The drafter guesses the tokens `vocabulary [K]`; `[0]` stands for all, in their order.
    """
    arrays = unpack_named_arrays(TreeExpansionArrays, expansion, 0)
    nodes, frontier, terms, counts = arrays.nodes, arrays.frontier, arrays.terms[0], arrays.counts[0]
    start_tree(expansion, tokens[-1])
    log_q = call_root(root_loop_address, drafter_table, tokens, features, position, first_visible_row, committed_rows)
    committed_rows, position = committed_rows + len(tokens), position + len(tokens) - 1
    asked, temperature = 1, np.float32(terms.temperature)
    counts.asked = 1
    for level in range(terms.levels):
        noise = noise_of_level(terms, level, vocabulary, log_q.shape[1])
        guesses, scores, q = compiled_top_tokens_scores_q(log_q, noise, temperature, terms.width)
        if len(vocabulary) > 0:
            for row in range(len(guesses)):
                for place in range(guesses.shape[1]):
                    guesses[row, place] = vocabulary[guesses[row, place]]
        promised = add_level_and_sum_frontier_scores(expansion, guesses, scores, q)
        count, written = counts.asking, counts.asking * (1 - levels_are_free)
        enough = terms.free_promise if level + 1 > counts.asked else terms.promise
        if promised <= enough or level == terms.levels - 1 or committed_rows + written > capacity:
            break
        ids, above, positions = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
        visible = np.zeros((count, asked - 1 + count), np.bool_)
        for row in range(count):
            node, place = nodes[frontier[row]], asked + row
            node.place, ids[row], above[row] = place, node.token, nodes[node.parent].place
            positions[row] = position + node.depth
            each = frontier[row]
            while each:  # up to the root, whose row is committed
                visible[row, nodes[each].place - 1] = True
                each = nodes[each].parent
        log_q = call_below(
            level_loop_address, drafter_table, ids, above, positions, visible, first_visible_row, committed_rows, asked
        )
        counts.asked += 1 - levels_are_free
        committed_rows, asked = committed_rows + written, asked + count
    prune_to_best_nodes(expansion)


def compile_or_load_tree_growth() -> None:
    """Compiles `grow_tree_with_compiled_drafter`, or finds its compiled code."""
    table, ids, features = TreeExpansion(1, 1, 1).table, np.zeros(1, np.int64), np.zeros((1, 1, 1), np.float32)
    compile_for_argument_types(grow_tree_with_compiled_drafter, 0, 0, table, ids, features, 0, 0, 0, 0, 0, ids, table)
