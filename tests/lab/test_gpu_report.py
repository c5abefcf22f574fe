"""The GPU script's sections on a CPU with tiny models: they run, and they notice what they are there to notice. Judges no timing."""

import json

import pytest
import torch

from engine.forward.runner import Runner
from engine.forward.runner_gpu import StaticForward
from engine.lab.gpu import command, correctness, costs, grown
from engine.lab.gpu.costs import build_llama_config, count_matrix_parameters
from engine.measure import options
from engine.models.chat import tokenise_prompt
from engine.models.loading import load_pair_anew
from engine.models.pairs import PAIRS
from engine.race import Race, Settings
from helpers.commands import run
from helpers.pairs import tiny_llama, tiny_pair

WORDS = "Story: Tom had a red ball. He"
CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("small_capacities")
TINY = build_llama_config(hidden=128, layers=2, heads=4, kv_heads=2, mlp=256, vocab=256)
PLAN = command.GpuMeasurementWorkload(
    prompt_count=1,
    max_new_tokens=8,
    small_pair_systems=("tree",),
    enlarged_pair_systems=("tree", "magic"),
    temperatures=(0.8,),
    timed_model_sizes=("1B", "8B"),
    timed_row_counts=(1, 3, 8),
    timing_repeats=1,
)


@pytest.mark.slow
def test_every_section_runs_and_a_failing_part_leaves_a_sentence(monkeypatch, tmp_path, capsys):
    held_out = tmp_path / "held_out.json"
    held_out.write_text(json.dumps({"stories": ["Story: A fox"]}))
    monkeypatch.setattr(options, "ASSETS", tmp_path)
    monkeypatch.setattr(command, "load_pair_anew", lambda *arguments: tiny_pair(same=True))
    monkeypatch.setattr(command, "build_enlarged_pair", lambda *arguments: tiny_pair(same=True))
    monkeypatch.setattr(command, "SHAPES", {"1B": TINY, "8B": TINY})
    report = command.TimeLimitedJsonReport(tmp_path / "new" / "gpu-tiny.json")
    command.run_all_gpu_measurements(report, CPU, PLAN)
    figures = json.loads(report.path.read_text())
    failed = {name: said for name, said in figures.items() if isinstance(said, str)}
    assert not failed
    for dtype in ("fp32", "bf16"):
        checks = figures["correctness"][dtype]
        assert checks["tree_against_paths"]["agreeing"] == checks["tree_against_paths"]["nodes"]
        assert checks["tree_against_paths"]["largest_difference"] < 1e-3
        assert "need a CUDA GPU" in checks["why_eager"]
        [row] = figures["embedded races"][dtype]["T = 0.8"]["systems"]
        assert row["tau"] > 1 and row["identical"] is True
    assert figures["correctness"]["noise"] == {"largest_difference": 0.0, "equal": 1.0}
    for size in PLAN.timed_model_sizes:
        costs = figures[f"costs {size}"]
        assert costs["parameters"] == count_matrix_parameters(TINY)
        assert costs[command.FEW_ROWS].startswith("Failed: ImportError")  # the model is not on a GPU
        for precision in ("bf16", "nf4"):
            for way in ("eager_ms", "graphed_ms"):
                assert list(costs[precision][way]) == ["1", "3", "8"]
            assert costs[precision]["memory"]["weights_mib"] > 0
        assert costs["nf4"]["memory"]["weights_mib"] < 0.7 * costs["bf16"]["memory"]["weights_mib"]
    for draft, config in grown.DRAFTS.items():
        raced = figures[f"grown pair, draft {draft}"]
        assert raced["parameters"] == {
            "target": count_matrix_parameters(grown.TARGET),
            "draft": count_matrix_parameters(config),
        }
        assert raced["T = 0.8"].startswith("Failed: ValueError: Unknown system 'magic'")
    assert figures["host waits"]["vanilla"] == {"mean": 0.0, "most": 0}  # none is counted without a GPU
    assert "grown pair, draft 1B: done" in capsys.readouterr().out


