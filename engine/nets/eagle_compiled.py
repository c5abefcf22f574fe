"""`engine.nets.eagle` in compiled loops and eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.eagle_compiled]."""

import numpy as np
import torch
from torch import Tensor

from engine.forward.layer_ops import expand_log_q_to_full_vocab
from engine.forward.llama_layer import floored_l2_norms_of
from engine.kernels.by_address import compile_and_get_address
from engine.kernels.compiling import (
    compile_for_argument_types,
    compiled_assuming_no_nan,
    compiled_no_nan_without_python_entry,
)
from engine.kernels.eight_bit import EightBitMatrix, multiply_eight_bit
from engine.kernels.elementwise import copy_row, join_feature_taps_without_last
from engine.kernels.growing_compiled import BELOW
from engine.kernels.named_arrays import FIELDS, NamedArrays, unpack_named_arrays
from engine.kernels.stack import (
    ENDS,
    LAYER,
    DraftOuterWeights,
    LaneArrays,
    StackConstants,
    fold_norm_and_quantise,
    head_log_q,
    run_decoder_layers,
)
from engine.nets.compiled_net import CompiledNet
from engine.nets.layer import Net


@compiled_no_nan_without_python_entry
def outputs_and_log_q_of_entries(table, tokens, feature, positions, visible, first_row, committed_rows):
    """Outputs `[n, H]` and log-probabilities `[n, own_vocab]` of the last n of N entries, one a row of `visible`; see
    `stack.run_decoder_layers`.

    `table` are the layer, its `DraftOuterWeights` and a `LaneArrays`. What a token adds to the query/key/value product is the
    layer's bias.
    """
    ends, lane, count = (
        unpack_named_arrays(DraftOuterWeights, table, LAYER),
        unpack_named_arrays(LaneArrays, table, LAYER + ENDS),
        len(visible),
    )
    out = run_decoder_layers(
        ends.stack,
        table,
        lane.rotations,
        lane.kv,
        feature,
        tokens,
        tokens,
        positions,
        visible,
        first_row,
        committed_rows,
        count,
    )
    return out, head_log_q(out, ends)


@compiled_assuming_no_nan
def log_q_of_root(table, tokens, features, position, first_row, committed_rows):
    """Log-probabilities `[1, own_vocab]` behind the last of `tokens [N]`, the first of which stands at `position`.

    They read the target's `features [N, 4, H]`. The output becomes the first of the `round_outputs`.
    """
    ends, outs, count = (
        unpack_named_arrays(DraftOuterWeights, table, LAYER),
        unpack_named_arrays(LaneArrays, table, LAYER + ENDS).round_outputs,
        len(tokens),
    )
    feature = np.empty((count, outs.shape[1]), np.float32)
    multiply_eight_bit(join_feature_taps_without_last(features), ends.features, feature)
    positions, visible = np.arange(position, position + count), np.ones((1, 1), np.bool_)
    out, log_q = outputs_and_log_q_of_entries(table, tokens, feature, positions, visible, first_row, committed_rows)
    copy_row(out[0], outs[0])
    return log_q


@compiled_assuming_no_nan
def log_q_of_level(table, tokens, parent_outputs, positions, visible, first_row, committed_rows, first_output):
    """Log-probabilities `[n, own_vocab]` behind nodes that go on from the outputs `parent_outputs [n]`; their outputs are stored from
    `first_output` on.
    """
    outs = unpack_named_arrays(LaneArrays, table, LAYER + ENDS).round_outputs
    feature = np.empty((len(tokens), outs.shape[1]), np.float32)
    for row in range(len(tokens)):
        copy_row(outs[parent_outputs[row]], feature[row])
    out, log_q = outputs_and_log_q_of_entries(table, tokens, feature, positions, visible, first_row, committed_rows)
    for row in range(len(tokens)):
        copy_row(out[row], outs[first_output + row])
    return log_q


def compile_eagle_loops() -> None:
    """Compiles what each net of `CompiledEagle` calls, or finds its compiled code. It needs no net."""
    table, ids, features = np.empty((1, FIELDS), np.int64), np.empty(1, np.int64), np.empty((1, 1, 1), np.float32)
    compile_for_argument_types(log_q_of_root, table, ids, features, 0, 0, 0)
    compile_and_get_address(log_q_of_level, BELOW)


class CompiledEagle(CompiledNet):
    """The weights, and `open_session` for one lane's session."""

    def __init__(self, net: Net):
        config, root = net.config, net.config.hidden**0.5
        for_token, for_feature = net.layer.qkv.weight.detach().split(config.hidden, 1)
        table, norm = net.embedding.detach(), net.norm_token
        token = table / floored_l2_norms_of(table, norm.eps) * norm.weight.detach() * root
        said = (token @ for_token.T).numpy()
        ends = DraftOuterWeights(
            token_entries=said,
            head=fold_norm_and_quantise(net.unembed, net.norm_out.weight),
            vocabulary=net.vocabulary.numpy(),
            stack=StackConstants.for_rms_norms(config.hidden, net.norm_out.eps),
            features=EightBitMatrix.quantise(net.fuse.weight),
        )
        self.vocabulary = net.vocabulary
        super().__init__(net, [net.layer.to_eight_bits(net.norm_feature, for_feature)._replace(bias=said)], ends)
        compile_eagle_loops()  # so that loading takes the time and no race does

    def open_session(self, capacity: int) -> "CompiledEagleSession":
        return CompiledEagleSession(self, capacity)


class CompiledEagleSession:
    """`engine.nets.eagle.EagleSession`, compiled."""

    def __init__(self, net: CompiledEagle, capacity: int):
        self.cache, outs = net.new_cache(capacity), np.empty((capacity, net.config.hidden), np.float32)
        lane = LaneArrays(net.rotary.rotation_table(capacity), self.cache.numbers, outs)
        self.parts = NamedArrays(*net.weights.nests, lane)
        self.vocabulary, self.vocab = net.vocabulary, net.config.vocab
        self.count = 0  # this round's outputs so far

    def log_q_of_root(self, tokens: list[int], features: Tensor, first_position: int, first_row: int) -> Tensor:
        rows = self.cache.rows
        self.cache.refuse_overflow(len(tokens))
        entering = np.array(tokens), features.contiguous().numpy(), first_position, first_row, rows
        log_q = log_q_of_root(self.parts.table, *entering)
        self.cache.rows, self.count = rows + len(tokens), 1
        return expand_log_q_to_full_vocab(torch.from_numpy(log_q), self.vocabulary, self.vocab)

    def log_q_of_level(
        self, tokens: list[int], parent_outputs: list[int], positions: list[int], visible: Tensor, first_row: int
    ) -> Tensor:
        rows, count = self.cache.rows, len(tokens)
        self.cache.refuse_overflow(count)
        ids, parents, places = np.array((tokens, parent_outputs, positions))
        log_q = log_q_of_level(
            self.parts.table, ids, parents, places, np.ascontiguousarray(visible.numpy()), first_row, rows, self.count
        )
        self.cache.rows, self.count = rows + count, self.count + count
        return expand_log_q_to_full_vocab(torch.from_numpy(log_q), self.vocabulary, self.vocab)
