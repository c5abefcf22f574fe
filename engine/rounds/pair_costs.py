"""What rounds of a pair cost on this machine, measured when first asked for. How a forward is timed stands in `engine.rounds.timing`.

Other work can only make a forward slower, so the least of several timings counts. Trees are shaped by these costs for as long as the
process lives, and one slow moment must not decide that.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from engine.drafters import DRAFTERS
from engine.forward.spread import adopt_first_process_value
from engine.models.pairs import LoadedPair
from engine.record.costs import Costs, StateCosts, interpolate_linearly
from engine.record.promise import estimate_best_speedup
from engine.rounds import timing

QUICK_SECONDS, VERIFY_SECONDS, DRAFT_SECONDS = 1.5, 4.0, 1.0  # that verifications, and a drafter, may be timed for
WIDTH, NODES = 4, 24  # of the largest trees that drafters are compared by, as the system `auto` grows them
DEEP = 8  # levels of the deepest tree whose rounds on a device are timed, beside those of one level
RECENT_ROWS = (1, 8, 24)  # rows of the verifications that `retime_verifications_if_stale` times
REFRESH_AFTER, REFRESH_SECONDS = 10.0, 0.15  # seconds until it does so again, and seconds that it may take

_lock = threading.RLock()  # also of other pairs nothing is timed meanwhile


class PairCosts:
    """The costs of one pair's rounds. It reads and fills the pair's own timings."""

    def __init__(self, pair: LoadedPair):
        self.pair, self.timings = pair, pair.timings

    def costs_of(self, drafter_name: str, recent: bool = False) -> Costs:
        """What a round with this drafter costs, measured on the first call. `recent` takes verifications as
        `retime_verifications_if_stale` timed them last.

        Of a drafter that is one of several, these are the costs of the one that promises the most here. Without a calibration of the
        pair's drafters it is the first of them. Verifications cost the same with every drafter: keeping features of rows takes next
        to nothing.
        """
        with _lock:
            self.measure_verifications_once(VERIFY_SECONDS)
            ranks, candidates = self.pair.calibration.ranks, self.drafters_deciding_costs_of(drafter_name)
            if not ranks.keys() & candidates or not DRAFTERS[drafter_name].candidate_drafters(self.pair):
                costs = self.costs_of_single_drafter(candidates[0])
            else:
                each = {name: self.costs_of_single_drafter(name) for name in candidates}
                speedups = {
                    name: round(estimate_best_speedup(ranks[name], costs, WIDTH, NODES), 2)
                    for name, costs in each.items()
                }
                costs = replace(each[max(speedups, key=speedups.__getitem__)], promised=speedups)
            return self.with_recent_verifications(costs) if recent else costs

    def for_device(self, drafter_name: str, policy_name: str) -> Costs:
        """What rounds of `engine.rounds.round_gpu` cost, measured on the first call for this drafter."""
        with _lock:
            times = self.timings.device_ms
            for name, grower, depths in (("none", "chain", (1,)), (drafter_name, policy_name, (1, DEEP))):
                if name not in times:
                    times[name] = timing.time_device_round_ms_by_depth(self.pair, name, grower, depths, WIDTH, NODES)
        (shallow, first), (deep, last) = min(times[drafter_name].items()), max(times[drafter_name].items())
        level = max(0.0, last - first) / max(1, deep - shallow)
        return Costs({1: times["none"][0], NODES: first - level}, level, level).with_monotonic_verify_costs()

    def measure_state_costs_once(self) -> StateCosts:
        """What trees cost a target with states, measured on the first call. Raises `ValueError` for a target that keeps no state."""
        with _lock:
            if self.timings.states is None:
                self.timings.states = timing.time_state_costs(self.pair, NODES, VERIFY_SECONDS)
            return self.timings.states

    def are_costs_measured(self, drafter_name: str) -> bool:
        """Whether `costs_of` would answer from timings that exist already."""
        return self.timings.draft_ms.keys() >= {*self.drafters_deciding_costs_of(drafter_name)}

    def measure_verifications_quickly(self) -> None:
        """Measures verifications, where they are not measured, in less time than `costs_of` takes.
        `list_remeasurements` should follow.
        """
        self.measure_verifications_once(QUICK_SECONDS)

    def measure_verifications_once(self, max_seconds: float) -> None:
        with _lock:
            if not self.timings.verify_ms:
                self.time_verifications_keep_least(max_seconds)

    def list_remeasurements(self) -> Sequence[Callable[[], None]]:
        """Calls that time everything once more and keep the smaller value. Each takes about a second. The first timings may have met
        other work.
        """
        if not self.timings.verify_ms:
            return []
        drafts = [partial(self.time_drafts_keep_least, name) for name in self.timings.draft_ms]
        return [partial(self.time_verifications_keep_least, VERIFY_SECONDS), *drafts]

    def retime_verifications_if_stale(self) -> None:
        """Times a few verifications for `costs_of(..., recent=True)`, where the last time is long ago. To be called before a race.

        Memory that a machine shares with others becomes faster or slower within minutes. A GPU's does not, and large models take too
        long. Nothing is timed where verifications were not measured.
        """
        target, known = self.pair.target, self.timings.verify_ms
        if not known or target.device.type != "cpu" or target.processes > 1:
            return
        turn_ms = 2 * sum(interpolate_linearly(known, rows) for rows in RECENT_ROWS)
        recently = time.perf_counter() - self.timings.refreshed_at < REFRESH_AFTER
        if recently or (timing.FEWEST + 1) * turn_ms > 1000 * REFRESH_SECONDS:
            return
        with _lock:
            self.timings.recent_ms = timing.time_verify_ms_by_rows(
                self.pair, repeats=timing.FEWEST, row_counts=RECENT_ROWS
            )
            self.timings.refreshed_at = time.perf_counter()

    def with_recent_verifications(self, costs: Costs) -> Costs:
        """These costs, with verifications as they were timed last. Between timed rows the change is interpolated."""
        recent = self.timings.recent_ms
        if not recent:
            return costs
        change, most = {rows: ms / costs.verify_ms_at(rows) for rows, ms in recent.items()}, max(recent)
        now = {rows: ms * interpolate_linearly(change, min(rows, most)) for rows, ms in costs.verify_ms.items()}
        return replace(costs, verify_ms=now).with_monotonic_verify_costs()

    def drafters_deciding_costs_of(self, drafter_name: str) -> list[str]:
        """The drafters whose costs decide the costs of this one: itself, or those that it is chosen from."""
        choices = DRAFTERS[drafter_name].candidate_drafters(self.pair)
        return [name for name in choices if name in self.pair.calibration.ranks] or choices[:1] or [drafter_name]

    def costs_of_single_drafter(self, drafter_name: str) -> Costs:
        """The costs of rounds with this very drafter."""
        if drafter_name not in self.timings.draft_ms:
            self.time_drafts_keep_least(drafter_name)
        costs = Costs(self.timings.verify_ms, *self.timings.draft_ms[drafter_name]).with_monotonic_verify_costs()
        return adopt_first_process_value(self.pair.target.model, costs)

    def time_verifications_keep_least(self, max_seconds: float) -> None:
        with _lock:
            before, found = (
                self.timings.verify_ms,
                timing.time_verify_ms_by_rows(self.pair, max_seconds=self.limit_if_unshared(max_seconds)),
            )
            self.timings.verify_ms = {rows: min(ms, before.get(rows, ms)) for rows, ms in found.items()}

    def time_drafts_keep_least(self, drafter_name: str) -> None:
        with _lock:
            found = timing.time_draft_levels_ms(
                self.pair, drafter_name, max_seconds=self.limit_if_unshared(DRAFT_SECONDS)
            )
            first, below = map(min, found, self.timings.draft_ms.get(drafter_name, found))
            self.timings.draft_ms[drafter_name] = first, below

    def limit_if_unshared(self, max_seconds: float) -> float:
        """Seconds that a timing may take. There is no limit where processes share a target: by their own clocks they would stop at
        different repeats.
        """
        return max_seconds if self.pair.target.processes == 1 else math.inf
