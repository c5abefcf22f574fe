"""Record: a race as plain values, its lanes with what is said of them. Knows no tensor, no model, no page.

The race file is a Record in JSON. The page saves and opens it, `assets/races/` holds some, and replays and films are made from it.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

from engine.record import disturbance, headline
from engine.record.chat_turns import validate_chat_turns
from engine.record.constraint import validate_constraint
from engine.record.costs import Costs
from engine.record.files import MOST_BYTES
from engine.record.parsing import (
    CLOSED,
    FailFastList,
    NonNegativeFloat,
    StrictBool,
    build_choice_rule,
    build_json_schema_length_rule,
    convert_json_value_unvalidated,
    convert_json_value_validated,
    format_value_for_error,
    is_iso_day,
    parse_json,
    require,
    validate_equal_length,
    validate_length,
)
from engine.record.repetition import is_text_repetitive
from engine.record.trace import (
    ACCEPTED,
    ENDS,
    FAILED,
    NODES,
    ROOT,
    STEPS,
    Step,
    Trace,
    dict_without_empty_chat_turns,
    find_divergence,
    target_probability_of,
)

GUARANTEES = ("tokens", "law", "lossy")  # what a rule promises (`System.guarantee`), the best first
BY_TEXT = "text"  # in the place of a guarantee: another server wrote the lane, and it is compared by text
LANES, RUNS = (1, 8), (0, 9)  # least and most
SHOWN_LANES = (2, 3)  # in which a race can be shown side by side, a third one between the two
ROUNDED = 1e-3  # files round seconds to six digits, and sums of them less well
LONGEST_SECONDS = 86_400
SHOWN = 24  # characters of a text where it differs from another
NEAR = 0.5  # of log-probability: logits of 16 to 64 are a sixteenth to a half apart in bf16
EXACT = "fp32"  # the type in which a tree's rows have the numbers of plain decoding
WORST = ("failed", False, "lossy", "other text", "law", "text")  # verdicts other than True, the worst first
BY_NODE = ("parents", "texts", "score", "q", "p", "verdicts")  # lists with one value for each node, as `tokens` has
OF_TREES = ("tokens", *BY_NODE, "path", "favourites")  # lists that are empty in a lane without trees
OF_BRANCHES = ("branch_tokens", "favourites_tau", "deeper_steps")  # figures of a lane with trees
# Equal in all lanes of a race
SHARED = ("pair", "prompt", "prompt_tokens", "temperature", "seed", "max_new_tokens", "chat", "constraint", "turns")


@dataclass
class LaneRecord:
    """A lane: its system's title, idea and guarantee, what its forwards cost on that machine, and what it did."""

    __pydantic_config__ = CLOSED

    title: str
    idea: str
    guarantee: Annotated[str, build_choice_rule(*GUARANTEES, BY_TEXT)]
    costs: Costs
    trace: Trace


@dataclass
class Record:
    """The lanes of a race; all are compared with the first. `recorded` is the day in ISO format, "" for a race of now.

    `runs` holds the seconds of every lane by run, where the race ran several times; the lanes are of one of these runs. `busy` says
    that other programs held the processor meanwhile. Files of before lack both.
    """

    __pydantic_config__ = CLOSED

    lanes: Annotated[FailFastList[LaneRecord], build_json_schema_length_rule(*LANES)]
    recorded: str
    runs: Annotated[FailFastList[FailFastList[NonNegativeFloat]], build_json_schema_length_rule(*RUNS)] = field(
        default_factory=list
    )
    busy: StrictBool = False

    def result(self) -> dict[str, Any]:
        lanes = [(lane.trace, lane.guarantee) for lane in self.lanes]
        return compute_figures_and_compare_lanes(lanes, self.runs, self.busy)

    def to_json(self) -> str:
        values = asdict(self, dict_factory=dict_without_empty_chat_turns)
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, json_text: str) -> "Record":
        """The record in a JSON text, checked. Raises `ValueError` with a sentence that names what is wrong."""
        return cls.from_values(parse_json(json_text, MOST_BYTES))

    @classmethod
    def from_values(cls, json_values: Any) -> "Record":
        """The record in the values of a JSON text, checked. Raises `ValueError` like `from_json`."""
        record = convert_json_value_validated(cls, json_values, "")
        validate_record(record)
        return record

    @classmethod
    def from_trusted_json(cls, json_text: str) -> "Record":
        """The record in a race file of this project, unchecked (`engine.record.parsing.convert_json_value_unvalidated`)."""
        return convert_json_value_unvalidated(cls, json.loads(json_text))


