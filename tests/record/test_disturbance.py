"""Disturbance and headline: clocks that cannot be what systems cost are named, and several runs make a median. Hand-made figures."""

from dataclasses import replace

import pytest

from engine.record.disturbance import (
    OTHERS,
    describe_batch_disturbance,
    describe_count_of_disturbed_races,
    describe_disturbed_clocks_of_race,
)
from engine.record.headline import (
    compute_speedups_over_first_lane,
    find_run_nearest_to_median_speedups,
    median_and_spread_of_speedups,
)
from engine.record.race_file import Record, compute_figures_and_compare_lanes
from engine.record.trace import Trace
from helpers.traces import made_race, make_step, one_node, remote_race


def lane(*milliseconds: float, system: str = "vanilla", prefill: float = 50.0) -> Trace:
    """Plain decoding, or a tree whose steps write three tokens each, with steps of these lengths."""
    made = Trace(system, "a pair", "a machine", "fp32", "Once", [1, 2], 0.0, 3, 4, 4, 8, 400)
    for index, ms in enumerate(milliseconds):
        seconds = {"verify": ms / 1000} | ({"prefill": prefill / 1000} if index == 0 else {})
        plain = one_node(index=index, burst=[99], pieces=[" fox"], seconds=seconds)
        made.steps.append(plain if system == "vanilla" else make_step(index=index, seconds=seconds))
    return made


def steady(count: int, ms: float = 10.0) -> list[float]:
    """Steps about so long, with a spread of a few percent."""
    return [ms * (1 + 0.02 * (at % 4)) for at in range(count)]


def test_a_race_whose_steps_are_alike_is_not_disturbed():
    assert describe_disturbed_clocks_of_race([lane(*steady(60)), lane(*steady(20), system="tree")]) == ""
    assert describe_disturbed_clocks_of_race([lane(*steady(60)), lane(*steady(20, 30), system="tree")]) == ""
    for prefill in (4000, 40_000):
        assert (
            describe_disturbed_clocks_of_race(
                [lane(*steady(60), prefill=prefill), lane(*steady(20), system="tree", prefill=prefill)]
            )
            == ""
        )


def test_a_prompt_that_plain_decoding_read_far_longer_than_others_is_told():
    """The target is one, so a stall stood in there: a tree of tau 3 would be published as 9 times as fast."""
    plain, tree = lane(*steady(60), prefill=1600), lane(*steady(20), system="tree")
    words = "Disturbed: vanilla read the prompt for 1,600 ms, and tree for 50 ms."
    assert compute_figures_and_compare_lanes([(plain, "tokens"), (tree, "tokens")])["speedup"] > 8
    assert describe_disturbed_clocks_of_race([plain, tree]) == describe_disturbed_clocks_of_race([tree, plain]) == words
    assert describe_disturbed_clocks_of_race([lane(*steady(60), prefill=100), tree]) == ""  # no figure shows it
    assert (
        describe_disturbed_clocks_of_race([lane(*steady(60)), lane(*steady(20), system="tree", prefill=1600)]) == ""
    )  # its drafter reads too


def test_one_stalled_step_that_makes_the_figure_is_told():
    """Plain decoding stalls for 0.97 s: a tree of tau 3 would be published as 7 times as fast."""
    slow = [lane(*steady(40), 970.0, *steady(19)), lane(*steady(20), system="tree")]
    assert compute_figures_and_compare_lanes([(trace, "tokens") for trace in slow])["speedup"] > 5
    words = describe_disturbed_clocks_of_race(slow)
    assert words.startswith("Disturbed: one of 60 steps of vanilla stalled, the longest for 970 ms where 10.")
    fast = [lane(*steady(60)), lane(*steady(10), 900.0, 700.0, *steady(8), system="tree")]
    assert describe_disturbed_clocks_of_race(fast).startswith(
        "Disturbed: 2 of 20 steps of tree stalled, the longest for 900 ms"
    )
    assert compute_figures_and_compare_lanes([(trace, "tokens") for trace in slow])["disturbed"] == words


def test_a_stall_that_no_figure_shows_is_none():
    assert describe_disturbed_clocks_of_race([lane(*steady(300), 45.0), lane(*steady(20), system="tree")]) == ""


def test_lanes_whose_steps_differ_by_their_own_way_are_not_disturbed():
    """A tree that rests in half of its rounds takes short steps and long ones."""
    mixed = [each for at in range(15) for each in (2.0, 14.0 + at % 3)]
    assert describe_disturbed_clocks_of_race([lane(*steady(60)), lane(*mixed, system="tree")]) == ""


def test_more_than_tau_and_the_usual_steps_allow_is_told():
    """A fifth of plain decoding's steps took three times as long, which is no single step out of its spread."""
    limping = [30.0 if at % 5 == 0 else 10.0 + 0.1 * (at % 3) for at in range(60)]
    words = describe_disturbed_clocks_of_race([lane(*limping), lane(*steady(20), system="tree")])
    assert words.startswith("Disturbed: tree was 4.") and "its steps allow 3." in words
    held_up = [each * 3 if at % 5 == 0 else each for at, each in enumerate(steady(20))]
    assert (
        describe_disturbed_clocks_of_race([lane(*steady(60)), lane(*held_up, system="tree")]) == ""
    )  # its gain is smaller than it could be


