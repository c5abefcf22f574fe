"""Readiness: which systems are made ready, in what order, and how far that is. Knows systems and the device's turns; knows no page.

A system is ready when a race with it has nothing left to load, to compile or to measure. A race that comes earlier does that itself.
"""

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from numba.core import event

from engine.drafters import DRAFTERS
from engine.models.cache_memory import max_bytes_of_all_caches
from engine.models.pairs import LoadedPair
from engine.page.screens.cards import choose_initial_lane_systems
from engine.page.screens.device import TimeSharedDeviceWorker
from engine.race import WARM_UP_TEXT, WARM_UP_TOKENS, Race, Settings
from engine.record.failures import is_out_of_memory
from engine.record.quiet import WorkSignal
from engine.rounds.pair_costs import PairCosts
from engine.systems import SYSTEMS, System
from engine.tree import LARGEST_TREE

HEATS = (0.0, 0.8)  # temperatures that take different loops; the page opens with the first
RESTS = 60.0  # seconds in which what nobody asked for may wait for a page that is coming


COMPILED = event.RecordingListener()
event.register("numba:compile", COMPILED)


class SystemPreparation:
    """Prepares a pair's systems (loads nets, compiles, captures graphs): those of the opening race first, then all others."""

    def __init__(
        self,
        pair: LoadedPair,
        device: TimeSharedDeviceWorker,
        pair_title: str = "",
        should_pause: Callable[[], bool] = lambda: False,
    ):
        """`pair_title` names the pair in the words, where it is not the page's own. While `should_pause` says so, what is not asked
        for rests.
        """
        self.pair, self.device, self.of, self.waits = (
            pair,
            device,
            f" of the {pair_title}" if pair_title else "",
            should_pause,
        )
        device.scheduler.cache_bytes_budget = max_bytes_of_all_caches(pair)
        self.lanes = choose_initial_lane_systems(pair)
        self.systems = list(dict.fromkeys((*self.lanes, *SYSTEMS)))
        self.waiting = [*self.systems]

    def prepare_opening_race(self) -> None:
        """Makes the systems of the opening race ready at the temperature with which the page opens: it goes live behind this."""
        measured = self.run_steps_until_one_fails(
            f"Measuring forwards{self.of}", PairCosts(self.pair).time_verifications_quickly_if_untimed
        )
        self.device.run_preparation_when_idle_and_wait(
            chain(measured, self.prepare_systems_in_steps(self.lanes, HEATS[:1]))
        )

    def prepare_systems_in_steps(
        self, system_names: Iterable[str], temperatures: Sequence[float]
    ) -> Iterator[WorkSignal]:
        """Makes systems ready at these temperatures. One of which a step fails is passed over."""
        for name in system_names:
            number = f"{self.systems.index(name) + 1} of {len(self.systems)}"
            words = f"Making ready {number}{self.of}: {SYSTEMS[name].title}"
            yield from self.run_steps_until_one_fails(
                words, *list_preparation_steps(self.pair, SYSTEMS[name], temperatures)
            )
            if temperatures == HEATS:
                self.waiting.remove(name)

    def prepare_remaining_systems(self) -> None:
        """Makes ready what is not: the pair's nets one by one, so that a race waits for no more than one, then all systems."""
        self.device.run_preparation_when_idle_and_wait(
            self.hold_steps_while_page_loads(self.prepare_remaining_systems_in_steps())
        )

    def hold_steps_while_page_loads(self, steps: Iterator[WorkSignal]) -> Iterator[WorkSignal]:
        """The work's steps, each held back while `should_pause` says so, for at most `RESTS` seconds in all."""
        until = time.monotonic() + RESTS
        while True:
            while self.waits() and time.monotonic() < until:
                yield WorkSignal.IDLE
            if (step := next(steps, None)) is None:
                return
            yield step

    def prepare_remaining_systems_in_steps(self) -> Iterator[WorkSignal]:
        if self.pair.target.recurrent:
            yield from self.run_steps_until_one_fails(
                f"Measuring trees beside chains{self.of}", PairCosts(self.pair).get_or_measure_state_costs
            )
        for name in self.pair.learned:
            yield from self.run_steps_until_one_fails(
                f"Loading the drafter {name}{self.of}", partial(self.pair.net, name)
            )
        yield from self.prepare_systems_in_steps(tuple(self.waiting), HEATS)
        # Beside the page's start, and what it compiles, other programs were at work
        for measure in PairCosts(self.pair).list_remeasurement_calls():
            yield from self.run_steps_until_one_fails(f"Measuring forwards again{self.of}", measure)

    def run_steps_until_one_fails(self, progress_text: str, *steps: Callable[[], object]) -> Iterator[WorkSignal]:
        """Runs the steps until one fails."""
        for step in steps:
            if not self.run_preparation_step(progress_text, step):
                return
            yield WorkSignal.STEP

    def run_preparation_step(self, progress_text: str, step: Callable[[], object]) -> bool:
        """Runs the step. False when it fails: a race that needs it meets the same error."""
        self.device.preparation_description = progress_text
        try:
            step()
        except ValueError:  # the pair lacks a part
            return False
        except Exception as error:  # the page and all other systems go on
            if is_out_of_memory(error):
                print(f"{progress_text}: there is too little memory for this.", flush=True)
            else:
                traceback.print_exc()
            return False
        return True

    @property
    def preparation_progress_text(self) -> str:
        """What is being done, in words; "" when all is ready."""
        return append_compile_count(self.device.preparation_progress_text) if self.waiting else ""


def append_compile_count(progress_text: str) -> str:
    """The words, with the number of loops compiled so far. Loops that come from the folder of compiled code do not count."""
    count = sum(each.is_start and "dispatcher" in (each.data or ()) for _, each in COMPILED.buffer)
    return f"{progress_text}, {count} loops compiled" if count else progress_text


def list_preparation_steps(
    pair: LoadedPair, system: System, temperatures: Sequence[float]
) -> list[Callable[[], object]]:
    """What makes the system ready, in pieces between which a race may run. Each raises `ValueError` when the pair lacks a part."""
    # Two lanes of one system need two caches, each with graphs of its own.
    lanes = (system.name,) * 2 if pair.target.captures_graphs else (system.name,)

    def race(temperature: float) -> None:
        Race(
            pair, Settings(WARM_UP_TEXT, lanes, max_new_tokens=WARM_UP_TOKENS, temperature=temperature)
        ).run_to_traces()

    return [
        lambda: DRAFTERS[system.drafter](pair, LARGEST_TREE),
        lambda: system.get_or_measure_costs(pair),
        *(partial(race, each) for each in temperatures),
    ]