def validate_record(record: Record) -> None:
    """Raises `ValueError` when no race can have had this record."""
    validate_length(record.lanes, LANES, "lanes", "lanes")
    day = record.recorded
    require(
        day == "" or is_iso_day(day), f"recorded must be a day such as 2026-01-31, got {format_value_for_error(day)}."
    )
    first = record.lanes[0].trace
    for at, lane in enumerate(record.lanes):
        where, remote = f"lanes[{at}]", lane.guarantee == BY_TEXT
        costed = min(lane.costs.verify_ms, default=remote) >= 1
        require(costed, f"{where}.costs.verify_ms must say what forwards over 1 and more nodes take.")
        validate_trace(lane.trace, f"{where}.trace", validate_remote_step if remote else validate_step)
        for name in SHARED:
            same = getattr(lane.trace, name) == getattr(first, name)
            require(same, f"{where}.trace.{name} differs from the first lane's.")
    validate_runs(record)


def validate_runs(record: Record) -> None:
    """Every run has seconds for every lane, and the lanes are those of one of them."""
    validate_length(record.runs, RUNS, "runs", "runs")
    for at, run in enumerate(record.runs):
        validate_equal_length(run, record.lanes, f"runs[{at}]", "lanes")
        most = max(run, default=0)
        require(0 < min(run) <= most <= LONGEST_SECONDS * STEPS[1], f"runs[{at}] must hold the seconds of every lane.")
    shown_run, near = [lane.trace.seconds for lane in record.lanes], partial(math.isclose, rel_tol=ROUNDED)
    of_one = [all(map(near, run, shown_run)) for run in record.runs]
    require(any(of_one) or not of_one, "runs holds no run that took the seconds of the lanes.")


def validate_trace(trace: Trace, json_path: str, validate_one_step: Callable[[Step, int, str], None]) -> None:
    validate_length(trace.steps, STEPS, f"{json_path}.steps", "steps")
    for at, step in enumerate(trace.steps):
        validate_one_step(step, at, f"{json_path}.steps[{at}]")
        goes_on = not step.end or step is trace.steps[-1]
        require(goes_on, f"{json_path}.steps[{at}] ended the text, and yet another step follows.")
    require(trace.seconds > 0, f"{json_path} took no time at all.")
    validate_constraint(trace.constraint)
    require(trace.chat or not trace.turns, f"{json_path}.turns must be empty: only a chat has earlier turns.")
    validate_chat_turns(trace.turns, trace.prompt)


def validate_remote_step(step: Step, step_index: int, json_path: str) -> None:
    """A step of a lane that another server wrote."""
    for name in OF_TREES:
        require(not getattr(step, name), f"{json_path}.{name} must be empty: a remote lane has no trees.")
    require(len(step.pieces) == 1, f"{json_path}.pieces must hold one text, got {len(step.pieces)}.")
    validate_step_index_and_seconds(step, step_index, json_path)