def test_too_few_steps_say_nothing_and_a_busy_machine_says_so():
    assert describe_disturbed_clocks_of_race([lane(1, 1, 1, 900), lane(1, 1, system="tree")]) == ""
    assert (
        describe_disturbed_clocks_of_race([lane(*steady(60)), lane(*steady(20), system="tree")], is_processor_busy=True)
        == OTHERS
    )
    assert replace(made_race(), busy=True).result()["disturbed"] == OTHERS


def test_another_servers_pieces_are_never_judged():
    record = remote_race()
    record.lanes[0].trace = lane(*steady(30))
    record.lanes[1].trace.steps[0].seconds["wait"] = 9.0
    assert record.result()["disturbed"] == ""


def test_a_run_of_many_texts_is_compared_with_its_other_runs_round_by_round():
    """Rounds get shorter as texts end, which is no stall. A round that took far longer than in the other runs is one."""
    ends = [0.2] * 5 + [0.01] * 40
    assert describe_batch_disturbance("tree", ends, [ends, ends, ends]) == ""
    held_up = [*ends[:-1], 0.5]
    words = "Disturbed: one of 45 steps of tree stalled, the longest for 500 ms where 10.0 ms are usual."
    assert describe_batch_disturbance("tree", held_up, [ends, held_up, ends]) == words
    assert describe_batch_disturbance("tree", ends, [ends, held_up, ends]) == ""  # it is about the run that counts
    assert describe_batch_disturbance("tree", [*ends[:-1], 0.06], [ends] * 3) == ""  # no figure shows it
    assert describe_batch_disturbance("tree", ends, [ends] * 3, is_processor_busy=True) == OTHERS


def test_a_finding_over_many_races_counts_those_that_stayed_disturbed():
    assert describe_count_of_disturbed_races(0, 3, "prompts") == ""
    assert (
        describe_count_of_disturbed_races(2, 3, "cells")
        == " The clocks of 2 of 3 cells were disturbed twice; ratios vary."
    )


# ---- several runs


RUNS = [[2.0, 1.0, 2.0], [2.0, 0.5, 4.0], [2.2, 0.8, 2.2], [1.8, 0.72, 1.0], [2.0, 0.9, 2.0]]
TOKENS = [100, 100, 50]


def test_speedups_are_ratios_of_tokens_a_second():
    assert compute_speedups_over_first_lane(TOKENS, [2.0, 0.5, 4.0]) == [1.0, 4.0, 0.25]
    assert compute_speedups_over_first_lane([0, 5], [1.0, 1.0]) == [0.0, 0.0]


def test_a_headline_is_a_median_with_its_spread():
    plain, fast, slow = median_and_spread_of_speedups(TOKENS, RUNS)
    assert plain == {"speedup": 1.0, "least": 1.0, "most": 1.0}
    assert fast == {"speedup": 2.5, "least": 2.0, "most": 4.0}
    assert slow == {"speedup": 0.5, "least": 0.25, "most": 0.9}
    assert (
        median_and_spread_of_speedups(TOKENS[:2], [[2.0, 1.0], [2.0, 0.5]])[1]["speedup"] == 2.0
    )  # the lower of two, which took place


def test_the_run_that_is_shown_is_the_nearest_to_the_medians():
    assert find_run_nearest_to_median_speedups(TOKENS[:2], [run[:2] for run in RUNS]) == 3
    assert find_run_nearest_to_median_speedups(TOKENS, RUNS[:1]) == 0
    assert (
        find_run_nearest_to_median_speedups(TOKENS, RUNS) == 2
    )  # run 3 has the median of one lane and is far from the other's


def test_one_stall_among_five_runs_does_not_move_the_headline():
    quiet = [[2.0, 1.0]] * 4
    assert median_and_spread_of_speedups([1, 1], [*quiet, [9.0, 1.0]])[1] == {"speedup": 2.0, "least": 2.0, "most": 9.0}


def test_a_records_speedup_is_the_median_of_its_runs_and_all_else_is_of_its_lanes():
    record = made_race()
    left, right = (each.trace.seconds for each in record.lanes)
    once = record.result()
    assert once["runs"] == [[left, right]] and once["least"] == once["most"] == once["speedup"]
    record.runs = [[left, right], [left, right / 2], [left, right * 2]]
    result = record.result()
    assert result["speedup"] == pytest.approx(once["speedup"]) and result["most"] == pytest.approx(4 * result["least"])
    assert result["lanes"][1]["seconds"] == right and result["runs"] == record.runs


def test_runs_survive_json_and_old_files_have_none():
    record = made_race()
    seconds = [lane.trace.seconds for lane in record.lanes]
    record.runs, record.busy = [[each * 1.5 for each in seconds], seconds], True
    assert Record.from_json(record.to_json()) == record
    old = replace(record, runs=[], busy=False).to_json()
    before = old.replace(',"runs":[],"busy":false', "")
    assert before != old and Record.from_json(before) == replace(record, runs=[], busy=False)


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([[1.0]], r"runs\[0\] must be as long as lanes: 2, got 1"),
        ([[1.0, 0.0]], r"runs\[0\] must hold the seconds of every lane"),
        ([[1.0, -1.0]], r"runs\[0\]\[1\] holds a negative number"),
        ([[1.0, 2.0], [3.0, 4.0]], "runs holds no run that took the seconds of the lanes"),
        ([[1.0, 1.0]] * 10, "runs must hold 0 to 9 runs, got 10"),
        ([["1", 1.0]], r"runs\[0\]"),
    ],
)
def test_runs_that_cannot_be_are_refused(runs, words):
    with pytest.raises(ValueError, match=words):
        Record.from_json(replace(made_race(), runs=runs).to_json())
