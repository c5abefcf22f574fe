"""Statistics of several traces: tau, seconds a token, shares of time, and how guesses fared. Plain values; knows no race."""

from collections import Counter
from collections.abc import Iterable, Sequence

from engine.record.trace import PHASES, Trace

NAMED_PHASES = ("prefill", "draft", "verify")  # the others are the rest


def pooled_tau(traces: Sequence[Trace]) -> float:
    """Tokens per target forward over all traces."""
    return sum(len(trace.tokens) for trace in traces) / sum(trace.target_forwards for trace in traces)


def pooled_favourites_tau(traces: Sequence[Trace]) -> float:
    """Tokens per target forward that the favourites alone would have had, from where each of these steps began."""
    tokens = sum(step.tokens_with_favourites_alone for trace in traces for step in trace.steps)
    return tokens / sum(trace.target_forwards for trace in traces)


def pooled_seconds_per_token_with_prefill(traces: Sequence[Trace]) -> float:
    """Over all traces together, with prefill."""
    return sum(trace.seconds for trace in traces) / sum(len(trace.tokens) for trace in traces)


def pooled_decode_seconds_per_token(traces: Sequence[Trace]) -> float:
    """Over all traces together, without prefill."""
    return sum(trace.decode_seconds for trace in traces) / sum(len(trace.tokens) for trace in traces)


def pooled_time_shares_by_phase(traces: Sequence[Trace]) -> dict[str, float]:
    """Shares of all the traces' time: prefill, draft, verify and the rest."""
    seconds = {phase: sum(trace.phase_share(phase) * trace.seconds for trace in traces) for phase in PHASES}
    whole = sum(seconds.values())
    named = {phase: seconds[phase] / whole for phase in NAMED_PHASES}
    return {**named, "rest": sum(seconds[phase] for phase in PHASES if phase not in NAMED_PHASES) / whole}


class GuessCountsAfterAcceptedParent:
    """How guesses fared whose parent was accepted, by depth and by rank.

    Depth 1 is the first guess behind the root. A rank is a place among siblings by the drafter's score, the first its favourite.
    """

    def __init__(self, traces: Iterable[Trace] = ()):
        self.reached, self.accepted = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        self.levels = Counter[int]()  # by depth: rounds in which a guess of that depth was reached
        for trace in traces:
            self.count_guesses_of_trace(trace)

    def count_guesses_of_trace(self, trace: Trace) -> None:
        for step in trace.steps:
            for depth, parent in enumerate([0, *step.path], 1):
                siblings = [node for node, above in enumerate(step.parents) if above == parent and node]
                self.levels[depth] += bool(siblings)
                for rank, node in enumerate(sorted(siblings, key=lambda node: -step.score[node]), 1):
                    for place in (("depth", depth), ("rank", rank)):
                        self.reached[place] += 1
                        self.accepted[place] += node in step.path

    def by_depth(self) -> list[dict[str, int]]:
        """By depth the guesses reached, those accepted, and the `levels`: rounds in which a guess of that depth was reached."""
        return [row | {"levels": self.levels[row["depth"]]} for row in self.count_by("depth")]

    def by_rank(self) -> list[dict[str, int]]:
        """By rank the guesses reached, and those accepted."""
        return self.count_by("rank")

    def count_by(self, depth_or_rank: str) -> list[dict[str, int]]:
        places = sorted(at for of, at in self.reached if of == depth_or_rank)
        return [
            {
                depth_or_rank: at,
                "reached": self.reached[depth_or_rank, at],
                "accepted": self.accepted[depth_or_rank, at],
            }
            for at in places
        ]
