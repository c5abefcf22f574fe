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
from engine.lab.gpu.correctness import compare_gumbel_noise_and_tree_logits, count_cuda_syncs_per_round
from engine.lab.gpu.costs import (
    ROWS,
    SHAPES,
    build_random_llama,
    count_matrix_parameters,
    measure_weight_and_kv_cache_mib,
    median_forward_ms_by_way_and_row_count,
    quantise_to_nf4,
)
from engine.lab.gpu.grown import DRAFTS, TARGET, build_enlarged_pair
from engine.measure.options import create_parent_and_validate_output_path, first_held_out_prompts
from engine.models.loading import hardware_name, load_pair_anew, validate_or_choose_device
from engine.models.pairs import PAIRS, LoadedPair
from engine.race import Settings

RESULTS = Path(__file__).parents[3] / "assets" / "results"
SECONDS = 420  # no section starts later than this
FEW_ROWS = "nf4, few rows by our kernel"


@dataclass(frozen=True)
class GpuMeasurementWorkload:
    """How much is measured. `enlarged_pair_systems` are the systems of the grown pairs."""

    prompt_count: int = 4
    max_new_tokens: int = 128
    small_pair_systems: tuple[str, ...] = (
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
    enlarged_pair_systems: tuple[str, ...] = (
        *("tree", "chain", "dyspec", "auto", "lookup", "eagle", "dspark", "dflash", "parallel-tree", "medusa"),
    )
    temperatures: tuple[float, ...] = (0.0, 0.8)
    timed_model_sizes: tuple[str, ...] = ("1B", "8B", "14B")
    timed_row_counts: tuple[int, ...] = ROWS
    timing_repeats: int = 15

    def build_race_settings_without_prompt(self, systems: tuple[str, ...], temperature: float) -> Settings:
        """The settings of a race. Its prompt is filled in later."""
        return Settings("a prompt", systems, temperature=temperature, max_new_tokens=self.max_new_tokens)


QUICK = GpuMeasurementWorkload(
    prompt_count=1,
    max_new_tokens=48,
    small_pair_systems=("tree",),
    enlarged_pair_systems=("tree",),
    temperatures=(0.0,),
    timed_row_counts=(1, 8, 32),
    timing_repeats=5,
)


def run_or_explain_failure(work: Callable[[], object]) -> object:
    """What the work gives, or a sentence on why it failed: one failure must not lose what else is measured."""
    try:
        return work()
    except Exception as error:
        return f"Failed: {type(error).__name__}: {' '.join(str(error).split())[:400]}"


class TimeLimitedJsonReport:
    """Figures by section, written to a file after each section. A failed section has a sentence in place of its figures."""

    def __init__(self, path: Path):
        self.path, self.begun, self.figures = path, time.perf_counter(), {}

    def run_section_and_write_file(self, name: str, measure: Callable[[], object]) -> None:
        started = time.perf_counter()
        late = started - self.begun > SECONDS
        too_late = f"Left out: {SECONDS:.0f} seconds were used up before it."
        self.figures[name] = too_late if late else run_or_explain_failure(measure)
        said = self.figures[name] if isinstance(self.figures[name], str) else "done"
        print(f"{name}: {said} ({time.perf_counter() - started:.0f} s)", flush=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")


def race_by_temperature(
    pair: LoadedPair, prompts: list[str], workload: GpuMeasurementWorkload, systems: tuple[str, ...]
) -> dict:
    """The bench's figures by temperature, all systems beside one baseline."""

    def race_at_temperature(temperature: float) -> dict:
        return bench.race_prompts_and_compute_figures(
            pair, prompts, workload.build_race_settings_without_prompt(systems, temperature)
        )

    return {
        f"T = {temperature:g}": run_or_explain_failure(partial(race_at_temperature, temperature))
        for temperature in workload.temperatures
    }


def build_and_race_enlarged_pair(
    draft_size: str,
    device: torch.device,
    prompts: list[str],
    workload: GpuMeasurementWorkload,
    four_bit_target: bool = False,
) -> dict:
    """`race_by_temperature` of a grown pair, and its parameters. Its memory is given back at the end."""
    pair = build_enlarged_pair(draft_size, device, four_bit_target)
    found = {
        "parameters": {"target": count_matrix_parameters(TARGET), "draft": count_matrix_parameters(DRAFTS[draft_size])}
    }
    found |= race_by_temperature(pair, prompts, workload, workload.enlarged_pair_systems)
    del pair
    empty_device_memory(device)
    return found


def empty_device_memory(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def measure_costs_and_memory_by_precision(
    config: LlamaConfig, device: torch.device, workload: GpuMeasurementWorkload
) -> dict:
    """Cost curve and memory of one shape in bfloat16, in NF4 by bitsandbytes and by our kernel. What fails has a sentence instead."""
    found: dict[str, object] = {"parameters": count_matrix_parameters(config)}
    model = build_random_llama(config, device)

    def measure_in_precision(precision: str) -> dict[str, object]:
        """Fails without bitsandbytes, or without memory."""
        if precision == "nf4":
            quantise_to_nf4(model)
        if precision == FEW_ROWS and not install_nf4_few_rows_kernel(model):
            raise ImportError("The kernel for few rows needs Triton and NF4 weights.")
        runner = Runner(model)
        return {
            **median_forward_ms_by_way_and_row_count(
                runner, workload.timed_row_counts, repeats=workload.timing_repeats
            ),
            "memory": measure_weight_and_kv_cache_mib(runner),
        }

    for precision in ("bf16", "nf4", FEW_ROWS):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        found[precision] = run_or_explain_failure(partial(measure_in_precision, precision))
        empty_device_memory(device)
    return found


def run_all_gpu_measurements(
    report: TimeLimitedJsonReport, device: torch.device, workload: GpuMeasurementWorkload
) -> None:
    """All sections in order, for the small embedded pair on this device."""
    prompts = first_held_out_prompts("stories", workload.prompt_count)
    pairs = {dtype: load_pair_anew(PAIRS["small"], str(device), dtype) for dtype in ("fp32", "bf16")}
    report.run_section_and_write_file("machine", lambda: {"name": hardware_name(device), "torch": torch.__version__})
    report.run_section_and_write_file("correctness", lambda: compare_gumbel_noise_and_tree_logits(pairs))
    for name in DRAFTS:
        report.run_section_and_write_file(
            f"grown pair, draft {name}", partial(build_and_race_enlarged_pair, name, device, prompts, workload)
        )
    in_four_bits = partial(build_and_race_enlarged_pair, "0.4B", device, prompts, workload, four_bit_target=True)
    report.run_section_and_write_file("grown pair in NF4, draft 0.4B", in_four_bits)
    for name in workload.timed_model_sizes:
        report.run_section_and_write_file(
            f"costs {name}", lambda name=name: measure_costs_and_memory_by_precision(SHAPES[name], device, workload)
        )
    report.run_section_and_write_file(
        "embedded races",
        lambda: {
            dtype: race_by_temperature(pair, prompts, workload, workload.small_pair_systems)
            for dtype, pair in pairs.items()
        },
    )
    waits = partial(
        count_cuda_syncs_per_round,
        pairs["bf16"],
        prompts[0],
        ("vanilla", *workload.small_pair_systems),
        workload.max_new_tokens // 4,
    )
    report.run_section_and_write_file("host waits", waits)


def main(options: Namespace) -> None:
    if not torch.cuda.is_available():
        raise ValueError("There is no CUDA GPU here, so there is nothing to measure. Run it on a machine that has one.")
    device = validate_or_choose_device("cuda")
    name = re.sub(r"[^a-z0-9]+", "-", hardware_name(device).lower()).strip("-")
    report = TimeLimitedJsonReport(create_parent_and_validate_output_path(options.out or RESULTS / f"gpu-{name}.json"))
    run_all_gpu_measurements(report, device, QUICK if options.quick else GpuMeasurementWorkload())
    print(report.path)
