"""The GPU script's sections on a CPU with tiny models: they run, and they notice what they are there to notice. Judges no timing."""

import json

import pytest
import torch

from engine.forward.runner import Runner
from engine.forward.runner_gpu import StaticForward
from engine.lab.gpu import command, correctness, costs
from engine.lab.gpu.costs import Shape
from engine.measure import options
from helpers.commands import run
from helpers.pairs import tiny_llama, tiny_pair

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("small_capacities")
TINY = Shape(hidden=128, layers=2, heads=4, kv_heads=2, mlp=256, vocab=256)
PLAN = command.Workload(
    prompts=1,
    tokens=8,
    systems=("tree", "magic"),
    trees=((2, 2, 4),),
    temperatures=(0.8,),
    shapes=("1B", "8B"),
    rows=(1, 3, 8),
    repeats=1,
)


@pytest.mark.slow
def test_every_section_runs_and_a_failing_part_leaves_a_sentence(monkeypatch, tmp_path, capsys):
    held_out = tmp_path / "held_out.json"
    held_out.write_text(json.dumps({"stories": ["Story: A fox"]}))
    monkeypatch.setattr(options, "ASSETS", tmp_path)
    monkeypatch.setattr(command, "load_pair", lambda *arguments: tiny_pair(same=True))
    monkeypatch.setattr(command, "SHAPES", {"1B": TINY, "8B": TINY})
    report = command.Report(tmp_path / "new" / "gpu-tiny.json")
    command.measure(report, CPU, PLAN)
    figures = json.loads(report.path.read_text())
    failed = {name: said for name, said in figures.items() if isinstance(said, str)}
    assert not failed
    for dtype in ("fp32", "bf16"):
        checks = figures["correctness"][dtype]
        assert set(checks["graph_against_eager"].values()) == {0.0}
        assert checks["tree_against_paths"]["agreeing"] == checks["tree_against_paths"]["nodes"]
        assert checks["tree_against_paths"]["largest_difference"] < 1e-3
        assert all(each["first_divergence"] == [None] for each in checks["rounds_against_loop"])
        assert "need a CUDA GPU" in checks["why_eager"]
        rows = figures["embedded races"][dtype]["T = 0.8"]
        assert rows["tree"]["systems"][0]["identical"] is True
        assert rows["magic"].startswith("Failed: ValueError: Unknown system 'magic'")
    assert figures["correctness"]["noise"] == {"largest_difference": 0.0, "equal": 1.0}
    for shape in PLAN.shapes:
        costs = figures[f"costs {shape}"]
        assert costs["parameters"] == TINY.parameters
        for precision in ("bf16", "nf4"):
            for way in ("eager_ms", "graphed_ms"):
                assert list(costs[precision][way]) == ["1", "3", "8"]
            assert costs[precision]["memory"]["weights_mib"] > 0
        assert costs["nf4"]["memory"]["weights_mib"] < 0.7 * costs["bf16"]["memory"]["weights_mib"]
    assert figures["tau"][0]["tau"] > 1
    assert "projection, not a measurement" in figures["projection"]["note"]
    assert {(row["target"], row["precision"]) for row in figures["projection"]["rows"]} == {
        ("8B", "bf16"),
        ("8B", "nf4"),
    }
    assert "switched off" in figures["graphed and eager"]["eager"]["why_eager"]
    assert "projection: done" in capsys.readouterr().out


def test_a_projection_is_tau_over_the_rounds_cost_in_plain_tokens():
    def curve(one: float, more: float) -> dict:
        return {"bf16": {"graphed_ms": {1: one, 8: more}}, "nf4": "Failed: no bitsandbytes."}

    tree = {"depth": 3, "width": 2, "nodes": 8, "temperature": 0.0, "tau": 3.0}
    found = command.projection({"1B": curve(1.0, 1.0), "8B": curve(10.0, 11.0), "14B": "Failed."}, [tree])
    [row] = found["rows"]
    assert row["target"] == "8B" and row["projected_speedup"] == pytest.approx(3.0 / ((11.0 + 3 * 1.0) / 10.0))
    with pytest.raises(ValueError, match="no cost curve of the 1B shape"):
        command.projection({"1B": "Failed.", "8B": curve(1.0, 1.0)}, [tree])


def test_the_report_goes_on_after_a_failure_and_stops_when_its_time_is_up(monkeypatch, tmp_path):
    report = command.Report(tmp_path / "a.json")
    report.add("bad", lambda: 1 / 0)
    report.add("good", lambda: 1)
    monkeypatch.setattr(command, "SECONDS", -1)
    report.add("late", lambda: 2)
    figures = json.loads(report.path.read_text())
    assert figures["good"] == 1 and figures["bad"].startswith("Failed: ZeroDivisionError: division by zero")
    assert figures["late"].startswith("Left out")


def test_without_a_gpu_it_says_so_and_writes_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        run("gpu", "--out", str(tmp_path / "x.json"))
    assert "There is no CUDA GPU here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_check_of_trees_notices_a_mask_that_shows_siblings(monkeypatch):
    whole = StaticForward.__call__

    def spoiled(self, ids, positions, slots, visible):
        return whole(self, ids, positions, slots, torch.ones_like(visible))

    runner = Runner(tiny_llama(0), own=False)
    monkeypatch.setattr(Runner, "open", lambda self, *rest: correctness.Session(self, *rest, graphed=True))
    assert correctness.tree_against_paths(runner)["largest_difference"] < 1e-3
    monkeypatch.setattr(StaticForward, "__call__", spoiled)
    assert correctness.tree_against_paths(runner)["largest_difference"] > 0.1


def test_shapes_have_the_sizes_that_their_names_promise():
    billions = {name: shape.parameters / 1e9 for name, shape in costs.SHAPES.items()}
    assert billions == pytest.approx({"1B": 1.24, "8B": 8.03, "14B": 14.77}, abs=0.01)
    model = costs.random_model(TINY, CPU, torch.bfloat16)
    norms = sum(each.numel() for name, each in model.named_parameters() if "norm" in name)
    assert sum(each.numel() for each in model.parameters()) == TINY.parameters + norms
    assert model.dtype == torch.bfloat16 and model.lm_head.weight.std() > 0


@pytest.mark.slow
def test_four_bit_layers_compute_what_the_plain_ones_do_roughly():
    model = costs.random_model(TINY, CPU, torch.bfloat16)
    ids = torch.arange(8)[None]
    plain = model(ids).logits
    costs.to_four_bit(model)
    kinds = {type(module).__name__ for module in model.model.layers.modules()}
    assert "Linear4bit" in kinds and "Linear" not in kinds and type(model.lm_head) is torch.nn.Linear
    rounded = model(ids).logits
    assert torch.nn.functional.cosine_similarity(plain.float().flatten(), rounded.float().flatten(), 0) > 0.8


def test_the_speed_of_a_pair_without_graphs_can_be_measured(monkeypatch):
    monkeypatch.setattr(command, "load_pair", lambda *arguments: tiny_pair())
    found = command.graphed_and_eager("fp32", CPU, ["Story: A fox"], PLAN)
    assert found["eager"]["baseline"]["tokens_per_s"] > 0 and found["graphed"]["tree"]["name"] == "tree"
