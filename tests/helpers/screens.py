"""What the page hears of the runs behind its screens, made with a tiny pair: of sweeps, own prompts, verdicts, races."""

import json
import uuid

from engine.measure.curves.sweep import Sweep, SweepPlan
from engine.measure.repeated import RepeatedRace
from engine.page.screens import own_prompts, pays
from engine.page.views import wire
from engine.page.views.wire import RunEvent, serialise_and_number_messages
from engine.race import BASELINE, Settings
from engine.record.quiet import MessageAndSignalGenerator
from helpers.pairs import tiny_pair

TEXT = "Story: Once upon a time"
TOO_LONG = "x " * 5000
PROMPTS = [TEXT, "Story: Tom had a red ball", TOO_LONG, "def add(a, b):\n    return"]
SPEEDS = {(1, 1): 0.8, (3, 1): 1.2, (1, 2): 1.0, (3, 2): 2.5}  # by depth and width
FIELD = (BASELINE, "tree", "eagle", "naive")


def heard(steps: MessageAndSignalGenerator) -> list[dict]:
    """The run's messages."""
    return [
        json.loads(news.json_text)
        for news in serialise_and_number_messages(uuid.uuid4().hex, steps)
        if isinstance(news, RunEvent)
    ]


def swept() -> list[dict]:
    """A sweep whose speeds are made up, so that it has a known winner and a loser."""
    sweep = Sweep(tiny_pair(same=True), SweepPlan([TEXT], depth=[1, 3], width=[1, 2], max_new_tokens=16))
    made_up = sweep.measure_cell_in_steps

    def told(cell):
        return {**cell, "speedup": SPEEDS[cell["x"], cell["y"]], "disturbed": ""}

    def measure(setting, progress):
        return told((yield from made_up(setting, progress)))

    sweep.measure_cell_in_steps = measure
    return heard(sweep.measure_cells_in_steps())


def raced(systems: tuple[str, ...] = FIELD) -> list[dict]:
    """A race that does not run again."""
    settings = Settings(TEXT, systems, max_new_tokens=8)
    return heard(
        wire.run_race_and_its_repeats_as_messages(
            RepeatedRace(tiny_pair(same=True), settings, is_device_uncontested=lambda: False)
        )
    )


def prompts_raced() -> list[dict]:
    return heard(
        own_prompts.race_system_and_baseline_on_prompts(tiny_pair(same=True), PROMPTS, "tree", max_new_tokens=8)
    )


def judged() -> list[dict]:
    return heard(
        pays.measure_whether_speculation_pays(tiny_pair(same=True), PROMPTS, ["tree", "lookup"], max_new_tokens=10)
    )