@pytest.mark.exhaustive
@pytest.mark.slow
@torch.inference_mode()
def test_a_grown_pair_guesses_as_the_default_pair_does(monkeypatch):
    """Smaller than the measured one, and with a layer more than the default pair's models, of which it computes the same."""
    monkeypatch.setattr(grown, "TARGET", build_llama_config(1280, 9, 20, 20, 3328, 4096, tied=True))
    monkeypatch.setitem(grown.DRAFTS, "0.4B", build_llama_config(512, 3, 8, 8, 1408, 4096, tied=True))
    large, own = grown.build_enlarged_pair("0.4B", CPU), load_pair_anew(PAIRS["embedded"], "cpu", "bf16", "none")
    ids = torch.tensor([tokenise_prompt(own, WORDS)])
    for mine, its in ((large.target, own.target), (large.draft, own.draft)):
        logits = its.model(ids).logits.float()
        assert (mine.model(ids).logits.float() - logits).abs().max() < 0.03 * logits.abs().max()
    settings = Settings(WORDS, ("tree", "eagle", "dspark", "dflash", "parallel-tree", "medusa"), max_new_tokens=12)
    for net in (*large.learned.values(), *own.learned.values()):
        net.compiled = None  # eight bits round each width in its own way
    # In one shape: each pair would choose its own by what its forwards cost at that moment
    own_taus, taus = (
        [each.tau for each in Race(pair.with_shapes({}), settings).run_to_traces()] for pair in (own, large)
    )
    assert taus == own_taus and min(taus) > 1.4 and "grown to 0.2B" in large.title


def test_what_would_grow_has_the_sizes_that_its_name_promises():
    billions = {name: count_matrix_parameters(config) / 1e9 for name, config in grown.DRAFTS.items()}
    assert billions == pytest.approx({"0.4B": 0.43, "1B": 1.11}, abs=0.01)
    assert count_matrix_parameters(grown.TARGET) / 1e9 == pytest.approx(8.06, abs=0.01)


def test_the_report_goes_on_after_a_failure_and_stops_when_its_time_is_up(monkeypatch, tmp_path):
    report = command.TimeLimitedJsonReport(tmp_path / "a.json")
    report.run_section_and_write_file("bad", lambda: 1 / 0)
    report.run_section_and_write_file("good", lambda: 1)
    monkeypatch.setattr(command, "SECONDS", -1)
    report.run_section_and_write_file("late", lambda: 2)
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

    def spoiled(self, ids, positions, slots, visible, last=None):
        return whole(self, ids, positions, slots, torch.ones_like(visible), last)

    runner = Runner(tiny_llama(0), use_custom_forward=False)
    monkeypatch.setattr(
        Runner, "open_session", lambda self, *rest: correctness.Session(self, *rest, use_cuda_graphs=True)
    )
    assert correctness.measure_tree_logits_against_single_paths(runner)["largest_difference"] < 1e-3
    monkeypatch.setattr(StaticForward, "__call__", spoiled)
    assert correctness.measure_tree_logits_against_single_paths(runner)["largest_difference"] > 0.1


def test_shapes_have_the_sizes_that_their_names_promise():
    billions = {name: count_matrix_parameters(config) / 1e9 for name, config in costs.SHAPES.items()}
    assert billions == pytest.approx({"1B": 1.24, "8B": 8.03, "14B": 14.77}, abs=0.01)
    model = costs.build_random_llama(TINY, CPU)
    norms = sum(each.numel() for name, each in model.named_parameters() if "norm" in name)
    assert sum(each.numel() for each in model.parameters()) == count_matrix_parameters(TINY) + norms
    assert model.dtype == torch.bfloat16 and model.lm_head.weight.std() > 0


@pytest.mark.slow
def test_four_bit_layers_compute_what_the_plain_ones_do_roughly():
    model = costs.build_random_llama(TINY, CPU)
    ids = torch.arange(8)[None]
    plain = model(ids).logits
    costs.quantise_to_nf4(model)
    kinds = {type(module).__name__ for module in model.model.layers.modules()}
    assert "Linear4bit" in kinds and "Linear" not in kinds and type(model.lm_head) is torch.nn.Linear
    rounded = model(ids).logits
    assert torch.nn.functional.cosine_similarity(plain.float().flatten(), rounded.float().flatten(), 0) > 0.8