def validate_step(step: Step, step_index: int, json_path: str) -> None:
    """A target forward with its tree."""
    validate_length(step.tokens, NODES, f"{json_path}.tokens", "nodes")
    for name in BY_NODE:
        validate_equal_length(getattr(step, name), step.tokens, f"{json_path}.{name}", "tokens")
    for node, parent in enumerate(step.parents):
        fits = parent == -1 if node == 0 else 0 <= parent < node
        require(fits, f"{json_path}.parents is no tree: node {node} cannot have parent {parent}.")
    for node, verdict in enumerate(step.verdicts):
        require(
            (verdict == ROOT) == (node == 0), f"{json_path}.verdicts[{node}] cannot be {verdict}: the root is node 0."
        )
    above = 0
    for node in step.path:
        follows = 0 < node < len(step.parents) and step.parents[node] == above
        require(follows, f"{json_path}.path is no path: node {node} is no child of node {above}.")
        require(
            step.verdicts[node] == ACCEPTED, f"{json_path}.path holds node {node}, which was {step.verdicts[node]}."
        )
        above = node
    above = 0
    for node in step.favourites:
        follows = 0 < node < len(step.parents) and step.parents[node] == above
        require(follows, f"{json_path}.favourites is no path: node {node} is no child of node {above}.")
        above = node
    require(above not in step.parents, f"{json_path}.favourites must end at a leaf, and node {above} has children.")
    written = [*(step.tokens[node] for node in step.path), step.bonus]
    emitted = bool(step.burst) and step.burst == written[: len(step.burst)]
    require(emitted, f"{json_path}.burst must be the path's tokens and the bonus, or their beginning.")
    validate_equal_length(step.pieces, step.burst, f"{json_path}.pieces", "burst")
    whole, replayed = 1 + len(step.path), step.replayed
    require(
        replayed in (0, whole),
        f"{json_path}.replayed must be 0 or the {whole} of root and path, got {format_value_for_error(replayed)}.",
    )
    validate_step_index_and_seconds(step, step_index, json_path)
    ends = ", ".join(map(repr, ENDS))
    require(
        step.end in ENDS,
        f"{json_path}.end must be one of {ends}, got {format_value_for_error(step.end)}: a server wrote no such lane.",
    )


def validate_step_index_and_seconds(step: Step, step_index: int, json_path: str) -> None:
    """What every step has."""
    require(step.index == step_index, f"{json_path}.index must be {step_index}, got {step.index}.")
    require(max(step.seconds.values(), default=0) <= LONGEST_SECONDS, f"{json_path}.seconds holds more than a day.")


def first_and_last_of_shown_lanes(record: Record) -> list[LaneRecord]:
    """The two lanes that a page or a film shows beside each other: the first and the last. A third may race between them.

    Raises `ValueError` when there are more lanes or fewer.
    """
    count = len(record.lanes)
    many = f"{count} lane{'s' * (count != 1)}"
    fits = count in SHOWN_LANES
    require(fits, f"A race of two lanes, or of three, can be shown side by side; this one has {many}.")
    return [record.lanes[0], record.lanes[-1]]


