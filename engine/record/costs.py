"""Costs: what forwards take on this machine, and the timings that they come from. The policy `auto` sizes its trees by them.

No rule and no draw depends on them. Two machines with other costs draft other trees and write the same text.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, NamedTuple

from engine.record.parsing import CLOSED, IntWrittenAsJsonKey, NonNegativeFloat, build_json_schema_only_rule


class MeanRoundCountsOfShape(NamedTuple):
    """Means of a shape's rounds, equal on every machine: tokens emitted, rows verified, levels drafted.

    A draft forward is a level, also where a policy asks for several on one depth.
    """

    tau: float
    verified_rows: float
    draft_levels: float


@dataclass(frozen=True)
class ShapePromise:
    """What a shape promises on a machine: `tau` tokens a round, which costs as much as `cost` rounds of plain decoding."""

    __pydantic_config__ = CLOSED

    tau: NonNegativeFloat
    cost: NonNegativeFloat

    @property
    def speedup(self) -> float:
        return self.tau / self.cost


def interpolate_linearly(value_by_x: dict[int, float], x: float) -> float:
    """The value at `x`, on straight lines between the known ones. The last line goes on behind the last known value."""
    places = sorted(value_by_x)
    if len(places) == 1:
        return value_by_x[places[0]]
    above = next((index for index, each in enumerate(places) if each >= x), len(places) - 1)
    left, right = places[max(above - 1, 0)], places[max(above, 1)]
    return value_by_x[left] + (value_by_x[right] - value_by_x[left]) / (right - left) * (x - left)


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

    verify_ms: Annotated[
        dict[IntWrittenAsJsonKey, NonNegativeFloat], build_json_schema_only_rule(additionalProperties=False)
    ]
    first_ms: NonNegativeFloat
    level_ms: NonNegativeFloat
    promised: dict[str, NonNegativeFloat] = field(default_factory=dict)
    shapes: dict[str, ShapePromise] = field(default_factory=dict)

    @property
    def best_drafter(self) -> str:
        """What promised the most, "" where there was no choice."""
        return max(self.promised, key=self.promised.__getitem__, default="")

    def best_drafter_among(self, drafter_names: Collection[str]) -> str:
        """As `best_drafter`, among these names."""
        return replace(
            self, promised={name: each for name, each in self.promised.items() if name in drafter_names}
        ).best_drafter

    @property
    def best_shape(self) -> str:
        """The shape that promises the most, the first of equals; "" where none was counted."""
        return max(self.shapes, key=lambda shape: self.shapes[shape].speedup, default="")

    def with_predicted_speedups_of_shapes(self, mean_round_by_shape: Mapping[str, MeanRoundCountsOfShape]) -> "Costs":
        """The same costs, with what these shapes promise by them."""
        shaped = {
            shape: ShapePromise(each.tau, round(self.break_even_tau(each.verified_rows, each.draft_levels), 3))
            for shape, each in mean_round_by_shape.items()
        }
        return replace(self, shapes=shaped)

    def interpolate_verify_ms(self, rows: float) -> float:
        return interpolate_linearly(self.verify_ms, rows)

    def draft_ms(self, draft_levels: float) -> float:
        return self.first_ms * (draft_levels > 0) + self.level_ms * max(0, draft_levels - 1)

    def round_ms(self, rows: float, draft_levels: float) -> float:
        """A whole round: a tree of `rows` nodes, drafted in `draft_levels` levels, and its verification."""
        return self.interpolate_verify_ms(rows) + self.draft_ms(draft_levels)

    def break_even_tau(self, rows: float, draft_levels: float) -> float:
        """The tau at which such rounds take as long a token as plain decoding."""
        return self.round_ms(rows, draft_levels) / self.interpolate_verify_ms(1)

    def with_monotonic_verify_costs(self) -> "Costs":
        """Without what other work added: a forward takes at most what one over more rows takes."""
        known = self.verify_ms
        return replace(self, verify_ms={rows: min(ms for more, ms in known.items() if more >= rows) for rows in known})

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


UNMEASURED = Costs({}, 0.0, 0.0)


@dataclass(frozen=True)
class RecurrentStateCosts:
    """Least ms of a verification, and the bytes that it leaves until its round ends, of `node_count` nodes in one path and in a tree.

    `single_token_ms` is a single token's. `text_state_bytes` are the states of a text, and `tree_path_count` the leaves of the tree.
    """

    node_count: int
    tree_path_count: int
    single_token_ms: float
    chain_verify_ms: float
    tree_verify_ms: float
    chain_uncommitted_bytes: int
    tree_uncommitted_bytes: int
    text_state_bytes: int

    @property
    def summary(self) -> str:
        """What the page's card says of it."""
        chain, tree = self.chain_verify_ms / self.single_token_ms, self.tree_verify_ms / self.single_token_ms
        return (
            f"{self.node_count} nodes, measured here: a chain takes {chain:.1f} plain steps and keeps "
            f"{format_megabytes(self.chain_uncommitted_bytes)} until the round ends, a tree {tree:.1f} and "
            f"{format_megabytes(self.tree_uncommitted_bytes)}. The text's states are {format_megabytes(self.text_state_bytes)}; "
            f"a copy for each of the tree's {self.tree_path_count} paths would be "
            f"{format_megabytes(self.tree_path_count * self.text_state_bytes)}."
        )


def format_megabytes(byte_count: int) -> str:
    return f"{byte_count / 1e6:.1f} MB"


@dataclass
class PairTimings:
    """What was timed of a pair so far; `engine.rounds.pair_costs` fills it and makes costs of it.

    These are least ms: of verifications by rows, of a drafter's first level and of one below it, and of rounds that a device decides.
    Device rounds are kept by drafter and by levels, 0 for plain decoding. `recent_verify_ms_by_rows` are of the moment
    `recent_timed_at`. `state_costs` are those of a target with states.
    """

    verify_ms_by_rows: dict[int, float] = field(default_factory=dict)
    draft_level_ms_by_drafter: dict[str, tuple[float, float]] = field(default_factory=dict)
    device_round_ms_by_drafter: dict[str, dict[int, float]] = field(default_factory=dict)
    recent_verify_ms_by_rows: dict[int, float] = field(default_factory=dict)
    recent_timed_at: float = -math.inf
    state_costs: RecurrentStateCosts | None = None
