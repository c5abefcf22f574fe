"""What branches won: the figures of a step, a trace and a lane against a count by hand, and where a chain could have gone deeper."""

import json
from dataclasses import replace

import pytest

from engine.record.race_file import Record, compute_figures_and_compare_lanes
from engine.record.repetition import is_text_repetitive, share_of_repeated_token_runs
from engine.record.trace import Trace, favourite_path_of
from engine.record.trace_statistics import pooled_favourites_tau
from helpers.paths import ROOT
from helpers.traces import made_race, make_step, one_node, piece, remote_race

SECOND = {
    "path": [2, 5],
    "burst": [12, 15, 99],
    "pieces": [" the", " end", " fox"],
}  # the root's second branch is right
SECOND |= {"verdicts": ["root", "rejected", "accepted", "unreached", "unreached", "accepted"]}


def by_hand(step) -> tuple[int, int]:
    """Guesses that the favourites would have kept and tokens that branches won, node by node from the root."""
    node, kept = 0, 0
    while children := [each for each in range(1, len(step.parents)) if step.parents[each] == node]:
        favourite = max(children, key=lambda each: (step.score[each], -each))
        if kept >= len(step.path) or step.path[kept] != favourite:
            break
        node, kept = favourite, kept + 1
    return kept, max(0, len(step.burst) - kept - 1)


def trace_of(*steps) -> Trace:
    return Trace("tree", "a pair", "a machine", "fp32", "Once", [1, 2], 0.0, 3, 4, 4, 8, 40, list(steps))


def test_favourites_are_the_first_ranked_children_down_to_a_leaf():
    step = make_step()
    assert step.favourites == [1, 4] == favourite_path_of(step.parents, step.score)
    assert make_step(score=[1.0, 0.3, 0.3, 0.2, 0.2, 0.1]).favourites == [1, 3]  # of equals the earlier
    assert make_step(score=[1.0, 0.2, 0.6, 0.1, 0.1, 0.3]).favourites == [2, 5]
    assert one_node().favourites == [] == piece(0, " a fox").favourites


@pytest.mark.parametrize(
    ("changes", "kept", "won"),
    [
        ({}, 2, 0),
        (SECOND, 0, 2),
        (SECOND | {"burst": [12], "pieces": [" the"], "end": "length"}, 0, 0),  # a chain's bonus is that token too
        ({"path": [1, 3], "burst": [11, 13, 99]}, 1, 1),
        ({"path": [], "burst": [99], "pieces": [" fox"]}, 0, 0),
    ],
)
def test_what_branches_won_is_what_a_count_by_hand_says(changes, kept, won):
    step = make_step(**changes)
    assert (step.leading_favourites_accepted, step.branch_tokens) == (kept, won) == by_hand(step)


def test_a_chain_could_have_gone_deeper_where_all_favourites_were_right_and_the_text_went_on():
    assert make_step().could_chain_reach_deeper
    assert not make_step(end="length").could_chain_reach_deeper
    assert not make_step(**SECOND).could_chain_reach_deeper
    chain = {"tokens": [10, 11], "parents": [-1, 0], "texts": [" was", " a"], "score": [1.0, 0.6], "q": [1.0, 0.6]}
    chain |= {
        "p": [1.0, 0.7],
        "verdicts": ["root", "accepted"],
        "path": [1],
        "burst": [11, 99],
        "pieces": [" a", " fox"],
    }
    assert not make_step(**chain).could_chain_reach_deeper  # it had no other guess to spend


def test_a_lane_tells_what_its_branches_won():
    second = make_step(index=1, path=[1, 3], burst=[11, 13, 99])
    steps = [make_step(), second, make_step(index=2, **SECOND), one_node(index=3, burst=[99], pieces=[" fox"])]
    trace = trace_of(*steps)
    hand = [by_hand(step) for step in trace.steps]
    assert trace.branch_tokens == sum(won for _, won in hand) == 3
    assert trace.deeper_steps == 1
    bursts = sum(min(len(step.burst), kept + 1) for step, (kept, _) in zip(steps, hand, strict=True))
    assert trace.favourites_tau == pytest.approx(bursts / 4) == pooled_favourites_tau([trace]) < trace.tau
    lane = compute_figures_and_compare_lanes([(trace, "tokens")])["lanes"][0]
    assert (lane["branch_tokens"], lane["favourites_tau"], lane["deeper_steps"]) == (3, trace.favourites_tau, 1)
    pieces = trace_of(piece(0, " a fox ran"), piece(1, " off"))  # of a server's text, whose trees nobody knows
    assert (pieces.branch_tokens, pieces.favourites_tau) == (0, pieces.tau)
    remote = remote_race().result()["lanes"][1]
    assert remote["branch_tokens"] is remote["favourites_tau"] is remote["deeper_steps"] is None


def test_files_hold_the_favourites_and_those_of_before_have_them_from_their_scores():
    record = made_race()
    record.lanes[1].trace.steps[0] = replace(
        record.lanes[1].trace.steps[0], favourites=[2, 5]
    )  # rounding may turn ranks
    assert Record.from_json(record.to_json()).lanes[1].trace.steps[0].favourites == [2, 5]
    values = json.loads(made_race().to_json())
    assert values["lanes"][1]["trace"]["steps"][0].pop("favourites") == [1, 4]
    assert Record.from_values(values) == made_race()
    for wrong, words in (([1, 5], "node 5 is no child of node 1"), ([1], "node 1 has children"), ([9], "no child")):
        values["lanes"][1]["trace"]["steps"][0]["favourites"] = wrong
        with pytest.raises(ValueError, match=rf"steps\[0\].favourites .*{words}"):
            Record.from_values(values)


def test_a_text_that_repeats_itself_is_told_from_one_that_does_not():
    plain, loop = list(range(100)), [*range(50), *range(50)]
    assert share_of_repeated_token_runs([], plain) == 0 and not is_text_repetitive([], plain)
    assert share_of_repeated_token_runs([], loop) == pytest.approx(43 / 93) and is_text_repetitive([], loop)
    assert is_text_repetitive(list(range(60)), list(range(60)))  # it repeats its prompt
    assert not is_text_repetitive([], [1] * 20)  # too short to tell


def test_the_recorded_races_repeat_themselves_or_not_as_a_reader_finds():
    paths = (ROOT / "assets" / "races").glob("*.json")
    told = {path.stem: Record.from_json(path.read_text("utf-8")).result()["lanes"][0]["repeats"] for path in paths}
    assert told["3-code-eagle"] and not told["5-story-sampled-eagle"]
