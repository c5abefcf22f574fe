"""The lab's sweep: its plan and the sentences that refuse one, its cells, what they say together, and what a closed sweep leaves."""

import gc
import json
from dataclasses import replace

import pytest

from engine.forward.cache import KVCache
from engine.measure import racing
from engine.measure.curves import sweep as sweep_module
from engine.measure.curves.sweep import Sweep, SweepPlan, find_smallest_fast_and_fastest, pool_cell_figures
from engine.page.views.wire import RunEvent, serialise_and_number_messages
from engine.race import Race
from engine.record.trace import Trace
from engine.record.trace_statistics import GuessCountsAfterAcceptedParent
from helpers.pairs import tiny_pair
from helpers.traces import make_step, one_node

TEXT = "Story: Once upon a time"
SMALL = {"depth": [1, 3], "width": [1, 2], "max_new_tokens": 24}


@pytest.fixture(scope="module")
def pair():
    return tiny_pair(same=True)


@pytest.fixture(scope="module")
def messages(pair):
    return news(Sweep(pair, SweepPlan([TEXT], **SMALL)))


def news(sweep: Sweep) -> list[dict]:
    return [message for message in sweep.measure_cells_in_steps() if isinstance(message, dict)]


def cells_of(messages: list[dict]) -> list[dict]:
    return [each["cell"] for each in messages if "cell" in each]


def test_every_cell_is_measured_row_by_row(messages):
    start, *_, end = messages
    assert start["start"] and (start["x"], start["y"]) == (
        {"name": "depth", "values": (1, 3)},
        {"name": "width", "values": (1, 2)},
    )
    cells = cells_of(messages)
    assert [(cell["x"], cell["y"]) for cell in cells] == [(1, 1), (3, 1), (1, 2), (3, 2)]
    assert end["end"] and end["cells"] == cells and end["done"] == start["cells"] == 4
    done = [each["done"] for each in messages[1:]]
    assert done == sorted(done) and messages[-1]["left"] == 0
    for cell in cells:
        assert cell["identical"] is True and cell["tokens"] == 24
        assert cell["tau"] == pytest.approx(cell["tokens"] / cell["forwards"])
        assert cell["speedup"] == pytest.approx(cell["plain_ms_per_token"] / cell["ms_per_token"])
        assert 0 < cell["draft_share"] + cell["verify_share"] <= 1


def test_a_draft_that_is_the_target_wins_a_level_for_each_of_depth(messages):
    """Its first guess always comes true, so tau is depth + 1 but for the end of the text."""
    by_shape = {(cell["depth"], cell["width"]): cell for cell in cells_of(messages)}
    assert by_shape[1, 1]["tau"] == pytest.approx(2, abs=0.1) and by_shape[3, 1]["tau"] == pytest.approx(4, abs=0.3)
    assert by_shape[1, 2]["mean_nodes"] > by_shape[1, 1]["mean_nodes"]
    summary = messages[-1]["summary"]
    first, second = summary["by_rank"]
    assert first["rank"] == 1 and first["accepted"] == first["reached"]
    assert second["accepted"] == 0 and second["reached"] > 0
    assert [row["depth"] for row in summary["by_depth"]] == [1, 2, 3]
    assert all(row["accepted"] == row["levels"] < row["reached"] for row in summary["by_depth"])
    assert set(summary["verify_ms"]) >= {1, 2}


def test_a_budget_against_temperature_has_a_best_budget_for_each_temperature(pair):
    plan = SweepPlan(
        TEXT, grid="budget", depth=3, width=2, nodes=[2, 6], temperature=[0, 0.9], max_new_tokens=16, seed=3
    )
    *_, end = Sweep(pair, plan).measure_cells_in_steps()
    assert [(cell["nodes"], cell["temperature"]) for cell in end["cells"]] == [(2, 0), (6, 0), (2, 0.9), (6, 0.9)]
    assert all(cell["identical"] is True and cell["mean_nodes"] <= cell["nodes"] for cell in end["cells"])
    assert [cell["y"] for cell in end["summary"]["best"]] == [0, 0.9]
    assert end["summary"]["sentence"].startswith("Nodes that paid best, by temperature: ")


def test_several_prompts_share_a_cell(pair):
    *_, end = Sweep(pair, SweepPlan([TEXT, "# Python"], depth=2, width=1, max_new_tokens=16)).measure_cells_in_steps()
    (cell,) = end["cells"]
    assert cell["tokens"] == 32


