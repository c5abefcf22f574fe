"""Calibration: what was measured once about a pair. Static trees, the drafter of `auto` and the shapes that systems race in follow it.

Plain values; knows no model.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from engine.record.costs import UNMEASURED, Costs, MeanRoundOfTreeShape
from engine.record.parsing import convert_json_value_unvalidated
from engine.record.promise import HitRateByDepthAndRank


def parse_depth_width_nodes(shape_name: str) -> list[int]:
    """Depth, width and nodes of a shape such as 4x4x8. Raises `ValueError` for another form."""
    found = re.fullmatch("([0-9]{1,2})x([0-9]{1,2})x([0-9]{1,2})", shape_name)
    if not found:
        raise ValueError(f"{shape_name!r} is no shape such as 4x4x8")
    return [int(size) for size in found.groups()]


@dataclass(frozen=True)
class Calibration:
    """What was measured, and where.

    - `acceptance[b]`: the probability that the b-th child drawn without replacement is the first accepted one
    - `ranks[drafter][d][r]`: the probability that the target's token at depth d + 1 is that drafter's r-th favourite
    - `shapes[system][shape]`: what the system's rounds in that shape gave and took, its paper's own first
    - `costs`: those of its target and its draft model there
    - `source`: the machine and the command
    """

    acceptance: list[float] = field(default_factory=list)
    ranks: dict[str, HitRateByDepthAndRank] = field(default_factory=dict)
    shapes: dict[str, dict[str, MeanRoundOfTreeShape]] = field(default_factory=dict)
    costs: Costs = UNMEASURED
    source: str = ""

    @classmethod
    def load(cls, path: str | Path) -> "Calibration":
        """Raises `ValueError` naming the file when it holds something else."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
            values["costs"] = convert_json_value_unvalidated(Costs, values["costs"])
            values["ranks"] = {name: list(rows) for name, rows in values.get("ranks", {}).items()}
            values["shapes"] = {
                system: {
                    shape: MeanRoundOfTreeShape(*map(float, each))
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
