"""Record: a race as plain values, its lanes with what is said of them. Standard library only; knows no tensor, no model, no page.

The race file is a Record in JSON. The page saves and opens it, `assets/races/` holds some, and replays and films are made from it.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from engine.record.costs import Costs
from engine.record.parsing import build, parse, shown
from engine.record.trace import ACCEPTED, ENDS, FAILED, PHASES, ROOT, VERDICTS, Step, Trace, first_divergence

GUARANTEES = ("tokens", "law", "lossy")  # what a rule promises (`System.guarantee`), the best first
BY_TEXT = "text"  # in the place of a guarantee: another server wrote the lane, and it is compared by text
MOST_BYTES = 20_000_000
LANES, STEPS, NODES = (1, 8), (1, 1000), (1, 400)  # least and most: lanes a race, steps a lane, nodes a tree
LONGEST_SECONDS = 86_400
SHOWN = 24  # characters of a text where it differs from another
WORST = ("failed", False, "lossy", "other text", "law", "text")  # verdicts other than True, the worst first
BY_NODE = ("parents", "texts", "score", "q", "p", "verdicts")  # lists with one value for each node, as `tokens` has
# Equal in all lanes of a race
SHARED = (
    "pair",
    "prompt",
    "prompt_tokens",
    "temperature",
    "seed",
    "max_new_tokens",
    "chat",
)


@dataclass
class LaneRecord:
    """A lane: its system's title, idea and guarantee, what its forwards cost on that machine, and what it did."""

    title: str
    idea: str
    guarantee: str
    costs: Costs
    trace: Trace


@dataclass
class Record:
    """The lanes of a race; all are compared with the first. `recorded` is the day in ISO format, "" for a race of now."""

    lanes: list[LaneRecord]
    recorded: str = ""

    def result(self) -> dict:
        return compare([(lane.trace, lane.guarantee) for lane in self.lanes])

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """The record in a JSON text, checked. Raises `ValueError` with a sentence that names what is wrong."""
        return cls.of(parse(text, MOST_BYTES))

    @classmethod
    def of(cls, values: Any) -> "Record":
        """The record in the values of a JSON text, checked. Raises `ValueError` like `from_json`."""
        record = build(cls, values, "")
        check(record)
        return record


def check(record: Record) -> None:
    """Raises `ValueError` when no race can have had this record."""
    within(record.lanes, LANES, "lanes", "lanes")
    require(
        record.recorded == "" or is_day(record.recorded),
        f"recorded must be a day such as 2026-01-31, got {shown(record.recorded)}.",
    )
    first = record.lanes[0].trace
    for at, lane in enumerate(record.lanes):
        where = f"lanes[{at}]"
        one_of(lane.guarantee, (*GUARANTEES, BY_TEXT), f"{where}.guarantee")
        remote = lane.guarantee == BY_TEXT
        curve = lane.costs.verify_ms
        require(
            min(curve, default=remote) >= 1,
            f"{where}.costs.verify_ms must say what forwards over 1 and more nodes take.",
        )
        not_negative([*curve.values(), lane.costs.first_ms, lane.costs.level_ms], f"{where}.costs")
        check_trace(lane.trace, f"{where}.trace", check_piece if remote else check_step)
        for name in SHARED:
            require(
                getattr(lane.trace, name) == getattr(first, name),
                f"{where}.trace.{name} differs from the first lane's.",
            )


def check_trace(trace: Trace, where: str, check_one: Callable[[Step, int, str], None]) -> None:
    within(trace.steps, STEPS, f"{where}.steps", "steps")
    not_negative([trace.temperature, trace.seed, *trace.prompt_tokens], where)
    for name in ("depth", "width", "nodes", "max_new_tokens"):
        require(getattr(trace, name) >= 1, f"{where}.{name} must be 1 or more.")
    for at, step in enumerate(trace.steps):
        check_one(step, at, f"{where}.steps[{at}]")
        require(
            not step.end or step is trace.steps[-1],
            f"{where}.steps[{at}] ended the text, and yet another step follows.",
        )
    require(trace.seconds > 0, f"{where} took no time at all.")


