"""The four curves of Learn, measured in steps: nodes, temperature, chain against tree, batch. Knows races and batches; knows no page.

A curve has lines, and a line has points. Every point is a cell of a sweep, or a batch of one size: what it wrote a pass, and how many
times plain decoding's speed that was. `engine.lab.record_curves` keeps all curves in a file, and the page measures one anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.measure.curves import batches
from engine.measure.curves.batches import (
    BatchRuns,
    build_prompt_noise_sequences,
    run_batches,
    split_batch_sizes_fitting_memory,
)
from engine.measure.curves.findings import FINDINGS
from engine.measure.curves.sweep import Sweep, SweepPlan
from engine.measure.options import load_held_out_prompts, load_page_prompts
from engine.models.pairs import LoadedPair
from engine.race import Settings
from engine.record.parsing import format_value_for_error
from engine.record.quiet import Message, MessageAndSignalGenerator, WorkSignal
from engine.record.trace import Step, Trace
from engine.systems import resolve_system_name

NODES = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
DRAWN = (4, 64)  # nodes of the trees that are drawn beside the fastest one's
TEMPERATURES = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5)
EQUAL = (2, 4, 7, 10, 13)  # nodes of both, in chain against tree: a chain has a depth of 12 at most
DEEPEST, WIDTH, SHALLOW = 12, 4, 4
SIZES = (1, 2, 4, 8, 16, 32, 64)  # sequences of a batch
TOKENS = {"nodes": 48, "temperature": 40, "chain": 48, "batch": 24}  # of every text
HEAT = 0.8  # the temperature of the hard texts
FOREIGN = (6, 7, 9)  # of the held-out hostile prompts: German, Finnish, Spanish


@dataclass
class CurveLine:
    """A line of a curve. `sweep_plan` is the sweep that measures it; a line of the batch curve has none and decodes `system`."""

    title: str
    system: str
    text_kind: str = ""  # which one of the curve's texts
    sweep_plan: SweepPlan | None = None
    points: list[Message] = field(default_factory=list)

    def to_dict(self) -> Message:
        return {"title": self.title, "text": self.text_kind, "points": self.points}


def load_curve_prompts_by_kind() -> dict[str, tuple[str, ...]]:
    """Prompts by kind: "easy" texts repeat themselves, "hard" ones are in languages that the models have hardly read."""
    domains, stranger = load_page_prompts(), load_held_out_prompts()["hostile"]
    return {
        "easy": tuple(each["prompt"] for each in domains["stories"][:3]),
        "hard": tuple(stranger[at] for at in FOREIGN),
        "each": tuple(each[min(2, len(each) - 1)]["prompt"] for each in domains.values()),
    }


def plan_curve_lines(curve_name: str, has_draft: bool) -> list[CurveLine]:
    """The curve's lines. A pair without a draft model guesses from the text alone. Raises `ValueError` for an unknown curve."""
    if not isinstance(curve_name, str) or curve_name not in TOKENS:
        raise ValueError(f"There is no curve {format_value_for_error(curve_name)}. Available: {', '.join(TOKENS)}.")
    drafter = "model" if has_draft else "lookup"
    tree, chain = (f"{drafter}/{policy}/token_match" for policy in ("best_first", "chain"))
    every = load_curve_prompts_by_kind()["each"]

    def budget(
        system: str, prompts: tuple[str, ...], nodes: tuple[int, ...], heats: tuple[float, ...], depth: int
    ) -> SweepPlan:
        return SweepPlan(
            prompts, system, "budget", (depth,), (WIDTH if system == tree else 1,), nodes, heats, TOKENS[curve_name]
        )

    def chains(prompts: tuple[str, ...], heat: float) -> SweepPlan:
        depths = tuple(nodes - 1 for nodes in EQUAL)
        return SweepPlan(prompts, chain, "shape", depths, (1,), (EQUAL[-1],), (heat,), TOKENS[curve_name])

    if curve_name == "nodes":
        return [CurveLine("draft tree", tree, sweep_plan=budget(tree, every, NODES, (0.0,), DEEPEST))]
    if curve_name == "temperature":
        most = (EQUAL[-1],)
        return [
            CurveLine("draft chain", chain, sweep_plan=budget(chain, every, most, TEMPERATURES, DEEPEST)),
            CurveLine(f"{SHALLOW}-deep tree", tree, sweep_plan=budget(tree, every, most, TEMPERATURES, SHALLOW)),
            CurveLine(f"{DEEPEST}-deep tree", tree, sweep_plan=budget(tree, every, most, TEMPERATURES, DEEPEST)),
        ]
    if curve_name == "chain":
        found = []
        for name, heat in (("easy", 0.0), ("hard", HEAT)):
            prompts = load_curve_prompts_by_kind()[name]
            found.append(CurveLine("draft chain", chain, name, chains(prompts, heat)))
            found.append(CurveLine("draft tree", tree, name, budget(tree, prompts, EQUAL, (heat,), DEEPEST)))
        return found
    sized = ["auto"] if has_draft else []
    return [CurveLine(resolve_system_name(name).title, name) for name in ("tree" if has_draft else "lookup", *sized)]


