"""`python -m engine bench --by size`: how near a forward on this CPU comes to what the machine can do.

It varies model, context, tree and threads. One token reads every stored weight once. So its least time is the time in which memory
gives a plain loop as many bytes, on as many threads. `share` is that least time over the time of a forward with one node: more than a
whole where a cache gives the weights. Models are random Llamas; their weights are stored in 32, 16 or 8 bits. All numbers of nodes of a
model take turns, and medians count.

A second table tells what a token of a prompt costs, here and in the forward with which `generate()` begins, both on all cores.
"""

import statistics
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from tqdm import tqdm
from transformers import PreTrainedModel

from engine.forward.llama_compiled import CompiledLlama
from engine.forward.runner import Runner
from engine.kernels.compiling import compiled_assuming_no_nan
from engine.kernels.sharing import count_usable_cores_capped
from engine.lab.train.pretrain import build_untrained_llama
from engine.models.loading import hardware_name
from engine.models.quantising import replace_with_rounded_linear
from engine.rounds.timing import binary, median_ms_interleaved
from engine.target import Target
from engine.tree import LARGEST_TREE

SIZES = {  # hidden, layers, heads, MLP
    "11M": (320, 8, 5, 896),
    "29M": (512, 8, 8, 1536),
    "63M": (768, 8, 12, 2240),
    "110M": (1024, 8, 16, 2912),
    "1B": (2048, 16, 32, 7424),
}
CONTEXTS = (128, 900)
NODES = (1, 2, 4, 8, 16, 32, 64)
STORED = {"int8": torch.int8, "fp16": torch.float16, "fp32": torch.float32}
VOCAB = 4096
APART = 2**29  # bytes that are read at least: more than four times a last cache, as STREAM asks (McCalpin 1995)


@compiled_assuming_no_nan
def sum_array_compiled(numbers):
    """The sum of `numbers [n]`: a loop that does nothing but read."""
    total = np.float32(0)
    for index in range(len(numbers)):
        total += numbers[index]
    return total