def check_piece(step: Step, at: int, where: str) -> None:
    """A step of a lane that another server wrote."""
    for name in ("tokens", *BY_NODE, "path"):
        require(not getattr(step, name), f"{where}.{name} must be empty: a remote lane has no trees.")
    require(len(step.pieces) == 1, f"{where}.pieces must hold one text, got {len(step.pieces)}.")
    check_figures(step, at, where, (*ENDS, FAILED))


def check_step(step: Step, at: int, where: str) -> None:
    """A target forward with its tree."""
    within(step.tokens, NODES, f"{where}.tokens", "nodes")
    for name in BY_NODE:
        same_length(getattr(step, name), step.tokens, f"{where}.{name}", "tokens")
    for node, parent in enumerate(step.parents):
        fits = parent == -1 if node == 0 else 0 <= parent < node
        require(fits, f"{where}.parents is no tree: node {node} cannot have parent {parent}.")
    for node, verdict in enumerate(step.verdicts):
        one_of(verdict, VERDICTS, f"{where}.verdicts[{node}]")
        require((verdict == ROOT) == (node == 0), f"{where}.verdicts[{node}] cannot be {verdict}: the root is node 0.")
    above = 0
    for node in step.path:
        follows = 0 < node < len(step.parents) and step.parents[node] == above
        require(follows, f"{where}.path is no path: node {node} is no child of node {above}.")
        require(step.verdicts[node] == ACCEPTED, f"{where}.path holds node {node}, which was {step.verdicts[node]}.")
        above = node
    written = [*(step.tokens[node] for node in step.path), step.bonus]
    emitted = bool(step.burst) and step.burst == written[: len(step.burst)]
    require(emitted, f"{where}.burst must be the path's tokens and the bonus, or their beginning.")
    same_length(step.pieces, step.burst, f"{where}.pieces", "burst")
    check_figures(step, at, where, ENDS)


def check_figures(step: Step, at: int, where: str, ends: tuple[str, ...]) -> None:
    """What every step has."""
    require(step.index == at, f"{where}.index must be {at}, got {step.index}.")
    one_of(step.end, ends, f"{where}.end")
    for phase in step.seconds:
        one_of(phase, PHASES, f"{where}.seconds")
    not_negative([*step.seconds.values(), *step.p, *step.q, step.bonus_p, *step.tokens, step.bonus, *step.burst], where)
    not_negative([step.position, step.draft_forwards], where)
    require(max(step.seconds.values(), default=0) <= LONGEST_SECONDS, f"{where}.seconds holds more than a day.")


def side_by_side(record: Record) -> list[LaneRecord]:
    """The two lanes that a page or a film shows beside each other. Raises `ValueError` when there are more or fewer."""
    count = len(record.lanes)
    require(
        count == 2, f"A race of two lanes can be shown side by side; this one has {count} lane{'s' * (count != 1)}."
    )
    return record.lanes


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(sentence)


def within(values: list, limits: tuple[int, int], where: str, what: str) -> None:
    least, most = limits
    require(least <= len(values) <= most, f"{where} must hold {least} to {most:,} {what}, got {len(values):,}.")


def same_length(values: list, others: list, where: str, name: str) -> None:
    require(len(values) == len(others), f"{where} must be as long as {name}: {len(others)}, got {len(values)}.")


def one_of(value: str, known: tuple[str, ...], where: str) -> None:
    if value not in known:  # words only where they are needed: this is asked of every node
        raise ValueError(f"{where} must be one of {', '.join(map(repr, known))}, got {shown(value)}.")


def not_negative(values: list[float], where: str) -> None:
    require(min(values, default=0) >= 0, f"{where} holds a negative number, {min(values, default=0)}.")