AXES = {"nodes": "nodes", "temperature": "temperature", "chain": "nodes", "batch": "sequences"}


def curve_prompts_lanes_and_max_tokens(pair: LoadedPair, curve_name: str) -> tuple[list[str], int, int]:
    """What a curve takes: prompts, lanes at once, tokens written at most. Raises `ValueError` for an unknown one."""
    plans = [line.sweep_plan for line in plan_curve_lines(curve_name, pair.draft is not None)]
    swept = [plan for plan in plans if plan]
    if not swept:
        runs = (batches.RUNS + 1) * (len(plans) + 1)
        return load_all_page_prompts(), max(SIZES), sum(SIZES) * runs * TOKENS[curve_name]
    prompts = [prompt for plan in swept for prompt in plan.prompts]
    return prompts, 2, sum(2 * len(plan.cell_settings) * len(plan.prompts) for plan in swept) * TOKENS[curve_name]


def load_all_page_prompts() -> list[str]:
    return [each["prompt"] for domain in load_page_prompts().values() for each in domain]


def curve_axis_value_of_cell(curve_name: str, sweep_cell: Message) -> float:
    """Where a sweep's cell stands on the curve's axis: its temperature, or the nodes that its tree may have."""
    if curve_name == "temperature":
        return sweep_cell["temperature"]
    return (
        sweep_cell["nodes"] if sweep_cell["width"] > 1 else 1 + sweep_cell["depth"]
    )  # a chain has no other limit than its depth


def measure_curve_in_steps(pair: LoadedPair, curve_name: str) -> MessageAndSignalGenerator:
    """Measures a curve and yields plain messages between quiet steps. Closing the iterator frees every lane.

    The first message carries "start" and the lines without points. Every point gives one, with its "line". The last one carries "end",
    the lines with all points, the "finding" in words, and "trees": steps that were drafted at one place of a text. "done" is the share.
    """
    lines = plan_curve_lines(curve_name, pair.draft is not None)
    about = {
        "curve": curve_name,
        "axis": AXES[curve_name],
        "tokens": TOKENS[curve_name],
        "pair": pair.title,
        "hardware": pair.hardware,
    }
    yield {"start": True, **about, "lines": [line.to_dict() | {"points": []} for line in lines], "done": 0.0}
    drafted: dict[tuple[int, float], list[Trace]] = {}
    if curve_name == "batch":
        yield from measure_lines_by_batches(pair, lines)
    else:
        yield from measure_lines_by_sweeps(pair, curve_name, lines, drafted)
    made = [line.to_dict() for line in lines]
    trees = list(select_trees_to_draw(curve_name, made, drafted))
    yield {"end": True, **about, "lines": made, "finding": FINDINGS[curve_name](made), "trees": trees, "done": 1.0}


