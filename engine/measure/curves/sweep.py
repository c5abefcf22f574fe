"""Sweep: a grid of tree shapes or budgets, each cell a race against plain decoding on the fair clock. Knows races; knows no page."""

import re
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import median

from engine.measure.racing import PromptRuns, run_races
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, Race, Settings, validate_setting
from engine.record.disturbance import describe_count_of_disturbed_races
from engine.record.headline import is_speed_ratio_a_tie
from engine.record.parsing import format_value_for_error
from engine.record.quiet import Message, MessageAndSignalGenerator, MessageIntervalTimer, WorkSignal
from engine.record.race_file import select_worst_comparison_result
from engine.record.trace import Trace
from engine.record.trace_statistics import (
    GuessCountsAfterAcceptedParent,
    pooled_seconds_per_token_with_prefill,
    pooled_tau,
    pooled_time_shares_by_phase,
)
from engine.rounds.pair_costs import PairCosts
from engine.systems import SYSTEMS, format_shape, resolve_system_name

GRIDS = {"shape": ("depth", "width"), "budget": ("nodes", "temperature")}  # the settings along x and along y
SWEPT = ("depth", "width", "nodes", "temperature")
CELLS, TOKENS, PROMPTS = 64, 200, 3  # the most of a sweep
TIE = 0.02  # speeds so close count as equal
TICK_SECONDS = 0.2  # between two messages, at each of which a sweep can be stopped
FEWEST_FORWARDS = 5  # of one size, for which a median time is given


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep measures: of `SWEPT` its grid's two take several values. Raises `ValueError` for what is senseless or too much."""

    prompts: tuple[str, ...]
    system: str = "tree"
    grid: str = "shape"
    depth: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    width: tuple[int, ...] = (1, 2, 3, 4)
    nodes: tuple[int, ...] = (16,)
    temperature: tuple[float, ...] = (0.0,)
    max_new_tokens: int = 48
    seed: int = 0

    def __post_init__(self):
        if not isinstance(self.grid, str) or self.grid not in GRIDS:
            raise ValueError(f"Unknown grid {format_value_for_error(self.grid)}. Available: {', '.join(GRIDS)}.")
        if not resolve_system_name(self.system).guesses:
            trees = ", ".join(name for name in SYSTEMS if name != BASELINE)
            raise ValueError(
                f"{format_value_for_error(self.system)} drafts no tree, so there is nothing to sweep. Choose one of {trees}."
            )
        alone = re.split("[:!]", self.system)[0]
        if alone != self.system:
            raise ValueError(
                f"A sweep gives {alone} its shapes and takes it as it should be: "
                f"name it {format_value_for_error(alone)}, not {format_value_for_error(self.system)}."
            )
        for name in SWEPT:
            object.__setattr__(self, name, self.validate_values_of(name))
        x, y = GRIDS[self.grid]
        if (count := len(getattr(self, x)) * len(getattr(self, y))) > CELLS:
            raise ValueError(f"The grid has {count:,} cells, at most {CELLS} are measured. Leave out some values.")
        if validate_setting("max_new_tokens", self.max_new_tokens) > TOKENS:
            raise ValueError(f"A sweep writes at most {TOKENS} new tokens a cell, got {self.max_new_tokens:,}.")
        prompts = tuple(self.prompts) if isinstance(self.prompts, list | tuple) else (self.prompts,)
        if not 1 <= len(prompts) <= PROMPTS:
            raise ValueError(f"A sweep takes 1 to {PROMPTS} prompts, got {len(prompts)}.")
        object.__setattr__(self, "prompts", prompts)
        for prompt in prompts:
            self.build_race_settings(prompt, (BASELINE,), self.temperature[0])

    def validate_values_of(self, setting_name: str) -> tuple[int | float, ...]:
        given = getattr(self, setting_name)
        values = tuple(
            validate_setting(setting_name, each) for each in (given if isinstance(given, list | tuple) else (given,))
        )
        if not values:
            raise ValueError(f"{setting_name.capitalize()} has no value. Give at least one.")
        if twice := [value for value, count in Counter(values).items() if count > 1]:
            raise ValueError(f"{setting_name.capitalize()} {twice[0]} is there twice. Give every value once.")
        if setting_name not in GRIDS[self.grid] and len(values) > 1:
            along = " and ".join(GRIDS[self.grid])
            raise ValueError(f"The grid varies {along}; {setting_name} takes one value, got {len(values)}.")
        return values

    @property
    def cell_settings(self) -> list[dict[str, int | float]]:
        """The settings of every cell, row by row."""
        x, y = GRIDS[self.grid]
        fixed = {name: getattr(self, name)[0] for name in SWEPT if name not in (x, y)}
        return [{**fixed, x: at_x, y: at_y} for at_y, at_x in product(getattr(self, y), getattr(self, x))]

    def build_race_settings(self, prompt: str, systems: tuple[str, ...], temperature: float) -> Settings:
        return Settings(prompt, systems, temperature=temperature, max_new_tokens=self.max_new_tokens, seed=self.seed)