def is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def compare(lanes: list[tuple[Trace, str]]) -> dict:
    """Figures by lane, and the comparison of every lane with the first, as plain values. A lane is a trace and its guarantee.

    - `identical`: True when the tokens are equal. When they differ it is "law" if the rule promises only the distribution, "lossy" if
      it promises neither, and False otherwise. A lane of another server is compared by text: "text" when it is the same, "other text"
      when it is not, and "failed" when the server failed.
    - `divergence`: where the first lane that differs does so, by token, or by character where texts are compared.
    - `finished`: False when a lane was stopped. Then the tokens that both wrote are compared.
    """
    base, first_guarantee = lanes[0]
    base_speed = len(base.tokens) / base.seconds
    figures: list[dict[str, Any]] = []
    divergence = None
    for trace, guarantee in lanes:
        by_text = trace is not base and BY_TEXT in (guarantee, first_guarantee)
        at = (parted_text if by_text else parted)(base, trace)
        same: bool | str = at is None
        if by_text:
            same = "failed" if failed(base) or failed(trace) else "text" if same else "other text"
        elif not same:
            same = promised(guarantee, first_guarantee, base.temperature)
        if at is not None and divergence is None:
            words = [each.text[at : at + SHOWN] or "(end)" for each in (base, trace)]
            left, right = words if by_text else (base.label(at), trace.label(at))
            divergence = {"index": at, "left": left, "right": right}
        figures.append(
            {
                "name": trace.system,
                "text": trace.text,
                "tokens": len(trace.tokens),
                "seconds": trace.seconds,
                "forwards": None if guarantee == BY_TEXT else trace.forwards,
                "draft_forwards": trace.draft_forwards,
                "tau": None if guarantee == BY_TEXT else trace.tau,
                "tokens_per_s": len(trace.tokens) / trace.seconds,
                "speedup": len(trace.tokens) / trace.seconds / base_speed if base_speed else 0.0,
                "prefill_share": trace.share("prefill"),
                "draft_share": trace.share("draft"),
                "verify_share": trace.share("verify"),
                "other_share": trace.share("accept") + trace.share("commit"),
                "identical": same,
            }
        )
    identical = worst_of([lane["identical"] for lane in figures])
    finished = all(trace.ended for trace, _ in lanes)
    speedup = figures[-1]["speedup"]
    return {
        "lanes": figures,
        "identical": identical,
        "divergence": divergence,
        "speedup": speedup,
        "finished": finished,
    }


def promised(guarantee: str, first_guarantee: str, temperature: float) -> bool | str:
    """What other tokens mean where the two lanes promise this: "lossy", "law", or False for a broken promise."""
    worst = max(guarantee, first_guarantee, key=GUARANTEES.index)
    return worst if worst == "lossy" or (worst == "law" and temperature > 0) else False


def failed(trace: Trace) -> bool:
    """Whether the lane's server failed."""
    return bool(trace.steps) and trace.steps[-1].end == FAILED


def worst_of(verdicts: list[bool | str]) -> bool | str:
    """The worst of several verdicts, each one of `compare`'s."""
    return next((worst for worst in WORST if worst in verdicts), True)


def parted(left: Trace, right: Trace) -> int | None:
    """The first token at which two lanes differ, if any. The end of a lane that was stopped is no difference."""
    at = first_divergence(left.tokens, right.tokens)
    shorter = min(left, right, key=lambda trace: len(trace.tokens))
    return None if at == len(shorter.tokens) and not shorter.ended else at


def parted_text(left: Trace, right: Trace) -> int | None:
    """The first character at which two lanes' texts differ, if any. The end of a lane that was stopped is no difference."""
    at = first_divergence(left.text, right.text)
    shorter = min(left, right, key=lambda trace: len(trace.text))
    return None if at == len(shorter.text) and not shorter.ended else at
