"""`python -m engine gpu`: everything that a GPU changes, measured in under eight minutes, as one JSON in `assets/results/`.

It measures correctness, races of the small embedded pair and of the default pair grown large, the cost of large shapes' forwards, and
memory. The default pair's target is in eight bits, so no precision could be compared with another.
Correctness compares trees with one path at a time; `python -m pytest -m gpu` holds graphs and device rounds to the loop. A section that
fails leaves a sentence, and the rest goes on.
"""

import gc
import json
import re
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from transformers import LlamaConfig

from engine.forward.nf4.layers import install_nf4_few_rows_kernel
from engine.forward.runner import Runner
from engine.lab.bench import command as bench
from engine.lab.gpu.correctness import count_host_waits, measure_correctness
from engine.lab.gpu.costs import (
    ROWS,
    SHAPES,
    build_random_llama,
    count_parameters,
    measure_cost_curve,
    measure_memory,
    quantise_to_nf4,
)
from engine.lab.gpu.grown import DRAFTS, TARGET, build_grown_pair
from engine.measure.options import first_held_out_prompts, validate_output_path
from engine.models.loading import hardware_name, load_pair_anew, validate_device
from engine.models.pairs import PAIRS, LoadedPair
from engine.race import Settings

RESULTS = Path(__file__).parents[3] / "assets" / "results"
SECONDS = 420  # no section starts later than this
FEW_ROWS = "nf4, few rows by our kernel"


@dataclass(frozen=True)
class Workload:
    """How much is measured. `written` are the systems of the grown pairs."""

    prompts: int = 4
    tokens: int = 128
    systems: tuple[str, ...] = (
        *(
            "tree",
            "eagle",
            "dspark",
            "dflash",
            "parallel-tree",
            "medusa",
            "specblock",
            "talon",
            "auto",
            "chain",
            "dyspec",
            "lookup",
        ),
    )
    written: tuple[str, ...] = (
        *("tree", "chain", "dyspec", "auto", "lookup", "eagle", "dspark", "dflash", "parallel-tree", "medusa"),
    )
    temperatures: tuple[float, ...] = (0.0, 0.8)
    shapes: tuple[str, ...] = ("1B", "8B", "14B")
    rows: tuple[int, ...] = ROWS
    repeats: int = 15

    def settings(self, systems: tuple[str, ...], temperature: float) -> Settings:
        """The settings of a race. Its prompt is filled in later."""
        return Settings("a prompt", systems, temperature=temperature, max_new_tokens=self.tokens)


QUICK = Workload(
    prompts=1, tokens=48, systems=("tree",), written=("tree",), temperatures=(0.0,), rows=(1, 8, 32), repeats=5
)


def run_or_explain_failure(work: Callable[[], object]) -> object:
    """What the work gives, or a sentence on why it failed: one failure must not lose what else is measured."""
    try:
        return work()
    except Exception as error:
        return f"Failed: {type(error).__name__}: {' '.join(str(error).split())[:400]}"


class Report:
    """Figures by section, written to a file after each section. A failed section has a sentence in place of its figures."""

    def __init__(self, path: Path):
        self.path, self.begun, self.figures = path, time.perf_counter(), {}

    def add_section(self, name: str, section: Callable[[], object]) -> None:
        started = time.perf_counter()
        late = started - self.begun > SECONDS
        too_late = f"Left out: {SECONDS:.0f} seconds were used up before it."
        self.figures[name] = too_late if late else run_or_explain_failure(section)
        said = self.figures[name] if isinstance(self.figures[name], str) else "done"
        print(f"{name}: {said} ({time.perf_counter() - started:.0f} s)", flush=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")


def race_by_temperature(pair: LoadedPair, prompts: list[str], workload: Workload, systems: tuple[str, ...]) -> dict:
    """The bench's figures by temperature, all systems beside one baseline."""

    def raced(temperature: float) -> dict:
        return bench.race_prompts_for_bench(pair, prompts, workload.settings(systems, temperature))

    return {
        f"T = {temperature:g}": run_or_explain_failure(partial(raced, temperature))
        for temperature in workload.temperatures
    }


def race_grown_pair(
    draft: str, device: torch.device, prompts: list[str], workload: Workload, four_bits: bool = False
) -> dict:
    """`race_by_temperature` of a grown pair, and its parameters. Its memory is given back at the end."""
    pair = build_grown_pair(draft, device, four_bits)
    found = {"parameters": {"target": count_parameters(TARGET), "draft": count_parameters(DRAFTS[draft])}}
    found |= race_by_temperature(pair, prompts, workload, workload.written)
    del pair
    empty_device_memory(device)
    return found


def empty_device_memory(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def measure_shape_costs(config: LlamaConfig, device: torch.device, workload: Workload) -> dict:
    """Cost curve and memory of one shape in bfloat16, in NF4 by bitsandbytes and by our kernel. What fails has a sentence instead."""
    found: dict[str, object] = {"parameters": count_parameters(config)}
    model = build_random_llama(config, device)

    def measured(precision: str) -> dict[str, object]:
        """Fails without bitsandbytes, or without memory."""
        if precision == "nf4":
            quantise_to_nf4(model)
        if precision == FEW_ROWS and not install_nf4_few_rows_kernel(model):
            raise ImportError("The kernel for few rows needs Triton and NF4 weights.")
        runner = Runner(model)
        return {**measure_cost_curve(runner, workload.rows, repeats=workload.repeats), "memory": measure_memory(runner)}

    for precision in ("bf16", "nf4", FEW_ROWS):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        found[precision] = run_or_explain_failure(partial(measured, precision))
        empty_device_memory(device)
    return found


def measure_all(report: Report, device: torch.device, workload: Workload) -> None:
    """All sections in order, for the small embedded pair on this device."""
    prompts = first_held_out_prompts("stories", workload.prompts)
    pairs = {dtype: load_pair_anew(PAIRS["small"], str(device), dtype) for dtype in ("fp32", "bf16")}
    report.add_section("machine", lambda: {"name": hardware_name(device), "torch": torch.__version__})
    report.add_section("correctness", lambda: measure_correctness(pairs))
    for name in DRAFTS:
        report.add_section(f"grown pair, draft {name}", partial(race_grown_pair, name, device, prompts, workload))
    in_four_bits = partial(race_grown_pair, "0.4B", device, prompts, workload, four_bits=True)
    report.add_section("grown pair in NF4, draft 0.4B", in_four_bits)
    for name in workload.shapes:
        report.add_section(f"costs {name}", lambda name=name: measure_shape_costs(SHAPES[name], device, workload))
    report.add_section(
        "embedded races",
        lambda: {
            dtype: race_by_temperature(pair, prompts, workload, workload.systems) for dtype, pair in pairs.items()
        },
    )
    waits = partial(count_host_waits, pairs["bf16"], prompts[0], ("vanilla", *workload.systems), workload.tokens // 4)
    report.add_section("host waits", waits)


def main(options: Namespace) -> None:
    if not torch.cuda.is_available():
        raise ValueError("There is no CUDA GPU here, so there is nothing to measure. Run it on a machine that has one.")
    device = validate_device("cuda")
    name = re.sub(r"[^a-z0-9]+", "-", hardware_name(device).lower()).strip("-")
    report = Report(validate_output_path(options.out or RESULTS / f"gpu-{name}.json"))
    measure_all(report, device, QUICK if options.quick else Workload())
    print(report.path)
