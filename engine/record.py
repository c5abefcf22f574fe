"""Record: a race as plain values, its lanes with what is said of them. Standard library only; knows no tensor, no model, no page.

The race file is a Record in JSON: what the page saves and opens, what `assets/races/` holds, what replays and films are made from.
"""

import json
from dataclasses import asdict, dataclass

from engine.costs import Costs
from engine.trace import Trace, check_fields, first_divergence

GUARANTEES = (
    "tokens",
    "law",
    "lossy",
)  # what a rule promises, the best first; "tokens": the very tokens of plain decoding


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
    """The lanes of a race, the one that all are compared with first. `recorded` is the day in ISO format, "" for a race of now."""

    lanes: list[LaneRecord]
    recorded: str = ""

    def result(self) -> dict:
        return compare([(lane.trace, lane.guarantee) for lane in self.lanes])

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """Raises `ValueError` naming what is missing or unknown."""
        values = json.loads(text)
        check_fields(cls, values)
        lanes = []
        for lane in values["lanes"]:
            check_fields(LaneRecord, lane)
            check_fields(Costs, lane["costs"])
            curve = {int(rows): ms for rows, ms in lane["costs"]["verify_ms"].items()}
            costs = Costs(**{**lane["costs"], "verify_ms": curve})
            lanes.append(LaneRecord(**{**lane, "costs": costs, "trace": Trace.of(lane["trace"])}))
        return cls(lanes, values["recorded"])


def compare(lanes: list[tuple[Trace, str]]) -> dict:
    """Figures by lane, each a trace and its guarantee, and the comparison of every lane with the first; plain values.

    `identical` is True or False; when the tokens differ under a rule that keeps the distribution only it is "law", and "lossy" under
    one that promises neither.
    """
    base, first_guarantee = lanes[0]
    figures, divergence = [], None
    for trace, guarantee in lanes:
        at = first_divergence(base.tokens, trace.tokens)
        worst = max(guarantee, first_guarantee, key=GUARANTEES.index)
        excused = worst == "lossy" or (worst == "law" and base.temperature > 0)
        if at is not None and divergence is None:
            divergence = {"index": at, "left": base.label(at), "right": trace.label(at)}
        figures.append(
            {
                "name": trace.system,
                "text": trace.text,
                "tokens": len(trace.tokens),
                "seconds": trace.seconds,
                "forwards": trace.forwards,
                "draft_forwards": trace.draft_forwards,
                "tau": trace.tau,
                "tokens_per_s": len(trace.tokens) / trace.seconds,
                "prefill_share": trace.share("prefill"),
                "draft_share": trace.share("draft"),
                "verify_share": trace.share("verify"),
                "identical": True if at is None else worst if excused else False,
            }
        )
    same = [lane["identical"] for lane in figures]
    identical = next((worst for worst in (False, "lossy", "law") if worst in same), True)
    speedup = figures[-1]["tokens_per_s"] / figures[0]["tokens_per_s"]
    return {"lanes": figures, "identical": identical, "divergence": divergence, "speedup": speedup}
