"""`python -m engine floor`: how near a forward on this CPU comes to what the machine can do, by model, context, tree and threads.

One token reads every stored weight once. So its least time is the time in which a plain loop reads as many bytes, on as many threads.
`share` is that least time over the time of a forward with one node. Models are random Llamas; their weights are stored in 32 or 16
bits. All numbers of nodes of a model take turns, and medians count.

A second table tells what a token of a prompt costs, here and in the forward with which `generate()` begins, both on all cores.
The last line is one JSON object.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from tqdm import tqdm
from transformers import PreTrainedModel

from engine.forward.llama_compiled import CompiledLlama
from engine.forward.runner import Runner
from engine.kernels.compiling import compiled
from engine.kernels.sharing import cores
from engine.measure.options import refusals
from engine.models.loading import hardware_name
from engine.rounds.timing import binary, interleaved
from engine.target import Target
from engine.train.pretrain import llama
from engine.tree import LARGEST_TREE

SIZES = {  # hidden, layers, heads, MLP
    "11M": (320, 8, 5, 896),
    "29M": (512, 8, 8, 1536),
    "63M": (768, 8, 12, 2240),
    "110M": (1024, 8, 16, 2912),
}
CONTEXTS = (128, 900)
NODES = (1, 2, 4, 8, 16, 32, 64)
STORED = {"fp16": torch.float16, "fp32": torch.float32}
VOCAB = 4096
PASSES = 5  # over the bytes in one timed reading, so that starting threads does not count


@compiled
def read_all(numbers):
    """The sum of `numbers [n]`: a loop that does nothing but read."""
    total = np.float32(0)
    for index in range(len(numbers)):
        total += numbers[index]
    return total


def reading_ms(size: int, threads: int, repeats: int) -> float:
    """Median ms in which so many threads read `size` bytes once, each its own part."""
    numbers = np.ones(size // 4, np.float32)
    parts = np.array_split(numbers, threads)

    def read(part: np.ndarray) -> None:
        for _ in range(PASSES):
            read_all(part)

    times = []
    for _ in range(repeats + 1):
        workers = [threading.Thread(target=read, args=(part,)) for part in parts[1:]]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        read(parts[0])
        for worker in workers:
            worker.join()
        times.append(1000 * (time.perf_counter() - start) / PASSES)
    return statistics.median(times[1:])


def rows(
    sizes: list[str], stored: list[str], contexts: list[int], threads: list[int], repeats: int
) -> Iterator[dict[str, object]]:
    """A row for each model, storage, number of threads and context: ms by number of nodes, and the share of the machine's bandwidth."""
    for name in sizes:
        for kind in stored:
            model = llama(*SIZES[name], VOCAB).to(STORED[kind]).float()
            for count in threads:
                runner = Runner(model, threads=count)
                if not isinstance(runner.lean, CompiledLlama):
                    raise ValueError("No compiled forward runs on this machine, so there is nothing to compare.")
                for context in contexts:
                    target = Target(runner, context + LARGEST_TREE)
                    target.prefill([token % VOCAB for token in range(context)])
                    tasks = {nodes: partial(target.verify, binary(nodes)) for nodes in NODES}
                    with runner.undisturbed():
                        ms = interleaved(runner.device, tasks, repeats, settled=True, seconds=60.0)
                    least = reading_ms(runner.lean.stored_bytes, count, repeats)
                    yield {
                        "model": name,
                        "stored": kind,
                        "mib": runner.lean.stored_bytes / 2**20,
                        "threads": count,
                        "context": context,
                        "ms": ms,
                        "reading_ms": least,
                        "share": least / ms[1],
                    }


def prompts(sizes: list[str], contexts: list[int], repeats: int) -> Iterator[dict[str, object]]:
    """A row for each model, stored in 16 bits, and context: ms a token of a prompt, ours and transformers'."""
    for name in sizes:
        model = llama(*SIZES[name], VOCAB).half().float().eval()
        runner = Runner(model)
        for context in contexts:
            ids = [token % VOCAB for token in range(context)]
            tasks: dict[str, Callable[[], object]] = {
                "ms": partial(prefill, runner, ids),
                "transformers_ms": partial(first_forward, model, ids),
            }
            times = interleaved(runner.device, tasks, repeats, settled=True, seconds=60.0)
            yield {"model": name, "context": context, **{each: ms / context for each, ms in times.items()}}


def prefill(runner: Runner, ids: list[int]) -> None:
    Target(runner, len(ids)).prefill(ids)


@torch.inference_mode()
def first_forward(model: PreTrainedModel, ids: list[int]) -> object:
    """The forward with which `generate()` begins."""
    return model(input_ids=torch.tensor([ids]), use_cache=True, logits_to_keep=1)


def line(row: dict) -> str:
    """A row of the first table for people."""
    first = f"{row['model']:>6}{row['stored']:>6}{row['mib']:>8.1f}{row['threads']:>9}{row['context']:>9}"
    times = "".join(f"{row['ms'][nodes]:>8.2f}" for nodes in NODES)
    return f"{first}{times}{row['reading_ms']:>9.2f}{100 * row['share']:>7.0f}%"


HEAD = f"{'model':>6}{'':>6}{'MiB':>8}{'threads':>9}{'context':>9}" + "".join(f"{f't({n})':>8}" for n in NODES)
HEAD += f"{'reading':>9}{'share':>8}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m engine floor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--stored", nargs="+", choices=STORED, default=list(STORED))
    parser.add_argument("--contexts", nargs="+", type=int, default=list(CONTEXTS), help="tokens before the tree")
    parser.add_argument("--threads", nargs="+", type=int, default=None, help="1 and all cores when left out")
    parser.add_argument("--repeats", type=int, default=15, help="timings of each number of nodes; the median counts")
    options = parser.parse_args(arguments)
    threads = options.threads or sorted({1, cores()})
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}.")
    if min(options.contexts) < 1 or max(options.contexts) > max(CONTEXTS):
        parser.error(f"--contexts must be between 1 and {max(CONTEXTS)}, got {options.contexts}.")
    if min(threads) < 1:
        parser.error(f"--threads must be at least 1, got {min(threads)}.")
    found: list[dict] = []
    read: list[dict] = []
    print(HEAD, flush=True)
    with refusals(parser):
        for row in rows(options.sizes, options.stored, options.contexts, threads, options.repeats):
            found.append(row)
            tqdm.write(line(row))
        print(f"\n{'model':>6}{'prompt':>9}{'ms a token':>12}{'transformers':>14}", flush=True)
        for row in prompts(options.sizes, options.contexts, options.repeats):
            read.append(row)
            tqdm.write(f"{row['model']:>6}{row['context']:>9}{row['ms']:>12.3f}{row['transformers_ms']:>14.3f}")
    print(json.dumps({"machine": hardware_name(torch.device("cpu")), "rows": found, "prompts": read}))
