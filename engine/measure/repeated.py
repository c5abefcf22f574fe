"""Repeated: a race, and the same race again, unseen, so that its headline is a median. The same seed gives the same text."""

from collections.abc import Callable, Generator
from contextlib import closing

from engine.models.pairs import LoadedPair
from engine.race import Race, Settings
from engine.record.headline import find_run_nearest_to_median_speedups
from engine.record.quiet import WorkSignal
from engine.record.race_file import Record
from engine.record.trace import Step
from engine.rounds.pair_costs import PairCosts

MOST = 5  # runs of a race
SECONDS = 2.0  # on the lanes' clocks, which the further runs may take together


class RepeatedRace:
    """Has a race's face, `lanes`, `poll_steps` and `to_record`, for the run that is watched. `repeat_and_show_median_run_in_steps`
    runs it again.
    """

    def __init__(self, pair: LoadedPair, settings: Settings, is_device_uncontested: Callable[[], bool] = lambda: True):
        """`is_device_uncontested` says whether nobody else wants the device. Raises `ValueError` like `Race`."""
        PairCosts(pair).retime_verifications_if_stale()
        self.pair, self.settings, self.is_device_uncontested = pair, settings, is_device_uncontested
        self.race = Race(pair, settings)
        self.lanes = self.race.lanes
        self.made: Record | None = None

    def poll_steps(self) -> Generator[tuple[int, Step] | WorkSignal, None, None]:
        return self.race.poll_steps()

    def to_record(self) -> Record:
        """The race as a record that grows with it, and with every run of `repeat_and_show_median_run_in_steps`."""
        self.made = self.made or self.race.to_record()
        return self.made

    def has_time_for_another_run(self, finished_races: list[Race]) -> bool:
        """Whether one more run fits by the fastest of those `finished_races`: the first may have been held up. None does on a busy
        machine.
        """
        seconds = [sum(lane.clock for lane in race.lanes) for race in finished_races]
        if self.race.did_threads_wait_too_long or self.race.remote or not seconds[0] or len(finished_races) == MOST:
            return False
        return sum(seconds[1:]) + min(seconds) <= SECONDS

    def repeat_and_show_median_run_in_steps(self) -> Generator[WorkSignal, None, None]:
        """The further runs, a step at a time. Then the record has the seconds of all, and the lanes of the run nearest the median.

        A run that is not over when somebody else comes is not counted. Closing the iterator frees every lane.
        """
        record, runs, raced = self.to_record(), [self.race], [self.race]
        record.busy = self.race.did_threads_wait_too_long
        while self.has_time_for_another_run(raced):
            race = Race(self.pair, self.settings)
            with closing(race.run()) as steps:
                for _ in steps:
                    if not self.is_device_uncontested():
                        break
                    yield WorkSignal.STEP
            if not all(lane.finished for lane in race.lanes):
                break
            raced.append(race)
            if trees_and_bursts_of(race) == trees_and_bursts_of(
                self.race
            ):  # else its seconds are not those of these steps
                runs.append(race)
        if len(runs) == 1:
            return
        record.runs = [[lane.trace.seconds for lane in race.lanes] for race in runs]
        shown = runs[
            find_run_nearest_to_median_speedups([len(lane.trace.tokens) for lane in record.lanes], record.runs)
        ]
        for told, lane in zip(record.lanes, shown.lanes, strict=True):
            told.trace = lane.trace


def trees_and_bursts_of(race: Race) -> list[list[tuple[list[int], ...]]]:
    """The trees and the bursts of every step, by lane."""
    return [[(step.tokens, step.parents, step.burst) for step in lane.trace.steps] for lane in race.lanes]
