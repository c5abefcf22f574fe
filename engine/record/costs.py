"""Costs: what forwards take on this machine, and the timings that they come from. The policy `auto` sizes its trees by them.

No rule and no draw depends on them. Two machines with other costs draft other trees and write the same text.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, NamedTuple

from engine.record.parsing import CLOSED, Key, Share, build_schema_rule


class ShapeMeans(NamedTuple):
    """Means of a shape's rounds, equal on every machine: tokens emitted, rows verified, levels drafted.

    A draft forward is a level, also where a policy asks for several on one depth.
    """

    tau: float
    rows: float
    levels: float


@dataclass(frozen=True)
class ShapePromise:
    """What a shape promises on a machine: `tau` tokens a round, which costs as much as `cost` rounds of plain decoding."""

    __pydantic_config__ = CLOSED

    tau: Share
    cost: Share

    @property
    def speedup(self) -> float:
        return self.tau / self.cost


def interpolate_linearly(value_by_place: dict[int, float], place: float) -> float:
    """The value at `place`, on straight lines between the known ones. The last line goes on behind the last known value."""
    places = sorted(value_by_place)
    if len(places) == 1:
        return value_by_place[places[0]]
    above = next((index for index, each in enumerate(places) if each >= place), len(places) - 1)
    left, right = places[max(above - 1, 0)], places[max(above, 1)]
    return value_by_place[left] + (value_by_place[right] - value_by_place[left]) / (right - left) * (place - left)


@dataclass(frozen=True)
class Costs:
    """Milliseconds on this machine, of one target and one drafter.

    - `verify_ms[N]`: a target forward over N rows
    - `first_ms`: the drafter's answer for the root
    - `level_ms`: the drafter's answer for a level of a few nodes below the root
    - `promised`: where a drafter is one of several, by their names how many times as fast as plain decoding each promised to be. The
      costs are those of the drafter that promised the most. On a GPU that decides whole rounds, these are such rounds
    - `shapes`: of one system, what each shape that was counted promises here, by names such as 4x4x8; the paper's own comes first
    """

    __pydantic_config__ = CLOSED

    verify_ms: Annotated[dict[Key, Share], build_schema_rule(additionalProperties=False)]
    first_ms: Share
    level_ms: Share
    promised: dict[str, Share] = field(default_factory=dict)
    shapes: dict[str, ShapePromise] = field(default_factory=dict)

    @property
    def best_drafter(self) -> str:
        """What promised the most, "" where there was no choice."""
        return max(self.promised, key=self.promised.__getitem__, default="")

    def best_drafter_among(self, names: Collection[str]) -> str:
        """As `best_drafter`, among these names."""
        return replace(
            self, promised={name: each for name, each in self.promised.items() if name in names}
        ).best_drafter

    @property
    def best_shape(self) -> str:
        """The shape that promises the most, the first of equals; "" where none was counted."""
        return max(self.shapes, key=lambda shape: self.shapes[shape].speedup, default="")

    def with_shapes(self, counted: Mapping[str, ShapeMeans]) -> "Costs":
        """The same costs, with what these shapes promise by them."""
        shaped = {
            shape: ShapePromise(each.tau, round(self.break_even_tau(each.rows, each.levels), 3))
            for shape, each in counted.items()
        }
        return replace(self, shapes=shaped)

    def verify_ms_at(self, rows: float) -> float:
        return interpolate_linearly(self.verify_ms, rows)

    def draft_ms(self, levels: float) -> float:
        return self.first_ms * (levels > 0) + self.level_ms * max(0, levels - 1)

    def round_ms(self, rows: float, levels: float) -> float:
        """A whole round: a tree of `rows` nodes, drafted in `levels` levels, and its verification."""
        return self.verify_ms_at(rows) + self.draft_ms(levels)

    def break_even_tau(self, rows: float, levels: float) -> float:
        """The tau at which such rounds take as long a token as plain decoding."""
        return self.round_ms(rows, levels) / self.verify_ms_at(1)

    def with_monotonic_verify_costs(self) -> "Costs":
        """Without what other work added: a forward takes at most what one over more rows takes."""
        known = self.verify_ms
        return replace(self, verify_ms={rows: min(ms for more, ms in known.items() if more >= rows) for rows in known})

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


UNMEASURED = Costs({}, 0.0, 0.0)


@dataclass(frozen=True)
class StateCosts:
    """Least ms of a verification, and the bytes that it leaves until its round ends, of `nodes` in one path and in a tree.

    `plain_ms` is a single token's. `text_bytes` are the states of a text, and `paths` the leaves of the tree.
    """

    nodes: int
    paths: int
    plain_ms: float
    chain_ms: float
    tree_ms: float
    chain_bytes: int
    tree_bytes: int
    text_bytes: int

    @property
    def summary(self) -> str:
        """What the page's card says of it."""
        return (
            f"{self.nodes} nodes, measured here: a chain takes {self.chain_ms / self.plain_ms:.1f} plain steps and keeps "
            f"{format_megabytes(self.chain_bytes)} until the round ends, a tree {self.tree_ms / self.plain_ms:.1f} and "
            f"{format_megabytes(self.tree_bytes)}. The text's states are {format_megabytes(self.text_bytes)}; a copy for each of the "
            f"tree's {self.paths} paths would be {format_megabytes(self.paths * self.text_bytes)}."
        )


def format_megabytes(byte_count: int) -> str:
    return f"{byte_count / 1e6:.1f} MB"


@dataclass
class Timings:
    """What was timed of a pair so far; `engine.rounds.pair_costs` fills it and makes costs of it.

    These are least ms: of verifications by rows, of a drafter's first level and of one below it, and of rounds that a device decides.
    Device rounds are kept by drafter and by levels, 0 for plain decoding. `recent_ms` are verifications by rows at the moment
    `refreshed_at`. `states` are those of a target with states.
    """

    verify_ms: dict[int, float] = field(default_factory=dict)
    draft_ms: dict[str, tuple[float, float]] = field(default_factory=dict)
    device_ms: dict[str, dict[int, float]] = field(default_factory=dict)
    recent_ms: dict[int, float] = field(default_factory=dict)
    refreshed_at: float = -math.inf
    states: StateCosts | None = None
