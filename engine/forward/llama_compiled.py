"""`engine.forward.llama` in one compiled call; held equal by tests/fast/test_equal_to_reference.py[forward.llama_compiled].

Weights stay in the type that the checkpoint stores, or in the eight bits of `EightBitLinear`. Beside such layers a large head is in
eight bits too, and a row's likeliest logits are computed again without rounding. No row's bits depend on the other rows or on the
number of threads, so a tree's node gets the logits that plain decoding of its path gets, bit for bit.
"""

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.forward.cache import KVCache
from engine.forward.layer_ops import LogitsAndFeatures, TappedLayers
from engine.forward.llama import join_biases, join_matrices, rotation_table_of_model, scaled_head_norms
from engine.forward.rounded_linear import EightBitLinear, has_eight_bit_head
from engine.forward.sizes import head_dim_of
from engine.kernels.by_address import compile_and_get_address
from engine.kernels.compiling import can_compile_here
from engine.kernels.exact_attention import LANES
from engine.kernels.named_arrays import FIELDS, NamedArrays
from engine.kernels.phases import (
    PHASES,
    ForwardWorkspace,
    TargetLayerWeights,
    TargetOuterWeights,
    forward_sequence,
    forward_sequences,
    run_thread_part_of_forward,
)
from engine.kernels.sequences import EACH, SequenceInputs, sequence_table_of
from engine.kernels.sharing import (
    LINE,
    WORK_ON,
    count_usable_cores_capped,
    release_team,
    thread_team_of_size,
    try_hold_team,
)
from engine.kernels.stored import ROUNDED, LargePageMemory, StoredMatrix, bytes_of_rounded_row

FEWEST = 16  # rows that working space is made for
SEEN, NO_FEATURES = np.ones((1, 1), np.bool_), np.zeros((0, 0, 0), np.float32)


def can_compile_forward(model: PreTrainedModel) -> bool:
    """Whether `CompiledLlama` computes this model of `engine.forward.llama.FAMILIES`: on a CPU, in float32 or with matrices in eight
    bits, with sizes in eights, where compiled code runs."""
    sizes = model.config.hidden_size, head_dim_of(model.config)
    on_cpu = model.device.type == "cpu"
    return on_cpu and model.dtype == torch.float32 and not any(size % LANES for size in sizes) and can_compile_here()