def measure_lines_by_sweeps(
    pair: LoadedPair,
    curve_name: str,
    lines: list[CurveLine],
    traces_by_line_and_x: dict[tuple[int, float], list[Trace]],
) -> MessageAndSignalGenerator:
    """The points of every line, from a sweep of its own. `traces_by_line_and_x` learns the traces by line and place."""
    whole = sum(len(line.sweep_plan.cell_settings) for line in lines if line.sweep_plan)
    before = 0
    for number, line in enumerate(lines):
        assert line.sweep_plan is not None
        sweep = Sweep(pair, line.sweep_plan)
        for message in sweep.measure_cells_in_steps():
            if isinstance(message, WorkSignal):
                yield message
                continue
            done = {"done": (before + message.get("done", 0)) / whole}
            cell = message.get("cell")
            if cell and "refused" not in cell:
                kept = ("tau", "speedup", "mean_nodes", "identical", "disturbed")
                line.points.append(
                    {"x": curve_axis_value_of_cell(curve_name, cell)} | {name: cell[name] for name in kept}
                )
                traces_by_line_and_x[number, line.points[-1]["x"]] = sweep.last_drafted_traces
                yield {"point": line.points[-1], "line": number, **done}
            elif not message.get("start"):
                yield done
        before += len(line.sweep_plan.cell_settings)


def measure_lines_by_batches(pair: LoadedPair, lines: list[CurveLine]) -> MessageAndSignalGenerator:
    """The points of every line, size by size. Sizes whose caches do not fit the memory are left out."""
    prompts, tokens, spent = load_all_page_prompts(), TOKENS["batch"], 0
    sizes, _ = split_batch_sizes_fitting_memory(pair, prompts, [*SIZES], tokens)
    sequences = build_prompt_noise_sequences(pair, prompts, Settings(prompts[0]), max(sizes, default=0))
    for each in run_batches(pair, [line.system for line in lines], sequences, sizes, tokens):
        if not isinstance(each, BatchRuns):
            yield WorkSignal.STEP if each is WorkSignal.STEP else {"done": spent / sum(sizes)}
            continue
        spent += each.batch_size
        texts = [run.tokens_by_sequence for runs in each.by_setting.values() for run in runs]
        for number, line in enumerate(lines):
            same = {"x": each.batch_size, "identical": all(one == texts[0] for one in texts)}
            line.points.append(same | each.compute_figures_against_plain(line.system))
            yield {"point": line.points[-1], "line": number, "done": spent / sum(sizes)}


# ---- trees from one place in a text


def select_trees_to_draw(
    curve_name: str, lines: list[Message], traces_by_line_and_x: dict[tuple[int, float], list[Trace]]
) -> Iterator[Message]:
    """Steps to draw: small, fastest and largest tree, or a chain and a tree, where the second one wins most over the first."""
    if curve_name == "nodes":
        [line] = lines
        best: Any = max(line["points"], key=lambda point: point["speedup"], default=None)
        asked = [(0, nodes) for nodes in sorted({*DRAWN, best["x"]})] if best else []
    elif curve_name == "chain":
        asked = [(2, EQUAL[-1]), (3, EQUAL[-1])]
    else:
        return
    steps = select_steps_where_second_gains_most([traces_by_line_and_x.get(each, []) for each in asked])
    for (number, nodes), step in zip(asked, steps, strict=False):
        yield {
            "title": lines[number]["title"],
            "nodes": nodes,
            "step": {**vars(step), "t": 0.0, "has_bonus": step.has_bonus},
        }


def select_steps_where_second_gains_most(traces_by_candidate: list[list[Trace]]) -> list[Step]:
    """Of every list's traces the steps at one position of one text: where the second one's burst is longer than the first's by most.

    Texts are the same in all lists, so a position has the same root everywhere. Empty where no position is common.
    """
    if not all(traces_by_candidate):
        return []
    places = []
    for traces in zip(*traces_by_candidate, strict=True):
        by_position = [{step.position: step for step in trace.steps if not step.end} for trace in traces]
        for position in set.intersection(*(set(each) for each in by_position)):
            steps = [each[position] for each in by_position]
            first, second, *_ = (len(step.burst) for step in steps)
            places.append((second - first, second, -position, steps))
    return max(places, key=lambda place: place[:3])[3] if places else []