def test_a_cell_races_with_its_shape_against_plain_decoding(pair, monkeypatch):
    raced, warmed = [], []

    class Seen(Race):
        def run(self):
            raced.append(tuple(lane.system.name for lane in self.lanes))
            return super().run()

        def warm_up(self):
            warmed.append(raced[-1])
            super().warm_up()

    monkeypatch.setattr(racing, "Race", Seen)
    list(Sweep(pair, SweepPlan(TEXT, depth=[2, 4], width=[3], nodes=[9], max_new_tokens=8)).measure_cells_in_steps())
    assert raced == [("vanilla", "tree:2x3x9"), ("vanilla", "tree:4x3x9")]
    assert warmed == raced[:1]  # the second one is warm already


@pytest.mark.parametrize(("stays", "words"), [(True, "Disturbed: so it was."), (False, "")])
def test_a_disturbed_cell_is_raced_once_more_and_said_where_that_was_too(pair, monkeypatch, stays, words):
    made, right = [], Race.result

    def result(race):
        made.extend([race] if race not in made else [])
        return right(race) | {"disturbed": "Disturbed: so it was." if stays or race is made[0] else ""}

    monkeypatch.setattr(Race, "result", result)
    monkeypatch.setattr(racing, "RUNS", 2)
    told = news(Sweep(pair, SweepPlan(TEXT, depth=[2], width=[1], max_new_tokens=16)))
    [found] = told[-1]["cells"]
    assert len(made) == 2 and found["disturbed"] == words
    assert found["ms_per_token"] == pytest.approx(1000 * made[1].lanes[1].trace.seconds_per_token)
    said = told[-1]["summary"]["sentence"]
    assert said.endswith(" The clocks of 1 of 1 cells were disturbed twice; ratios vary.") is stays
    done = [message["done"] for message in told[1:]]
    assert done == sorted(done)


def test_a_disturbed_cell_is_recommended_only_where_no_other_was_measured():
    absurd, right = cell(5.08, 8, disturbed="Disturbed: so it was."), cell(1.5, 8)
    assert find_smallest_fast_and_fastest([absurd, right]) == (right, right)
    assert find_smallest_fast_and_fastest([absurd]) == (absurd, absurd)


def test_a_shape_that_the_system_cannot_grow_is_a_cell_with_its_reason(pair):
    *_, end = Sweep(
        pair, SweepPlan(TEXT, system="nanogpt-tree", depth=[2, 9], width=[2], nodes=[8], max_new_tokens=8)
    ).measure_cells_in_steps()
    grown, refused = end["cells"]
    assert grown["speedup"] > 0 and "speedup" not in refused
    assert "nodes" in refused["refused"]
    *_, end = Sweep(
        pair, SweepPlan(TEXT, system="nanogpt-tree", depth=[9], width=[2], nodes=[8], max_new_tokens=8)
    ).measure_cells_in_steps()
    assert end["summary"]["sentence"] == f"No cell could be measured. {refused['refused']}"
    assert end["summary"]["best"] == []


def cell(speedup: float, nodes: float, **more) -> dict:
    figures = {"speedup": speedup, "mean_nodes": nodes, "temperature": 0.0, "tau": 2.0, "disturbed": ""}
    return {**figures, "depth": 2, "width": 2, **more}


def test_the_fastest_cell_is_recommended_unless_a_smaller_tree_is_as_fast():
    large, small, slow = cell(2.00, 16, depth=6), cell(1.97, 8), cell(1.95, 2)
    assert find_smallest_fast_and_fastest([large, small, slow]) == (small, large)
    assert find_smallest_fast_and_fastest([large, slow]) == (large, large)


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (
            [cell(1.5, 7.96)],
            "Best: depth 2 and width 2, 1.50× plain decoding’s speed, 2.00 tokens a pass, 8.0 nodes a tree.",
        ),
        (
            [cell(1.51, 16, depth=6), cell(1.5, 8)],
            "Best: depth 2 and width 2, 1.50× plain decoding’s speed, 2.00 tokens a pass, 8.0 nodes a tree. "
            "Depth 6 and width 2 has 1.51× with a larger tree.",
        ),
        (
            [cell(0.8, 8)],
            "Plain decoding is faster. Nearest: depth 2 and width 2, 0.80× plain decoding’s speed, 2.00 tokens a pass, "
            "8.0 nodes a tree.",
        ),
        (
            [cell(0.998, 8)],
            "Plain decoding is as fast. Best: depth 2 and width 2, 1.00× plain decoding’s speed, 2.00 tokens a pass, "
            "8.0 nodes a tree.",
        ),
    ],
)
def test_the_finding_is_said_in_words(pair, cells, sentence):
    sweep = Sweep(pair, SweepPlan(TEXT))
    assert sweep.describe_best_cells([find_smallest_fast_and_fastest(cells)]) == sentence