def measure_memory_read_ms(byte_count: int, thread_count: int, repeats: int) -> float:
    """Median ms in which so many threads read `byte_count` bytes from memory, each its own part."""
    count = max(byte_count, APART)
    parts = np.array_split(np.ones(count // 4, np.float32), thread_count)
    return (
        measure_parallel_calls_ms([partial(sum_array_compiled, part) for part in parts], repeats) * byte_count / count
    )


def measure_parallel_calls_ms(calls: list[Callable[[], None]], repeats: int) -> float:
    """Median ms that threads take for these parts, a thread each."""
    times = []
    for _ in range(repeats + 1):
        workers = [threading.Thread(target=part) for part in calls[1:]]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        calls[0]()
        for worker in workers:
            worker.join()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def measure_forward_ms_and_bandwidth_share(
    model_sizes: list[str], storage_types: list[str], context_lengths: list[int], thread_counts: list[int], repeats: int
) -> Iterator[dict[str, object]]:
    """A row for each model, storage, number of threads and context: ms by number of nodes, and the share of the machine's bandwidth."""
    for name in model_sizes:
        for kind in storage_types:
            model = build_random_model_of_size(name, STORED[kind])
            for count in thread_counts:
                runner = Runner(model, thread_count=count)
                if not isinstance(runner.own, CompiledLlama):
                    raise ValueError("No compiled forward runs on this machine, so there is nothing to compare.")
                for context in context_lengths:
                    target = Target(runner, context + LARGEST_TREE)
                    target.prefill_and_return_features([token % VOCAB for token in range(context)])
                    tasks = {nodes: partial(target.verify, binary(nodes)) for nodes in NODES}
                    with runner.without_torch_threads():
                        ms = median_ms_interleaved(runner.device, tasks, repeats, warm_up_each=True, max_seconds=60.0)
                    least = measure_memory_read_ms(runner.own.stored_bytes, count, repeats)
                    yield {
                        "model": name,
                        "stored": kind,
                        "mib": runner.own.stored_bytes / 2**20,
                        "threads": count,
                        "context": context,
                        "ms": ms,
                        "reading_ms": least,
                        "share": least / ms[1],
                    }


def build_random_model_of_size(size_name: str, storage_dtype: torch.dtype) -> PreTrainedModel:
    """A random Llama of this size, whose weights are stored so."""
    model = (
        build_untrained_llama(*SIZES[size_name], VOCAB)
        .to(torch.float16 if storage_dtype == torch.int8 else storage_dtype)
        .float()
    )
    return replace_with_rounded_linear(model) if storage_dtype == torch.int8 else model.eval()


def compare_prefill_ms_with_transformers(
    model_sizes: list[str], context_lengths: list[int], repeats: int
) -> Iterator[dict[str, object]]:
    """A row for each model, stored in 16 bits, and context: ms a token of a prompt, ours and transformers'."""
    for name in model_sizes:
        model = build_untrained_llama(*SIZES[name], VOCAB).half().float().eval()
        runner = Runner(model)
        for context in context_lengths:
            ids = [token % VOCAB for token in range(context)]
            tasks: dict[str, Callable[[], object]] = {
                "ms": partial(prefill_prompt, runner, ids),
                "transformers_ms": partial(run_first_generate_forward, model, ids),
            }
            times = median_ms_interleaved(runner.device, tasks, repeats, warm_up_each=True, max_seconds=60.0)
            yield {"model": name, "context": context, **{each: ms / context for each, ms in times.items()}}


def prefill_prompt(runner: Runner, token_ids: list[int]) -> None:
    Target(runner, len(token_ids)).prefill_and_return_features(token_ids)


@torch.inference_mode()
def run_first_generate_forward(model: PreTrainedModel, token_ids: list[int]) -> object:
    """The forward with which `generate()` begins."""
    return model(input_ids=torch.tensor([token_ids]), use_cache=True, logits_to_keep=1)


def format_forward_row(row: dict) -> str:
    """A row of the first table for people."""
    first = f"{row['model']:>6}{row['stored']:>6}{row['mib']:>8.1f}{row['threads']:>9}{row['context']:>9}"
    times = "".join(f"{row['ms'][nodes]:>8.2f}" for nodes in NODES)
    return f"{first}{times}{row['reading_ms']:>9.2f}{100 * row['share']:>7.0f}%"


HEAD = f"{'model':>6}{'':>6}{'MiB':>8}{'threads':>9}{'context':>9}" + "".join(f"{f't({n})':>8}" for n in NODES)
HEAD += f"{'reading':>9}{'share':>8}"


def main(options: Namespace) -> dict:
    threads = options.threads or sorted({1, count_usable_cores_capped()})
    if min(options.contexts) < 1 or max(options.contexts) > max(CONTEXTS):
        raise ValueError(f"--contexts must be between 1 and {max(CONTEXTS)}, got {options.contexts}.")
    found: list[dict] = []
    read: list[dict] = []
    print(HEAD, flush=True)
    models = len(options.sizes) * len(options.contexts)
    total = models * len(options.stored) * len(threads)
    for row in tqdm(
        measure_forward_ms_and_bandwidth_share(
            options.sizes, options.stored, options.contexts, threads, options.repeats
        ),
        "forwards",
        total,
    ):
        found.append(row)
        tqdm.write(format_forward_row(row))
    print(f"\n{'model':>6}{'prompt':>9}{'ms a token':>12}{'transformers':>14}", flush=True)
    for row in tqdm(
        compare_prefill_ms_with_transformers(options.sizes, options.contexts, options.repeats), "prompts", models
    ):
        read.append(row)
        tqdm.write(f"{row['model']:>6}{row['context']:>9}{row['ms']:>12.3f}{row['transformers_ms']:>14.3f}")
    return {"machine": hardware_name(torch.device("cpu")), "rows": found, "prompts": read}