def compute_figures_and_compare_lanes(
    traces_with_guarantees: list[tuple[Trace, str]],
    seconds_by_run: headline.SecondsByRunAndLane | None = None,
    is_processor_busy: bool = False,
) -> dict[str, Any]:
    """Figures by lane, and the comparison of every lane with the first, as plain values. A lane is a trace and its guarantee.

    - `runs`: `seconds_by_run`, the seconds of every lane by run; the lanes' own where there was one run. `speedup` is the median over
      the runs, from `least` to `most`; all other figures are of the lanes.
    - `disturbed`: a sentence where the clocks cannot be what the systems cost (`engine.record.disturbance`), else "".
    - `identical`: True when the tokens are equal. When they differ it is "law" if the rule promises only the distribution, "lossy" if
      it promises neither, and False otherwise. A lane of another server is compared by text: "text" when it is the same, "other text"
      when it is not, and "failed" when the server failed.
    - `divergence`: where the first lane that differs does so, by token, or by character where texts are compared. Its `margin` and
      `words` are those of `measure_and_describe_near_tie`.
    - `finished`: False when a lane was stopped. Then the tokens that both wrote are compared.
    - `branch_tokens`, `favourites_tau`, `deeper_steps`: what the lane's branches gave, see `branch_figures_of`; None for another
      server's.
    - `repeats`: whether the text repeats itself, which makes guessing easy (`engine.record.repetition`).
    """
    base, first_guarantee = traces_with_guarantees[0]
    seconds_by_run = seconds_by_run or [[trace.seconds for trace, _ in traces_with_guarantees]]
    ratios = headline.median_and_spread_of_speedups(
        [len(trace.tokens) for trace, _ in traces_with_guarantees], seconds_by_run
    )
    figures: list[dict[str, Any]] = []
    divergence = None
    for (trace, guarantee), ratio in zip(traces_with_guarantees, ratios, strict=True):
        by_text = trace is not base and BY_TEXT in (guarantee, first_guarantee)
        at = find_divergence(base, trace, attrgetter("text" if by_text else "tokens"))
        same: bool | str = at is None
        if by_text:
            failed = FAILED in (each.steps[-1].end for each in (base, trace) if each.steps)
            same = "failed" if failed else "text" if same else "other text"
        elif not same:
            same = judge_token_difference(guarantee, first_guarantee, base.temperature)
        if at is not None and divergence is None:
            words = [each.text[at : at + SHOWN] or "(end)" for each in (base, trace)]
            left, right = words if by_text else (base.label_token(at), trace.label_token(at))
            margin, words_on_it = (
                (None, "") if by_text or same is not False else measure_and_describe_near_tie(base, trace, at)
            )
            divergence = {"index": at, "left": left, "right": right, "margin": margin, "words": words_on_it}
        figures.append(
            {
                "name": trace.system,
                "text": trace.text,
                "tokens": len(trace.tokens),
                "seconds": trace.seconds,
                "forwards": None if guarantee == BY_TEXT else trace.target_forwards,
                "draft_forwards": trace.draft_forwards,
                "tau": None if guarantee == BY_TEXT else trace.tau,
                **(dict.fromkeys(OF_BRANCHES) if guarantee == BY_TEXT else branch_figures_of(trace)),
                "tokens_per_s": len(trace.tokens) / trace.seconds,
                "repeats": guarantee != BY_TEXT and is_text_repetitive(trace.prompt_tokens, trace.tokens),
                **ratio,
                "prefill_share": trace.phase_share("prefill"),
                "draft_share": trace.phase_share("draft"),
                "verify_share": trace.phase_share("verify"),
                "other_share": trace.phase_share("accept") + trace.phase_share("commit"),
                "identical": same,
            }
        )
    identical = select_worst_comparison_result([lane["identical"] for lane in figures])
    finished = all(trace.is_finished for trace, _ in traces_with_guarantees)
    local = [trace for trace, guarantee in traces_with_guarantees if guarantee != BY_TEXT]
    return {
        "lanes": figures,
        "identical": identical,
        "divergence": divergence,
        **ratios[-1],
        "runs": seconds_by_run,
        "busy": is_processor_busy,
        "disturbed": disturbance.describe_disturbed_clocks_of_race(local, is_processor_busy),
        "finished": finished,
    }


def branch_figures_of(trace: Trace) -> dict[str, float]:
    """What a lane's branches gave, against its favourites alone from where each of its own steps began.

    `branch_tokens` of its tokens came of branches. The favourites alone would have had `favourites_tau` tokens a target forward. In
    `deeper_steps` a chain with as many guesses, which reaches deeper than the tree, could have won more than the favourites did.
    """
    return {name: getattr(trace, name) for name in OF_BRANCHES}


def measure_and_describe_near_tie(left: Trace, right: Trace, token_index: int) -> tuple[float | None, str]:
    """How far apart in log-probability the two tokens are with which greedy lanes part, and a sentence where rounding explains it.

    Each lane tells of its own token alone; had they rounded alike, the difference would be the margin between the two best. It is None
    above temperature 0, where noise decides too, and where a lane has ended.
    """
    chances = [target_probability_of(each, token_index) for each in (left, right)]
    if left.temperature > 0 or not all(chances):
        return None, ""
    margin = abs(math.log(chances[0]) - math.log(chances[1]))
    if left.dtype == EXACT or margin > NEAR:
        return margin, ""
    return margin, (
        f"A near-tie: {left.dtype} rounds, and the two tokens are {margin:.2f} apart in log-probability. fp32 rounds far less."
    )


def judge_token_difference(guarantee: str, first_guarantee: str, temperature: float) -> bool | str:
    """What other tokens mean where the two lanes promise this: "lossy", "law", or False for a broken promise."""
    worst = max(guarantee, first_guarantee, key=GUARANTEES.index)
    return worst if worst == "lossy" or (worst == "law" and temperature > 0) else False


def select_worst_comparison_result(comparison_results: list[bool | str]) -> bool | str:
    """The worst of several verdicts, each one of `compute_figures_and_compare_lanes`'s."""
    return next((worst for worst in WORST if worst in comparison_results), True)