def test_guesses_are_counted_where_their_parent_was_accepted():
    found = GuessCountsAfterAcceptedParent([trace_of([make_step(), one_node()])])
    step = make_step()
    reached = [verdict in ("accepted", "rejected") for verdict in step.verdicts]
    assert (
        sum(row["reached"] for row in found.by_depth())
        == sum(row["reached"] for row in found.by_rank())
        == sum(reached)
    )
    assert sum(row["accepted"] for row in found.by_rank()) == len(step.path)
    assert found.by_depth()[0]["levels"] == 1


def trace_of(steps: list) -> Trace:
    about = {"system": "tree", "pair": "", "hardware": "", "dtype": "", "prompt": TEXT, "prompt_tokens": [1]}
    return Trace(**about, temperature=0.0, seed=0, depth=2, width=2, nodes=6, max_new_tokens=8, steps=steps)


def test_a_cell_has_the_ratio_of_the_clocks_of_all_its_prompts():
    plain = [trace_of([replace(one_node(), seconds={"verify": each, "prefill": 0.1})] * 4) for each in (0.01, 0.03)]
    drafted = [trace_of([replace(make_step(), seconds={"draft": 0.01, "verify": 0.02})] * 2)] * 2
    found = pool_cell_figures(plain, drafted)
    assert found["plain_ms_per_token"] == pytest.approx(
        1000 * sum(each.seconds for each in plain) / (2 * len(plain[0].tokens))
    )
    assert found["ms_per_token"] == pytest.approx(10) and found["speedup"] == pytest.approx(
        found["plain_ms_per_token"] / 10
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"depth": list(range(1, 13)), "width": list(range(1, 7))}, "72 cells, at most 64"),
        ({"depth": [1, 13]}, "Depth must be between 1 and 12, got 13"),
        ({"depth": [2, 2]}, "Depth 2 is there twice"),
        ({"depth": []}, "Depth has no value"),
        ({"depth": ["x"]}, "Depth must be a number between 1 and 12, got 'x'"),
        ({"width": [1.5]}, "Width must be a whole number"),
        ({"nodes": [8, 16]}, "varies depth and width; nodes takes one value, got 2"),
        ({"temperature": [float("nan")]}, "Temperature must be a number"),
        ({"max_new_tokens": 201}, "at most 200 new tokens a cell, got 201"),
        ({"max_new_tokens": None}, "Max new tokens must be a number"),
        ({"prompts": [TEXT] * 4}, "1 to 3 prompts, got 4"),
        ({"prompts": []}, "1 to 3 prompts, got 0"),
        ({"prompts": [" "]}, "prompt is empty"),
        ({"grid": "nodes"}, "Unknown grid 'nodes'. Available: shape, budget"),
        ({"system": "vanilla"}, "drafts no tree"),
        ({"system": "tree:2x2x8"}, "name it 'tree'"),
        ({"system": "tree!mask"}, "name it 'tree'"),
        ({"system": "oak"}, "Unknown system 'oak'"),
        ({"seed": -1}, "Seed must be between"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_in_a_sentence(change, words):
    with pytest.raises(ValueError, match=words):
        SweepPlan(**{"prompts": [TEXT], **change})


def test_a_pair_that_cannot_do_it_says_so_before_anything_is_measured(pair):
    with pytest.raises(ValueError, match="context window holds"):
        Sweep(pair, SweepPlan(["x" * 400]))
    bare = replace(pair, learned={})
    with pytest.raises(ValueError, match="eagle"):
        next(Sweep(bare, SweepPlan(TEXT, system="eagle")).measure_cells_in_steps())


def caches() -> int:
    gc.collect()
    return sum(type(each) is KVCache for each in gc.get_objects())


@pytest.mark.slow
def test_a_closed_sweep_frees_its_lanes(pair, monkeypatch):
    monkeypatch.setattr(sweep_module, "TICK_SECONDS", 0.0)
    before = caches()
    sweep = Sweep(pair, SweepPlan(TEXT, **SMALL))
    stream = sweep.measure_cells_in_steps()
    while "cell" not in next(stream):
        pass
    assert 1 < next(stream)["done"] < 2 and caches() > before  # within the second cell
    stream.close()
    assert caches() == before
    assert len(sweep.cells) == 1


def test_the_stream_is_numbered_json(pair):
    stream = serialise_and_number_messages(
        "run", Sweep(pair, SweepPlan(TEXT, depth=1, width=1, max_new_tokens=4)).measure_cells_in_steps()
    )
    lines = [json.loads(news.json_text) for news in stream if isinstance(news, RunEvent)]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1)) and len(
        {line["run"] for line in lines}
    ) == 1
    assert lines[-1]["end"] and lines[-1]["cells"][0]["x"] == 1
