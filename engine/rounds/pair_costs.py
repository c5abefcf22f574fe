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
from engine.record.costs import Costs, RecurrentStateCosts, interpolate_linearly
from engine.record.promise import estimate_speedup_of_best_fixed_tree
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

    def get_or_measure_costs(self, drafter_name: str, use_recent_verifications: bool = False) -> Costs:
        """What a round with this drafter costs, measured on the first call. `use_recent_verifications` takes verifications as
        `retime_verifications_if_stale` timed them last.

        Of a drafter that is one of several, these are the costs of the one that promises the most here. Without a calibration of the
        pair's drafters it is the first of them. Verifications cost the same with every drafter: keeping features of rows takes next
        to nothing.
        """
        with _lock:
            self.time_verifications_if_untimed(VERIFY_SECONDS)
            ranks, candidates = self.pair.calibration.ranks, self.drafters_deciding_costs_of(drafter_name)
            if not ranks.keys() & candidates or not DRAFTERS[drafter_name].inner_drafter_candidates(self.pair):
                costs = self.get_or_measure_single_drafter_costs(candidates[0])
            else:
                each = {name: self.get_or_measure_single_drafter_costs(name) for name in candidates}
                speedups = {
                    name: round(estimate_speedup_of_best_fixed_tree(ranks[name], costs, WIDTH, NODES), 2)
                    for name, costs in each.items()
                }
                costs = replace(each[max(speedups, key=speedups.__getitem__)], promised=speedups)
            return self.with_recent_verifications(costs) if use_recent_verifications else costs

    def get_or_measure_device_costs(self, drafter_name: str, policy_name: str) -> Costs:
        """What rounds of `engine.rounds.round_gpu` cost, measured on the first call for this drafter."""
        with _lock:
            times = self.timings.device_round_ms_by_drafter
            for name, grower, depths in (("none", "chain", (1,)), (drafter_name, policy_name, (1, DEEP))):
                if name not in times:
                    times[name] = timing.time_device_round_ms_by_depth(self.pair, name, grower, depths, WIDTH, NODES)
        (shallow, first), (deep, last) = min(times[drafter_name].items()), max(times[drafter_name].items())
        level = max(0.0, last - first) / max(1, deep - shallow)
        return Costs({1: times["none"][0], NODES: first - level}, level, level).with_monotonic_verify_costs()

    def get_or_measure_state_costs(self) -> RecurrentStateCosts:
        """What trees cost a target with states, measured on the first call. Raises `ValueError` for a target that keeps no state."""
        with _lock:
            if self.timings.state_costs is None:
                self.timings.state_costs = timing.measure_state_times_and_bytes(self.pair, NODES, VERIFY_SECONDS)
            return self.timings.state_costs

    def are_costs_measured(self, drafter_name: str) -> bool:
        """Whether `get_or_measure_costs` would answer from timings that exist already."""
        return self.timings.draft_level_ms_by_drafter.keys() >= {*self.drafters_deciding_costs_of(drafter_name)}

    def time_verifications_quickly_if_untimed(self) -> None:
        """Measures verifications, where they are not measured, in less time than `get_or_measure_costs` takes.
        `list_remeasurement_calls` should follow.
        """
        self.time_verifications_if_untimed(QUICK_SECONDS)

    def time_verifications_if_untimed(self, max_seconds: float) -> None:
        with _lock:
            if not self.timings.verify_ms_by_rows:
                self.time_verifications_keep_least(max_seconds)

    def list_remeasurement_calls(self) -> Sequence[Callable[[], None]]:
        """Calls that time everything once more and keep the smaller value. Each takes about a second. The first timings may have met
        other work.
        """
        if not self.timings.verify_ms_by_rows:
            return []
        drafts = [partial(self.time_drafts_keep_least, name) for name in self.timings.draft_level_ms_by_drafter]
        return [partial(self.time_verifications_keep_least, VERIFY_SECONDS), *drafts]

    def retime_verifications_if_stale(self) -> None:
        """Times a few verifications for `use_recent_verifications`, where the last time is long ago. To be called before a race.

        Memory that a machine shares with others becomes faster or slower within minutes. A GPU's does not, and large models take too
        long. Nothing is timed where verifications were not measured.
        """
        target, known = self.pair.target, self.timings.verify_ms_by_rows
        if not known or target.device.type != "cpu" or target.processes > 1:
            return
        turn_ms = 2 * sum(interpolate_linearly(known, rows) for rows in RECENT_ROWS)
        recently = time.perf_counter() - self.timings.recent_timed_at < REFRESH_AFTER
        if recently or (timing.FEWEST + 1) * turn_ms > 1000 * REFRESH_SECONDS:
            return
        with _lock:
            self.timings.recent_verify_ms_by_rows = timing.time_verify_ms_by_rows(
                self.pair, repeats=timing.FEWEST, row_counts=RECENT_ROWS
            )
            self.timings.recent_timed_at = time.perf_counter()

    def with_recent_verifications(self, costs: Costs) -> Costs:
        """These costs, with verifications as they were timed last. Between timed rows the change is interpolated."""
        recent = self.timings.recent_verify_ms_by_rows
        if not recent:
            return costs
        change, most = {rows: ms / costs.interpolate_verify_ms(rows) for rows, ms in recent.items()}, max(recent)
        now = {rows: ms * interpolate_linearly(change, min(rows, most)) for rows, ms in costs.verify_ms.items()}
        return replace(costs, verify_ms=now).with_monotonic_verify_costs()

    def drafters_deciding_costs_of(self, drafter_name: str) -> list[str]:
        """The drafters whose costs decide the costs of this one: itself, or those that it is chosen from."""
        choices = DRAFTERS[drafter_name].inner_drafter_candidates(self.pair)
        return [name for name in choices if name in self.pair.calibration.ranks] or choices[:1] or [drafter_name]

    def get_or_measure_single_drafter_costs(self, drafter_name: str) -> Costs:
        """The costs of rounds with this very drafter."""
        if drafter_name not in self.timings.draft_level_ms_by_drafter:
            self.time_drafts_keep_least(drafter_name)
        costs = Costs(
            self.timings.verify_ms_by_rows, *self.timings.draft_level_ms_by_drafter[drafter_name]
        ).with_monotonic_verify_costs()
        return adopt_first_process_value(self.pair.target.model, costs)

    def time_verifications_keep_least(self, max_seconds: float) -> None:
        with _lock:
            before, found = (
                self.timings.verify_ms_by_rows,
                timing.time_verify_ms_by_rows(
                    self.pair, max_seconds=self.lift_time_limit_if_target_shared(max_seconds)
                ),
            )
            self.timings.verify_ms_by_rows = {rows: min(ms, before.get(rows, ms)) for rows, ms in found.items()}

    def time_drafts_keep_least(self, drafter_name: str) -> None:
        with _lock:
            found = timing.time_first_and_further_draft_level_ms(
                self.pair, drafter_name, max_seconds=self.lift_time_limit_if_target_shared(DRAFT_SECONDS)
            )
            first, below = map(min, found, self.timings.draft_level_ms_by_drafter.get(drafter_name, found))
            self.timings.draft_level_ms_by_drafter[drafter_name] = first, below

    def lift_time_limit_if_target_shared(self, max_seconds: float) -> float:
        """Seconds that a timing may take. There is no limit where processes share a target: by their own clocks they would stop at
        different repeats.
        """
        return max_seconds if self.pair.target.processes == 1 else math.inf
