"""Calibration: what was measured once about a pair. Static trees, the drafter of `auto` and the shapes that systems race in follow it.

Plain values; knows no model.
"""

import json
import re
from dataclasses import dataclass, field
from operator import le
from pathlib import Path
from typing import NamedTuple

from engine.record.costs import UNMEASURED, Costs, MeanRoundCountsOfShape
from engine.record.parsing import convert_json_value_unvalidated
from engine.record.promise import HitRateByDepthAndRank


def parse_depth_width_nodes(shape_name: str) -> list[int]:
    """Depth, width and nodes of a shape such as 4x4x8. Raises `ValueError` for another form."""
    found = re.fullmatch("([0-9]{1,2})x([0-9]{1,2})x([0-9]{1,2})", shape_name)
    if not found:
        raise ValueError(f"{shape_name!r} is no shape such as 4x4x8")
    return [int(size) for size in found.groups()]


SCORE_CELLS = 20  # ten ranges of scores of favourites, and as many of other guesses


class ScoreHitCounts(NamedTuple):
    """A drafter's guesses whose parents came true, by their `engine.kernels.expansion.cell_of_score`: how many came true as well, and
    how many there were. Each is `[SCORE_CELLS]`.
    """

    hits: list[int]
    guesses: list[int]

    @classmethod
    def parse(cls, values: object) -> "ScoreHitCounts":
        """Raises `ValueError` for anything but `SCORE_CELLS` counts each, none of them negative, and no more hits than guesses."""
        hits, guesses = ([int(count) for count in counts] for counts in values)  # type: ignore[attr-defined]
        sizes = {len(hits), len(guesses)}
        if sizes != {SCORE_CELLS} or not all(map(le, [0] * SCORE_CELLS + hits, hits + guesses)):
            raise ValueError(f"hits {hits} of guesses {guesses} are no counts of {SCORE_CELLS} kinds of guesses")
        return cls(hits, guesses)


@dataclass(frozen=True)
class Calibration:
    """What was measured, and where.

    - `acceptance[b]`: the probability that the b-th child drawn without replacement is the first accepted one
    - `ranks[drafter][d][r]`: the probability that the target's token at depth d + 1 is that drafter's r-th favourite
    - `score_hits[drafter]`: how often guesses with such a score came true, at T = 0 and when sampled
    - `shapes[system][shape]`: what the system's rounds in that shape gave and took, its paper's own first
    - `costs`: those of its target and its draft model there
    - `source`: the machine and the command
    """

    acceptance: list[float] = field(default_factory=list)
    ranks: dict[str, HitRateByDepthAndRank] = field(default_factory=dict)
    score_hits: dict[str, tuple[ScoreHitCounts, ScoreHitCounts]] = field(default_factory=dict)
    shapes: dict[str, dict[str, MeanRoundCountsOfShape]] = field(default_factory=dict)
    costs: Costs = UNMEASURED
    source: str = ""

    @classmethod
    def load(cls, path: str | Path) -> "Calibration":
        """Raises `ValueError` naming the file when it holds something else."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
            values["costs"] = convert_json_value_unvalidated(Costs, values["costs"])
            values["ranks"] = {name: list(rows) for name, rows in values.get("ranks", {}).items()}
            values["score_hits"] = {
                name: (ScoreHitCounts.parse(greedy), ScoreHitCounts.parse(sampled))
                for name, (greedy, sampled) in values.get("score_hits", {}).items()
            }
            values["shapes"] = {
                system: {
                    shape: MeanRoundCountsOfShape(*map(float, each))
                    for shape, each in shapes.items()
                    if parse_depth_width_nodes(shape)
                }
                for system, shapes in values.get("shapes", {}).items()
            }
            return cls(**values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"{path} is no calibration: {error}. Measure one with `python -m engine calibrate`."
            ) from error
