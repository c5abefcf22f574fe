"""Shapes: every system races in the one that is best here, by made-up costs of forwards; what is asked for goes first."""

from dataclasses import replace

import pytest

from engine.__main__ import build_command_parser
from engine.lab.bench import command as bench
from engine.measure.options import apply_shape_option
from engine.measure.racing import list_candidate_settings
from engine.models.pairs import LoadedPair
from engine.race import Race, Settings
from engine.record.calibration import Calibration
from engine.record.costs import MeanRoundCountsOfShape
from engine.rounds import timing
from engine.systems import SHAPE, SYSTEMS, resolve_system_name
from helpers.pairs import tiny_pair

SMALL, LARGE = "2x3x4", "6x4x12"
SHAPES = {
    "4x4x8": MeanRoundCountsOfShape(2.0, 8.0, 4.0),
    SMALL: MeanRoundCountsOfShape(2.4, 4.0, 2.0),
    LARGE: MeanRoundCountsOfShape(3.6, 12.0, 6.0),
}


def counted(monkeypatch, verify_ms: dict[int, float], **shapes: dict[str, MeanRoundCountsOfShape]) -> LoadedPair:
    """A pair whose shapes were counted, on a machine whose forwards take so long. Drafts cost nothing there."""
    monkeypatch.setattr(timing, "time_verify_ms_by_rows", lambda *_, **__: verify_ms)
    monkeypatch.setattr(timing, "time_first_and_further_draft_level_ms", lambda *_, **__: (0.0, 0.0))
    pair = tiny_pair()
    return replace(pair, calibration=replace(pair.calibration, shapes=shapes))


def raced(pair: LoadedPair, *systems: str, **asked: int) -> list[str]:
    race = Race(pair, Settings("ab", systems, max_new_tokens=4, **asked))
    found = ["x".join(str(getattr(lane.trace, name)) for name in SHAPE) for lane in race.lanes]
    for lane in race.lanes:
        lane.close()
    return found


@pytest.mark.parametrize(("per_row", "best"), [(1.0, SMALL), (0.01, LARGE)])
def test_a_lane_races_in_the_shape_that_is_best_on_this_machine(per_row, best, monkeypatch):
    pair = counted(monkeypatch, {1: 2.0, 64: 2.0 + 63 * per_row}, tree=SHAPES)
    assert raced(pair, "tree", "tree!mask", "eagle") == [best, best, "5x3x12"]
    assert SYSTEMS["tree"].get_or_measure_costs(pair).best_shape == best
    assert raced(pair.with_shapes({}), "tree", "tree!mask", "eagle") == ["4x4x8", "4x4x8", "5x3x12"]


def test_what_is_asked_for_goes_before_what_is_best(monkeypatch):
    pair = counted(monkeypatch, {1: 2.0, 64: 2.1}, tree=SHAPES)
    assert raced(pair, "tree:3x2x8", "tree:3x2x8!mask", "model/best_first/token_match") == ["3x2x8"] * 3
    assert raced(pair, "tree", depth=3) == ["3x4x12"] and raced(pair, "tree", depth=3, width=1, nodes=4) == ["3x1x4"]


def test_without_counts_the_papers_shape_stays_and_nothing_is_measured_for_it(monkeypatch):
    def measured(*_, **__):
        raise AssertionError("measured")

    monkeypatch.setattr(timing, "time_verify_ms_by_rows", measured)
    for pair in (tiny_pair(), replace(tiny_pair(), calibration=Calibration())):
        assert resolve_system_name("tree").best_shape_for(pair) == {"depth": 4, "width": 4, "nodes": 8} and raced(
            pair, "tree"
        ) == ["4x4x8"]
        assert pair.with_shapes({}).calibration == pair.calibration


def test_the_text_is_the_same_in_every_shape_and_the_race_file_says_which_it_was(monkeypatch):
    pair = counted(monkeypatch, {1: 2.0, 64: 2.1}, tree=SHAPES, eagle={"1x2x3": MeanRoundCountsOfShape(2.0, 3.0, 1.0)})
    race = Race(pair, Settings("the quick", ("vanilla", "tree", "tree:4x4x8", "eagle"), max_new_tokens=12))
    for _ in race.run():
        pass
    assert [lane["identical"] for lane in race.result()["lanes"]] == [True] * 4
    tree, own, eagle = race.to_record().lanes[1:]
    assert (tree.trace.depth, tree.trace.width, tree.trace.nodes) == (6, 4, 12) and list(tree.costs.shapes) == list(
        SHAPES
    )
    assert own.costs.shapes == {} and eagle.costs.best_shape == "1x2x3" and eagle.trace.nodes == 3


# ---- bench and pays


def test_bench_races_the_best_shape_and_says_which_it_was(monkeypatch):
    pair = counted(monkeypatch, {1: 2.0, 64: 65.0}, tree=SHAPES)
    figures = bench.race_prompts_and_compute_figures(
        pair, ["the quick"], Settings("the quick", ("vanilla", "tree", "eagle"), max_new_tokens=8)
    )
    assert {row["name"]: row["shape"] for row in figures["systems"]} == {
        "vanilla": "",
        "tree": SMALL,
        "eagle": "5x3x12",
    }
    line = next(line for line in bench.format_bench_report(figures).splitlines() if line.startswith("tree "))
    assert line.split()[1] == SMALL
    asked = bench.race_prompts_and_compute_figures(
        pair, ["the quick"], Settings("the quick", ("tree",), depth=3, max_new_tokens=8)
    )
    assert asked["systems"][0]["shape"] == "3x3x4"
    assert bench.choose_best_shapes_of_calibrated_systems(pair, ["vanilla", "tree!mask", "tree:3x2x8", "eagle"]) == {
        "tree": SMALL
    }
    assert raced(pair.with_shapes({"tree": LARGE}), "tree") == [LARGE]  # what one process has found holds in all


def test_an_estimate_is_about_the_best_shape(monkeypatch):
    pair = counted(monkeypatch, {1: 2.0, 64: 65.0}, tree=SHAPES)
    found = bench.estimate_and_print_speedups(pair, ["tree", "eagle"], {}, 2.0)["estimates"]
    assert [row["setting"] for row in found] == [f"tree:{SMALL}", "eagle"]


@pytest.mark.parametrize(("best", "tried"), [(SMALL, [SMALL, "1x1x2"]), (LARGE, [LARGE, "3x4x6", "2x2x3"])])
def test_pays_tries_the_best_shape_and_smaller_ones(best, tried, monkeypatch):
    pair = counted(monkeypatch, {1: 2.0, 64: 2.1 if best == LARGE else 65.0}, tree=SHAPES)
    assert list_candidate_settings(pair, "tree") == [f"tree:{shape}" for shape in tried]
    assert list_candidate_settings(pair.with_shapes({}), "tree") == ["tree", "tree:2x3x4", "tree:1x1x2"]


def test_the_option_takes_the_papers_shapes(monkeypatch):
    pair = counted(monkeypatch, {1: 2.0, 64: 65.0}, tree=SHAPES)
    for command in ("bench", "pays --prompts x.txt"):
        name, *given = command.split()
        for option, shape in (([], SMALL), (["--shape", "best"], SMALL), (["--shape", "paper"], "4x4x8")):
            assert raced(
                apply_shape_option(build_command_parser(name).parse_args([*given, *option]), pair), "tree"
            ) == [shape]
