"""Costs: what forwards take on this machine. The policy `auto` sizes its trees by them.

No rule and no draw depends on them. Two machines with other costs draft other trees and write the same text.
"""

from dataclasses import asdict, dataclass


def between(known: dict[int, float], at: float) -> float:
    """The value at `at`, on straight lines between the known ones. The last line goes on behind the last known value."""
    places = sorted(known)
    if len(places) == 1:
        return known[places[0]]
    above = next((index for index, each in enumerate(places) if each >= at), len(places) - 1)
    left, right = places[max(above - 1, 0)], places[max(above, 1)]
    return known[left] + (known[right] - known[left]) / (right - left) * (at - left)


@dataclass(frozen=True)
class Costs:
    """Milliseconds on this machine, of one target and one drafter.

    - `verify_ms[N]`: a target forward over N rows
    - `first_ms`: the drafter's answer for the root
    - `level_ms`: the drafter's answer for a level of a few nodes below the root
    """

    verify_ms: dict[int, float]
    first_ms: float
    level_ms: float

    def verify_at(self, rows: float) -> float:
        return between(self.verify_ms, rows)

    def draft_ms(self, levels: int) -> float:
        return self.first_ms * (levels > 0) + self.level_ms * max(0, levels - 1)

    def round_ms(self, rows: int, levels: int) -> float:
        """A whole round: a tree of `rows` nodes, drafted in `levels` levels, and its verification."""
        return self.verify_at(rows) + self.draft_ms(levels)

    def break_even(self, rows: int, levels: int) -> float:
        """The tau at which such rounds take as long a token as plain decoding."""
        return self.round_ms(rows, levels) / self.verify_at(1)

    def to_dict(self) -> dict[str, object]:
        return asdict(self)