class Sweep:
    """A plan at work on a pair. Raises `ValueError` when the pair lacks what the plan needs."""

    def __init__(self, pair: LoadedPair, plan: SweepPlan):
        self.pair, self.plan, self.system = pair, plan, resolve_system_name(plan.system)
        for prompt in plan.prompts:  # each must fit the context
            Race(pair, plan.build_race_settings(prompt, (BASELINE,), plan.temperature[0]))
        self.cells: list[dict] = []
        self.last_drafted_traces: list[Trace] = []  # the system's, of the last cell that was measured
        self.guesses = GuessCountsAfterAcceptedParent()
        self.verify_ms: dict[int, list[float]] = {}  # of the target's forwards, by their rows
        self.warmed: set[str] = set()
        self.ticker = MessageIntervalTimer(TICK_SECONDS)

    def measure_cells_in_steps(self) -> MessageAndSignalGenerator:
        """Runs the sweep and yields plain messages between quiet steps. Closing the iterator frees every lane.

        The first message carries "start" with the grid. Each cell gives one with "cell" and the "summary" so far. The last one carries
        "end" and all "cells". All but the first say how many cells are "done", also in part, and the seconds "left". A cell's
        "disturbed" is a sentence where its clocks were disturbed twice, else "".
        """
        cells = self.plan.cell_settings
        yield self.build_start_message()
        begun = time.monotonic()

        def progress(cells_done: int, share: float = 0) -> Message:
            done, spent = cells_done + share, time.monotonic() - begun
            return {"done": done, "left": spent / done * (len(cells) - done) if done >= 1 else None}

        for index, setting in enumerate(cells):
            cell = yield from self.measure_cell_in_steps(setting, partial(progress, index))
            self.cells.append(cell)
            yield {"cell": cell, "summary": self.build_summary(), **progress(index + 1)}
        yield {"end": True, "cells": self.cells, "summary": self.build_summary(), **progress(len(cells))}

    def build_start_message(self) -> dict:
        plan, pair, (x, y) = self.plan, self.pair, GRIDS[self.plan.grid]
        return {
            "start": True,
            "system": {"name": self.system.name, "title": self.system.title, "guarantee": self.system.guarantee},
            "grid": plan.grid,
            "x": {"name": x, "values": getattr(plan, x)},
            "y": {"name": y, "values": getattr(plan, y)},
            "fixed": {name: getattr(plan, name)[0] for name in SWEPT if name not in (x, y)},
            "cells": len(plan.cell_settings),
            "prompts": plan.prompts,
            "max_new_tokens": plan.max_new_tokens,
            "seed": plan.seed,
            "pair": pair.title,
            "hardware": pair.hardware,
            "dtype": pair.dtype,
            "costs": PairCosts(pair).get_or_measure_costs(self.system.drafter).to_dict(),
        }

    def measure_cell_in_steps(
        self, cell_setting: dict, build_progress_message: Callable[[float], Message]
    ) -> Generator[Message | WorkSignal, None, dict]:
        """Returns a cell, with its figures or why it is refused. Now and then it yields `build_progress_message` of the share that
        is done.
        """
        x, y = GRIDS[self.plan.grid]
        place = {"x": cell_setting[x], "y": cell_setting[y], **cell_setting}
        shaped = f"{self.plan.system}:{format_shape(cell_setting)}"
        whole = 2 * self.plan.max_new_tokens * len(self.plan.prompts)
        settings = self.plan.build_race_settings("a prompt", (), cell_setting["temperature"])
        results, written, done = [], 0, 0
        try:
            for each in run_races(self.pair, self.plan.prompts, [shaped], settings, warmed_systems=self.warmed):
                if isinstance(each, PromptRuns):
                    results += each.results_by_setting[shaped]
                    written += sum(len(trace.tokens) for trace in results[-1][:2])
                elif isinstance(each, Race):
                    done = max(done, written + sum(len(lane.trace.tokens) for lane in each.lanes))
                    yield (
                        build_progress_message(done / whole)
                        if self.ticker.restart_if_interval_passed()
                        else WorkSignal.STEP
                    )
        except ValueError as error:  # a shape that this system cannot grow
            return place | {"refused": str(error)}
        drafted, plain, identical, disturbed = map(list, zip(*results, strict=True))
        self.last_drafted_traces = drafted
        for trace in plain + drafted:
            self.guesses.count_guesses_of_trace(trace)
            for step in trace.steps:
                self.verify_ms.setdefault(len(step.tokens), []).append(1000 * step.seconds["verify"])
        verdict = {
            "identical": select_worst_comparison_result(identical),
            "disturbed": next(filter(None, disturbed), ""),
        }
        return {**place, **pool_cell_figures(plain, drafted), **verdict}

    def build_summary(self) -> dict:
        measured = [cell for cell in self.cells if "refused" not in cell]
        heats = dict.fromkeys(cell["temperature"] for cell in measured)
        best = [
            find_smallest_fast_and_fastest([cell for cell in measured if cell["temperature"] == heat]) for heat in heats
        ]
        disturbed = sum(bool(cell["disturbed"]) for cell in measured)
        often = {rows: ms for rows, ms in sorted(self.verify_ms.items()) if len(ms) >= FEWEST_FORWARDS}
        return {
            "best": [{"x": cell["x"], "y": cell["y"]} for cell, _ in best],
            "sentence": self.describe_best_cells(best)
            + describe_count_of_disturbed_races(disturbed, len(measured), "cells"),
            "by_depth": self.guesses.by_depth(),
            "by_rank": self.guesses.by_rank(),
            "verify_ms": {rows: median(ms) for rows, ms in often.items()},
        }

    def describe_best_cells(self, best_and_fastest_cells: list[tuple[dict, dict]]) -> str:
        if not best_and_fastest_cells:
            return f"No cell could be measured. {self.cells[0]['refused']}"
        if len(best_and_fastest_cells) > 1:
            each = (
                f"{cell['nodes']} at {cell['temperature']:g} ({format_speedup(cell)})"
                for cell, _ in best_and_fastest_cells
            )
            return f"Nodes that paid best, by temperature: {', '.join(each)}."
        cell, fastest = best_and_fastest_cells[0]
        size = f"{cell['tau']:.2f} tokens a pass, {cell['mean_nodes']:.1f} nodes a tree"
        about = f"{self.describe_cell(cell)}, {format_speedup(cell)} plain decoding’s speed, {size}"
        if is_speed_ratio_a_tie(fastest["speedup"]):
            return f"Plain decoding is as fast. Best: {about}."
        if fastest["speedup"] < 1:
            return f"Plain decoding is faster. Nearest: {about}."
        tie = f" {self.describe_cell(fastest).capitalize()} has {format_speedup(fastest)} with a larger tree."
        return f"Best: {about}.{tie if fastest is not cell else ''}"

    def describe_cell(self, cell: dict) -> str:
        if self.plan.grid == "shape":
            return f"depth {cell['depth']} and width {cell['width']}"
        return f"{cell['nodes']} nodes at temperature {cell['temperature']:g}"


