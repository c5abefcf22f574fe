"""What forwards of large shapes cost, and what memory they take. Their time does not depend on weights, which are random."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from engine.forward.runner import Runner
from engine.forward.session import Session
from engine.forward.session_gpu import GraphBuckets
from engine.models.memory import GIB, build_meta_device_model
from engine.models.quantising import replace_linear_layers_except_head
from engine.rounds.timing import binary, median_ms_interleaved
from engine.tree import DraftTree

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
CONTEXT = 512  # committed rows behind which a forward is timed


def build_llama_config(
    hidden: int, layers: int, heads: int, kv_heads: int, mlp: int, vocab: int, tied: bool = False
) -> LlamaConfig:
    """A Llama of these sizes. `tied` says whether embedding and head are one matrix."""
    return LlamaConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        intermediate_size=mlp, vocab_size=vocab,
        max_position_embeddings=8192, tie_word_embeddings=tied, pad_token_id=None, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


SHAPES = {  # those of Llama 3.2 1B, Llama 3.1 8B and Qwen 2.5 14B
    "1B": build_llama_config(hidden=2048, layers=16, heads=32, kv_heads=8, mlp=8192, vocab=128_256, tied=True),
    "8B": build_llama_config(hidden=4096, layers=32, heads=32, kv_heads=8, mlp=14_336, vocab=128_256),
    "14B": build_llama_config(hidden=5120, layers=48, heads=40, kv_heads=8, mlp=13_824, vocab=152_064),
}


def count_matrix_parameters(config: LlamaConfig) -> int:
    """Weights in all, the norms left out."""
    model = build_meta_device_model(config, torch.bfloat16, "none")
    return sum(each.numel() for each in model.parameters() if each.ndim > 1)


def build_random_llama(config: LlamaConfig, device: torch.device) -> PreTrainedModel:
    """Random weights in bfloat16, drawn where they will stay. Raises `MemoryError` when the device has too little memory left."""
    needed = 2 * count_matrix_parameters(config)
    if device.type == "cuda" and needed + 2 * GIB > torch.cuda.mem_get_info(device)[0]:
        free = torch.cuda.mem_get_info(device)[0] / GIB
        raise MemoryError(f"It needs {needed / GIB:.0f} GiB and 2 GiB to work in; {free:.0f} GiB of the GPU are free.")
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa").eval()


def quantise_to_nf4(model: PreTrainedModel) -> None:
    """Turn linear layers but the head into NF4, as `engine.models.loading` loads them. Raises `ImportError` without bitsandbytes."""
    from bitsandbytes import nn as four_bit  # imported here, because nothing else in this file needs it

    def build_nf4_linear(linear: torch.nn.Linear) -> torch.nn.Module:
        outputs, inputs = linear.weight.shape
        how: dict[str, Any] = {"compress_statistics": False, "quant_type": "nf4"}
        four = four_bit.Linear4bit(inputs, outputs, linear.bias is not None, linear.weight.dtype, device="meta", **how)
        plain = four_bit.Params4bit(linear.weight.data, requires_grad=False, module=four, **how)
        four.weight = plain.to(linear.weight.device)
        return four

    replace_linear_layers_except_head(model, build_nf4_linear)


def open_session_with_zeroed_context(runner: Runner, row_counts: tuple[int, ...], use_cuda_graphs: bool) -> Session:
    """A session with `CONTEXT` committed rows of zeros, whose values change no timing; with graphs of exactly these sizes, or none."""
    session = Session(runner, CONTEXT + max(row_counts))
    if use_cuda_graphs:
        session.buckets = GraphBuckets(runner, CONTEXT + max(row_counts), (), row_counts)
        session.cache = session.buckets.cache
    session.cache.rows = CONTEXT
    return session


def median_forward_ms_by_way_and_row_count(
    runner: Runner, row_counts: tuple[int, ...] = ROWS, repeats: int = 15
) -> dict:
    """Median ms of forwards over N tree nodes by N, eager by transformers' modules and graphed, interleaved."""
    sessions = {
        name: open_session_with_zeroed_context(runner, row_counts, name == "graphed_ms")
        for name in ("eager_ms", "graphed_ms")
    }

    def forward(session: Session, tree: DraftTree) -> Callable[[], object]:
        return lambda: session.forward(tree.tokens, tree.positions(CONTEXT), tree.ancestor_mask())

    tasks = {(name, size): forward(session, binary(size)) for size in row_counts for name, session in sessions.items()}
    ms = median_ms_interleaved(runner.device, tasks, repeats)
    medians = {name: {size: ms[name, size] for size in row_counts} for name in sessions}
    return {"context": CONTEXT, "why_eager": runner.why_eager, **medians}


def measure_weight_and_kv_cache_mib(runner: Runner) -> dict[str, float]:
    """MiB of the model's weights and of 1,024 rows of its KV cache. On a GPU also the peak allocated and the reserved memory so far."""
    held = sum(each.numel() * each.element_size() for each in [*runner.model.parameters(), *runner.model.buffers()])
    kept = runner.new_cache(1024).kv
    figures = {"weights_mib": held / 2**20, "kv_1024_rows_mib": kept.numel() * kept.element_size() / 2**20}
    if runner.device.type == "cuda":
        figures["most_allocated_mib"] = torch.cuda.max_memory_allocated(runner.device) / 2**20
        figures["reserved_mib"] = torch.cuda.memory_reserved(runner.device) / 2**20
    return figures
