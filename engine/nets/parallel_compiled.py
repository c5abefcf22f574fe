"""`engine.nets.parallel` in compiled loops, eight bits; held equal by tests/fast/test_equal_to_reference.py[nets.parallel_compiled]."""

import numpy as np
import torch
import torch.nn.functional as F

from engine.kernels.attention import causal_mask
from engine.kernels.compiling import compiled_assuming_no_nan
from engine.kernels.eight_bit import EightBitMatrix, multiply_eight_bit
from engine.kernels.elementwise import add_row, copy_row, join_feature_taps_without_last
from engine.kernels.named_arrays import unpack_named_arrays
from engine.kernels.stack import (
    LAYER,
    DraftOuterWeights,
    StackConstants,
    fold_norm_and_quantise,
    head_log_q,
    run_decoder_layers,
)
from engine.nets.compiled_net import CompiledNet
from engine.nets.layer import FEATURES, Net


@compiled_assuming_no_nan
def forward_entries_and_slots(weights, rotations, kv, tokens, features, position, committed_rows, slot_count):
    """As `CompiledNet.forward_loop`; without slots there are no log-probabilities."""
    ends, entries, count = (
        unpack_named_arrays(DraftOuterWeights, weights, LAYER * len(kv)),
        len(tokens),
        len(tokens) + slot_count,
    )
    x = np.empty((count, ends.token_entries.shape[1]), np.float32)
    multiply_eight_bit(join_feature_taps_without_last(features), ends.features, x[:entries])
    for row in range(entries):
        add_row(ends.token_entries[tokens[row]], x[row])
    for row in range(entries, count):
        copy_row(ends.slots[0], x[row])
    positions, visible, start = np.arange(position, position + count), causal_mask(count), np.int64(0)
    ids, answers = tokens, 1 + slot_count
    x = run_decoder_layers(
        ends.stack, weights, rotations, kv, x, ids, ids, positions, visible, start, committed_rows, answers
    )
    if slot_count == 0:
        return x, np.empty((0, len(ends.token_entries)), np.float32)
    return x, head_log_q(x, ends)


class CompiledParallel(CompiledNet):
    forward_loop = forward_entries_and_slots

    def __init__(self, net: Net):
        config = net.config
        for_token, for_features = net.in_proj.weight.detach().split(config.hidden, 1)
        token = F.rms_norm(net.embedding.detach(), (config.hidden,))
        ends = DraftOuterWeights(
            token_entries=(token @ for_token.T).numpy(),
            head=fold_norm_and_quantise(net.head, net.final_norm),
            vocabulary=np.arange(config.vocab),
            stack=StackConstants.for_rms_norms(config.hidden, net.norms[0].eps),
            features=EightBitMatrix.quantise(for_features @ net.feat_proj.weight.detach()),
            slots=net.slot_entry().detach()[None].numpy(),
        )
        super().__init__(net, map(type(net.layers[0]).to_eight_bits, net.layers, net.norms), ends)

        # This call compiles, or loads compiled code, so that loading takes the time and no race does.
        self(self.new_cache(2), [0], torch.zeros(1, FEATURES + 1, config.feature_size), 0, 1)