class CompiledLlama:
    """The weights of a model of `engine.forward.llama.FAMILIES` in float32 on a CPU, and its forward."""

    def __init__(self, model: PreTrainedModel, thread_count: int | None = None):
        """`thread_count` None takes all cores that the process may use."""
        config, self.threads = model.config, thread_count or count_usable_cores_capped()
        root, size, pieces = config.hidden_size**0.5, head_dim_of(config), LargePageMemory()
        self.vocab, self.hidden = config.vocab_size, config.hidden_size

        def norm(module: torch.nn.Module) -> np.ndarray:
            return (module.weight.detach() * root).numpy()

        def store_linears(*linears: torch.nn.Linear | EightBitLinear) -> StoredMatrix:
            matrix, bias = join_matrices(*linears), join_biases(*linears)
            if matrix.dtype == torch.int8:
                scales = torch.cat([each.scale for each in linears])
                return pieces.copy_into_pages(
                    StoredMatrix.from_rounded_codes(matrix, scales, linears[0].in_features, bias)
                )
            return pieces.copy_into_pages(StoredMatrix.store_exactly(matrix, bias, self.threads))

        head, unrounded_head = model.lm_head, np.zeros((0, 0), np.float32)
        if has_eight_bit_head(model):
            unrounded_head = head.weight.detach().numpy()
            head = EightBitLinear(head.weight, head.bias)
        layers = []
        for part in model.model.layers:
            attention, mlp = part.self_attn, part.mlp
            scales = scaled_head_norms(attention, config.num_attention_heads, config.num_key_value_heads)
            layers.append(
                TargetLayerWeights(
                    norm=norm(part.input_layernorm),
                    qkv=store_linears(attention.q_proj, attention.k_proj, attention.v_proj),
                    head_norm_scales=np.zeros((0, size), np.float32) if scales is None else scales.numpy(),
                    out=store_linears(attention.o_proj),
                    norm_mlp=norm(part.post_attention_layernorm),
                    gate=store_linears(mlp.gate_proj),
                    up=store_linears(mlp.up_proj),
                    down=store_linears(mlp.down_proj),
                )
            )
        ends = TargetOuterWeights(
            embedding=model.model.embed_tokens.weight.detach().numpy(),
            norm=norm(model.model.norm),
            head=store_linears(head),
            unrounded_head=unrounded_head,
            rotations=rotation_table_of_model(model).numpy(),
            norm_floor=np.asarray(np.sqrt(np.float32(config.hidden_size * config.rms_norm_eps))),
            head_norm_floor=np.asarray(np.sqrt(np.float32(size * config.rms_norm_eps))),
        )
        self.weights = NamedArrays(ends, *layers)
        self.stored_bytes = sum(
            each.codes.nbytes for nest in (ends, *layers) for each in nest if isinstance(each, StoredMatrix)
        )
        self.rooms: list[tuple[int, NamedArrays]] = []  # working spaces that no call uses, and for how many rows
        self.team = thread_team_of_size(self.threads)
        self.work_address = compile_and_get_address(run_thread_part_of_forward, WORK_ON)

    def take_workspace_for_rows(self, rows: int) -> tuple[int, NamedArrays]:
        """Working space for at least so many rows, and for how many."""
        while self.rooms:
            found = self.rooms.pop()
            if found[0] >= rows:
                return found
        rows = max(FEWEST, 1 << (rows - 1).bit_length())
        layer: TargetLayerWeights = self.weights.nests[1]  # type: ignore[assignment]
        counters = LINE * (self.threads + 1) * (PHASES * (len(self.weights.nests) - 1) + 3)

        def space(width: int) -> np.ndarray:
            return np.empty((rows, width), np.float32)

        def space_for_rounded_rows(width: int) -> np.ndarray:
            return np.empty((rows, bytes_of_rounded_row(width) if layer.qkv.shape[3] == ROUNDED else 0), np.uint8)

        room = ForwardWorkspace(
            call_limits=np.zeros(3, np.int64),
            ends=np.empty(rows, np.int64),
            sequence_by_row=np.empty(rows, np.int64),
            claims=np.empty(counters, np.int64),
            single_sequence_table=np.zeros((EACH, FIELDS), np.int64),
            x=space(self.hidden),
            normed=space(self.hidden),
            more=space(self.hidden),
            qkv=space(layer.qkv.shape[0]),
            attended=space(layer.out.shape[1]),
            gated=space(layer.gate.shape[0]),
            rounded=space_for_rounded_rows(self.hidden),
            rounded_gated=space_for_rounded_rows(layer.gate.shape[0]),
        )
        return rows, NamedArrays(*self.weights.nests, room)

    def __call__(
        self,
        cache: KVCache,
        ids: Tensor,
        positions: Tensor,
        visible: Tensor | None,
        last_only: bool,
        taps: TappedLayers = (),
    ) -> LogitsAndFeatures:
        """As `engine.forward.llama.TensorLlama.__call__`."""
        count = len(ids)
        logits = np.empty((1 if last_only else count, self.vocab), np.float32)
        features = np.empty((count, len(taps) + 1, self.hidden), np.float32) if taps else NO_FEATURES
        seen = SEEN if visible is None else np.ascontiguousarray(visible.numpy())
        first = 0 if taps else count - len(logits)  # features are wanted of all rows
        asked = ids.numpy(), positions.numpy(), np.array(taps, np.int64), seen, cache.numbers, cache.rows
        self.run_on_workspace(count, lambda *how: forward_sequence(*how, self.threads, first, *asked, logits, features))
        return torch.from_numpy(logits), torch.from_numpy(features) if taps else None

    def forward_batch(
        self, caches: list[KVCache], ids: Tensor, positions: Tensor, visible: list[Tensor], taps: TappedLayers = ()
    ) -> LogitsAndFeatures:
        """As `engine.forward.llama.TensorLlama.forward_batch`. Each row has the bits that it has in a call of its sequence alone."""
        count = len(ids)
        arrays = [
            SequenceInputs(np.ascontiguousarray(mask.numpy()), cache.numbers)
            for cache, mask in zip(caches, visible, strict=True)
        ]
        sequences = sequence_table_of([(cache.rows, each) for cache, each in zip(caches, arrays, strict=True)])
        logits = np.empty((count, self.vocab), np.float32)
        features = np.empty((count, len(taps) + 1, self.hidden), np.float32) if taps else NO_FEATURES
        asked = ids.numpy(), positions.numpy(), np.array(taps, np.int64), sequences
        layers = len(caches[0].kv)
        self.run_on_workspace(
            count, lambda *how: forward_sequences(*how, self.threads, 0, layers, *asked, logits, features)
        )
        return torch.from_numpy(logits), torch.from_numpy(features) if taps else None

    def run_on_workspace(self, count: int, run: Callable[[np.ndarray, int, np.ndarray, bool], None]) -> None:
        """`run(state, work_address, table, shares_with_team)` with working space for so many rows; `shares_with_team` is whether the
        team's threads join in.
        """
        room = self.take_workspace_for_rows(count)
        whole = self.threads > 1 and try_hold_team(self.team.state)
        try:
            with self.team.wake_helpers_and_measure_lost_time() if whole else nullcontext():
                run(self.team.state, self.work_address, room[1].table, whole)
        finally:
            if whole:
                release_team(self.team.state)
        self.rooms.append(room)
