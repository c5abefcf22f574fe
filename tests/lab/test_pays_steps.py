"""Pays in steps: `generate()` pauses between tokens and is ended, and all races together are one generator of small steps."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from engine.measure import peers, racing
from engine.measure.stepped import TokenGate, generate_in_steps
from engine.measure.ways import WrittenText
from engine.race import Race, Settings
from engine.record.quiet import WorkSignal
from helpers.pairs import tiny_pair

PROMPTS = ["Story: Once upon a time", "Story: A cat saw a dog", "Story: Tom and Lily"]
IDS = [5, 7, 11]


def drained(steps) -> tuple[list[WorkSignal], object]:
    """What the steps yield, and what they return."""
    told = []
    while True:
        try:
            told.append(next(steps))
        except StopIteration as end:
            return told, end.value


def writing() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "generate"]


def test_generate_in_steps_writes_what_it_writes_at_once_and_its_clock_stands_between_steps():
    """Every forward takes at least ten milliseconds, which its clock must hold."""
    pair = tiny_pair()
    pair.target.model.register_forward_pre_hook(lambda *_: time.sleep(0.01))
    steps = generate_in_steps(pair, IDS, 12, 0.0)
    begun, waited = time.perf_counter(), 0.0
    told = []
    try:
        while True:
            told.append(next(steps))
            time.sleep(0.02)
            waited += 0.02
    except StopIteration as end:
        written = end.value
    assert written.tokens == peers.generate_with_transformers(pair, IDS, 12, 0.0) and len(written.tokens) == 12
    assert len(told) >= 12 and {*told} == {WorkSignal.STEP}
    assert 12 * 0.01 <= written.seconds <= time.perf_counter() - begun - waited
    assert writing() == []


def test_its_clock_adds_up_the_steps_and_leaves_out_what_others_do_between_them(monkeypatch):
    """On a made-up clock: others work for 100 seconds before each step, and it takes 10 until they notice that one is over."""
    now = SimpleNamespace(seconds=0.0)

    def passing(seconds: float) -> Callable[[], None]:
        return lambda: setattr(now, "seconds", now.seconds + seconds)

    monkeypatch.setattr("engine.measure.stepped.time", SimpleNamespace(perf_counter=lambda: now.seconds))
    gate = TokenGate()
    gate.asked, gate.held = SimpleNamespace(acquire=passing(100.0)), SimpleNamespace(release=passing(10.0))
    gate.await_release_or_cancel()
    for seconds in (1.0, 2.0, 4.0):
        now.seconds += seconds
        gate.put(None)
    assert gate.seconds == 7.0


def test_closing_it_ends_generate_at_its_next_token():
    steps = generate_in_steps(tiny_pair(), IDS, 200, 0.0)
    next(steps), next(steps)
    assert writing() == ["generate"]
    steps.close()
    assert writing() == []


def test_what_generate_raises_is_raised_here():
    def fail(*_, **__):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        next(generate_in_steps(tiny_pair(), IDS, 4, 0.0, fail))
    assert writing() == []


def test_all_races_are_one_generator_whose_steps_are_those_of_races_and_tokens():
    pair, wish = tiny_pair(same=True), Settings("a prompt", max_new_tokens=10)
    told, outcome = drained(racing.choose_settings_and_race_in_steps(pair, PROMPTS, ["tree", "chain"], wish))
    assert told.count(WorkSignal.PIECE) == racing.count_progress_pieces(2, len(PROMPTS)) and isinstance(
        told[-1], racing.PromptRuns
    )
    assert len(told) > 3 * 10 * len(PROMPTS)  # the baseline and generate() alone take a step a token
    assert [len(each.tokens) for each in outcome.peer_texts_by_name[peers.PLAIN]] == [10, 10, 10]
    assert all(len(lanes) == 3 for lanes in outcome.results_by_system.values())


def test_closing_them_frees_the_race_under_way(monkeypatch):
    made: list[Race] = []
    monkeypatch.setattr(racing, "Race", lambda *asked, **how: made.append(Race(*asked, **how)) or made[-1])
    steps = racing.choose_settings_and_race_in_steps(
        tiny_pair(same=True), PROMPTS, ["tree"], Settings("a prompt", max_new_tokens=40)
    )
    next(steps)
    steps.close()
    [race] = made
    assert len(race.lanes) == 3 and all(lane.rounds is None for lane in race.lanes)


# ---- what is raced, in which setting and in which order


def raced_at(seconds: dict[str, list[float]], monkeypatch) -> None:
    """Races of made-up systems take these seconds a token, by system and prompt."""
    at = iter(range(len(PROMPTS)))

    def believed(pair, settings, *_):
        index = next(at)
        traces = [SimpleNamespace(system=name, seconds_per_token=seconds[name][index]) for name in settings.systems]
        yield WorkSignal.STEP
        return traces

    def add_results(raced, traces):
        for trace in traces:
            raced[trace.system].append(racing.PromptResult(trace, traces[0], True, ""))

    monkeypatch.setattr(racing, "list_candidate_settings", lambda pair, name: [*seconds])
    monkeypatch.setattr(racing, "race_again_if_disturbed_in_steps", believed)
    monkeypatch.setattr(racing, "append_race_to_results", add_results)
    monkeypatch.setattr(racing, "replace", lambda asked, **more: SimpleNamespace(**{**vars(asked), **more}))


def test_the_best_setting_is_that_of_all_prompts_and_not_of_the_last(monkeypatch):
    raced_at({"deep": [1.0, 1.0, 4.0], "flat": [3.0, 3.0, 3.0]}, monkeypatch)
    _, (name, tried) = drained(racing.choose_best_setting(None, PROMPTS, "tree", Settings("a prompt")))
    assert name == "deep" and tried == pytest.approx({"deep": 2.0, "flat": 3.0})


def test_of_the_settings_of_one_way_the_one_with_the_fewest_seconds_runs(monkeypatch):
    seconds = {"slow": 3.0, "fast": 1.0, "other": 9.0}

    def believed(pair, way, *_):
        yield WorkSignal.STEP
        return WrittenText([1], way)

    monkeypatch.setattr(racing, "run_generate_function_in_steps", believed)
    others = racing.PeerGenerateFunctions(
        function_by_name=seconds, variant_names_by_group={"served": {4: "slow", 8: "fast"}}
    )
    pair = tiny_pair()
    _, ways = drained(racing.choose_fastest_peer_variants(pair, PROMPTS, others, Settings("a prompt")))
    assert ways == {"fast": 1.0, "other": 9.0}


def test_generate_takes_every_place_between_a_prompts_races_in_turn(monkeypatch):
    """Always first, it would run on a processor that is cooler, or whose caches are colder."""
    order = []

    def way(pair, way, prompt, tokens, temperature):
        order.append("generate")
        yield WorkSignal.STEP
        return WrittenText([1], 1.0)

    def believed(pair, settings, *_):
        order.append(settings.systems[1])
        yield WorkSignal.STEP
        return None

    monkeypatch.setattr(racing, "run_generate_function_in_steps", way)
    monkeypatch.setattr(racing, "race_again_if_disturbed_in_steps", believed)
    monkeypatch.setattr(racing, "append_race_to_results", lambda *_: None)
    monkeypatch.setattr(racing, "group_systems_by_race", lambda names: [[name] for name in names])
    ways, settings = {peers.PLAIN: peers.generate_with_transformers}, Settings("a prompt", max_new_tokens=4)
    drained(racing.run_races(tiny_pair(), PROMPTS, ["tree", "chain"], settings, peer_functions=ways))
    assert order[1:] == ["generate", "tree", "chain", "tree", "generate", "chain", "tree", "chain", "generate"]