def pool_cell_figures(plain_traces: list[Trace], drafted_traces: list[Trace]) -> dict:
    """A cell's figures, over all its prompts; times are the lanes' own clocks."""
    steps = [step for trace in drafted_traces for step in trace.steps]
    mine, base, shares = (
        pooled_seconds_per_token_with_prefill(drafted_traces),
        pooled_seconds_per_token_with_prefill(plain_traces),
        pooled_time_shares_by_phase(drafted_traces),
    )
    return {
        "speedup": base / mine,
        "tau": pooled_tau(drafted_traces),
        "mean_nodes": sum(len(step.tokens) for step in steps) / len(steps),
        **{f"{phase}_share": shares[phase] for phase in ("draft", "verify")},
        "ms_per_token": 1000 * mine,
        "plain_ms_per_token": 1000 * base,
        "tokens": sum(len(trace.tokens) for trace in drafted_traces),
        "forwards": len(steps),
    }


def find_smallest_fast_and_fastest(measured_cells: list[dict]) -> tuple[dict, dict]:
    """The smallest tree within `TIE` of the fastest, and the fastest. A disturbed cell is neither where another one was measured."""
    measured_cells = [cell for cell in measured_cells if not cell["disturbed"]] or measured_cells
    fastest = max(measured_cells, key=lambda cell: cell["speedup"])
    close = [cell for cell in measured_cells if cell["speedup"] >= (1 - TIE) * fastest["speedup"]]
    return min(close, key=lambda cell: (cell["mean_nodes"], -cell["speedup"])), fastest


def format_speedup(cell: dict) -> str:
    return f"{cell['speedup']:.2f}×"
