"""`engine.forward.llama` compiled in eight bits; held equal by tests/fast/test_equal_to_reference.py[forward.llama_eight_bit].

A whole forward is one compiled call. It is for drafts only, like every product in eight bits: rounding costs acceptance, never
losslessness. A larger draft gains from all threads, which `engine.forward.llama_compiled` gives it, exactly.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.forward.cache import KVCache
from engine.forward.llama import (
    can_use_custom_cpu_forward,
    join_biases,
    join_matrices,
    rotation_table_of_model,
    scaled_head_norms,
)
from engine.forward.sizes import head_dim_of
from engine.kernels.attention import causal_mask
from engine.kernels.compiling import can_compile_here, compiled_assuming_no_nan, compiled_no_nan_without_python_entry
from engine.kernels.eight_bit import EightBitMatrix
from engine.kernels.elementwise import copy_row, log_softmax_in_place
from engine.kernels.named_arrays import NamedArrays, unpack_named_arrays
from engine.kernels.stack import (
    LANE,
    LAYER,
    DraftOuterWeights,
    EightBitLayer,
    LaneArrays,
    StackConstants,
    fold_norm_and_quantise,
    head_logits,
    run_decoder_layers,
)

LARGEST = 2**23  # parameters of a model that is small
# Elements of a draft's largest matrix, half the embedded draft's. A draft with fewer stays in float32: its forwards would hardly get
# faster, and rounding makes its guesses worse.
LEAST = 2**18


@compiled_assuming_no_nan
def forward_logits(weights, rotations, kv, ids, positions, visible, committed_rows, last_only):
    """Logits `[N, V]` (`[1, V]` with `last_only`) of `ids [N]`. Their rows are written behind the first `committed_rows` of `kv`."""
    ends, start, asking = (
        unpack_named_arrays(DraftOuterWeights, weights, LAYER * len(kv)),
        np.int64(0),
        1 if last_only else len(ids),
    )
    x = np.empty((len(ids), ends.token_entries.shape[1]), np.float32)
    for row in range(len(ids)):
        copy_row(ends.token_entries[ids[row]], x[row])
    x = run_decoder_layers(
        ends.stack, weights, rotations, kv, x, ids, ids, positions, visible, start, committed_rows, asking
    )
    return head_logits(x, ends)


@compiled_no_nan_without_python_entry
def log_q_of_root(table, tokens, features, position, first_row, committed_rows):
    """As `engine.kernels.growing_compiled.ROOT`. A `LaneArrays` stands behind the weights, and a token's position is its row."""
    lane, count = unpack_named_arrays(LaneArrays, table, len(table) - LANE), len(tokens)
    positions, visible = np.arange(committed_rows, committed_rows + count), causal_mask(count)
    log_q = forward_logits(table, lane.rotations, lane.kv, tokens, positions, visible, committed_rows, np.bool_(True))
    log_softmax_in_place(log_q)
    return log_q


@compiled_no_nan_without_python_entry
def log_q_of_level(table, tokens, parent_outputs, positions, visible, first_row, committed_rows, first_output):
    """As `engine.kernels.growing_compiled.BELOW`, with the `table` of `log_q_of_root`."""
    lane = unpack_named_arrays(LaneArrays, table, len(table) - LANE)
    log_q = forward_logits(table, lane.rotations, lane.kv, tokens, positions, visible, committed_rows, np.bool_(False))
    log_softmax_in_place(log_q)
    return log_q


def can_run_in_eight_bits(model: PreTrainedModel) -> bool:
    """Whether `EightBitLlama` computes this model of `FAMILIES`: float32, few weights, no biases after attention."""
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
    biased = attention.o_proj.bias is not None or mlp.down_proj.bias is not None
    return model.dtype == torch.float32 and not biased and model.num_parameters() <= LARGEST


def should_draft_in_eight_bits(draft: PreTrainedModel) -> bool:
    """Whether to compute a draft in eight bits, by its size. A timing could decide differently at the next load, and change texts."""
    return (
        can_use_custom_cpu_forward(draft)
        and can_run_in_eight_bits(draft)
        and max(each.numel() for each in draft.parameters()) >= LEAST
        and can_compile_here()
    )


def quantise_llama_layer(layer: torch.nn.Module, scales: Tensor | None) -> EightBitLayer:
    """A layer whose parts have the names of Llama's, as compiled loops take it. `scales` are those of `scaled_head_norms`."""
    attention, mlp = layer.self_attn, layer.mlp
    inward = attention.q_proj, attention.k_proj, attention.v_proj
    bias, out_bias = join_biases(*inward), join_biases(attention.o_proj)
    beside: dict[str, Any] = {
        "bias": None if bias is None else bias[None],
        "head_norm_scales": scales,
        "out_bias": out_bias,
    }
    return EightBitLayer(
        qkv=fold_norm_and_quantise(join_matrices(*inward), layer.input_layernorm.weight),
        out=EightBitMatrix.quantise(attention.o_proj.weight),
        gate_up=fold_norm_and_quantise(
            join_matrices(mlp.gate_proj, mlp.up_proj), layer.post_attention_layernorm.weight
        ),
        down=EightBitMatrix.quantise(mlp.down_proj.weight),
        **{name: each.numpy() for name, each in beside.items() if each is not None},
    )


class EightBitLlama:
    """The weights of a model that `can_run_in_eight_bits`, and its forward. It is called like a `TensorLlama`."""

    def __init__(self, model: PreTrainedModel):
        config, size = model.config, head_dim_of(model.config)
        counts = config.num_attention_heads, config.num_key_value_heads
        layers = [quantise_llama_layer(each, scaled_head_norms(each.self_attn, *counts)) for each in model.model.layers]
        ends = DraftOuterWeights(
            token_entries=model.model.embed_tokens.weight.detach().numpy(),
            head=fold_norm_and_quantise(model.lm_head.weight, model.model.norm.weight),
            vocabulary=np.arange(len(model.lm_head.weight)),
            stack=StackConstants.for_rms_norms(config.hidden_size, config.rms_norm_eps, size),
        )
        self.weights, self.rotations = NamedArrays(*layers, ends), rotation_table_of_model(model).numpy()

    def weights_and_lane_arrays(self, cache: KVCache) -> NamedArrays:
        """What `log_q_of_level` reads: the weights and one lane's cache."""
        return NamedArrays(*self.weights.nests, LaneArrays(self.rotations, cache.numbers))

    def __call__(self, cache, ids, positions, visible, last_only, taps=()) -> tuple[Tensor, None]:
        """As `TensorLlama.__call__`; drafts have no `taps`."""
        seen = np.ones((1, 1), np.bool_) if visible is None else np.ascontiguousarray(visible.numpy())
        where = self.rotations, cache.numbers, ids.numpy(), positions.numpy(), seen, cache.rows
        return torch.from_numpy(forward_logits(self.weights.table, *where, last_only)), None
