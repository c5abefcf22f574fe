"""Loading tells how many bytes have come, and whoever is told may end it: then nothing is kept."""

import gc
import io
import threading
import weakref
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.file_download import http_get
from tqdm import tqdm
from transformers import LlamaForCausalLM
from transformers.utils import logging as said_by_transformers

from engine.forward.rounded_linear import has_int8_matrices_on_cpu
from engine.measure.options import draw_loading_progress_bars
from engine.models import loading
from engine.models.memory import build_meta_device_model, weight_bytes_by_name
from engine.models.progress import LoadingProgress, LoadingStopped, build_hub_fetch_bar_class
from helpers.checkpoints import pair_of


class Enough(Exception):
    pass


@pytest.fixture
def forgotten(monkeypatch):
    """No pair is loaded yet; none of this test stays."""
    monkeypatch.setattr(loading, "_loaded", {})


def test_words_are_the_bytes_so_far():
    assert (
        LoadingProgress("Loading", "Qwen3-8B", 3_100_000_000, 15_200_000_000).status_line
        == "Loading Qwen3-8B: 3.1 of 15.2 GB"
    )


@pytest.mark.parametrize("quantisation", ["none", "8-bit", "nf4"])
def test_bytes_of_both_models_are_told_from_none_to_all(quantisation, llama, qwen):
    told: list[LoadingProgress] = []
    pair = loading.load_pair_anew(
        pair_of(llama[0], qwen[0]), device="cpu", quantisation=quantisation, report_progress=told.append
    )
    models = {"target": pair.target.model, "draft": pair.draft.model}
    assert list(dict.fromkeys(each.model_name for each in told)) == list(models) and {
        each.activity for each in told
    } == {"Loading"}
    for name, model in models.items():
        done = [each.done_bytes for each in told if each.model_name == name]
        totals = {each.total_bytes for each in told if each.model_name == name}
        plain = build_meta_device_model(
            model.config, torch.float32, "none"
        )  # whose layers are rounded behind the last byte
        assert totals == {sum(weight_bytes_by_name(plain if has_int8_matrices_on_cpu(model) else model).values())}
        assert done[0] == 0 and done[-1] == max(totals) and done == sorted(done) and len(set(done)) > 5


def test_bytes_come_weight_by_weight(qwen):
    """The steps are the sizes of weights. What no file holds comes with the last."""
    told: list[LoadingProgress] = []
    pair = loading.load_pair_anew(pair_of(qwen[0]), device="cpu", report_progress=told.append)
    sizes = weight_bytes_by_name(pair.target.model)
    steps = [after.done_bytes - before.done_bytes for before, after in pairwise(told)]
    stored = sorted(size for name, size in sizes.items() if "inv_freq" not in name)
    steps[-1] -= sum(sizes.values()) - sum(stored)
    assert sorted(steps) == stored


@pytest.mark.parametrize("stop_at", [0, 9, 25])
@pytest.mark.parametrize("reason", [Enough, KeyboardInterrupt])
def test_what_a_listener_raises_ends_the_loading_and_nothing_is_kept(
    stop_at, reason, llama, qwen, forgotten, monkeypatch
):
    made, threads = [], threading.active_count()
    build = LlamaForCausalLM.__init__

    def noted(model, *arguments, **more):
        build(model, *arguments, **more)
        made.append(weakref.ref(model))

    monkeypatch.setattr(LlamaForCausalLM, "__init__", noted)
    told = []

    def hear(progress: LoadingProgress) -> None:
        told.append(progress)
        if len(told) > stop_at:
            raise reason("enough")

    with pytest.raises(reason, match="enough") as ended:
        loading.load(pair_of(llama[0], qwen[0]), "cpu", report_progress=hear)
    assert len(told) == stop_at + 1 and made and loading._loaded == {}
    del ended
    gc.collect()
    assert [model() for model in made] == [None] * len(made)
    assert said_by_transformers._tqdm_hook is None
    again = loading.load(pair_of(llama[0], qwen[0]), "cpu")
    assert again.target.model is not None and threading.active_count() <= threads + 8


@pytest.mark.parametrize("tell", [None, lambda _: None])
def test_the_libraries_draw_no_bars_of_their_own(tell, llama, capsys):
    loading.load_pair_anew(pair_of(llama[0]), device="cpu", report_progress=tell)
    assert capsys.readouterr() == ("", "")


def test_another_threads_loading_is_not_told_of(llama, qwen):
    """transformers has one hook for all threads."""
    told: list[str] = []

    def hear(progress: LoadingProgress) -> None:
        if not told:
            other = threading.Thread(target=loading.load_pair_anew, args=(pair_of(qwen[0]), "cpu"))
            other.start()
            other.join(60)
        told.append(progress.model_name)

    loading.load_pair_anew(pair_of(llama[0]), device="cpu", report_progress=hear)
    assert set(told) == {"target"}


def test_a_command_draws_a_bar_for_each_model(llama, qwen, capsys):
    with draw_loading_progress_bars() as tell:
        loading.load_pair_anew(pair_of(llama[0], qwen[0]), device="cpu", report_progress=tell)
    drawn = capsys.readouterr()
    assert drawn.out == "" and "Loading target: 100%" in drawn.err and "Loading draft: 100%" in drawn.err
    assert "B/s" in drawn.err


# fetching


@pytest.fixture
def served(monkeypatch):
    """A file of 40 kB over HTTP from this machine, as the Hub serves weights."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10000)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "40000")
            self.end_headers()
            self.wfile.write(b"w" * 40000)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/model.safetensors"
    server.shutdown()


def test_fetched_bytes_are_told(served):
    told: list[LoadingProgress] = []
    into = io.BytesIO()
    http_get(served, into, tqdm_class=build_hub_fetch_bar_class(told.append, "Qwen3-8B"))
    assert len(into.getvalue()) == 40000 and told[-1] == LoadingProgress("Fetching", "Qwen3-8B", 40000, 40000)
    assert [each.done_bytes for each in told] == sorted({each.done_bytes for each in told}) and len(told) > 1


def test_a_listener_ends_the_fetching_too(served):
    def hear(progress):
        raise Enough("enough")

    with pytest.raises(LoadingStopped) as ended:
        http_get(served, io.BytesIO(), tqdm_class=build_hub_fetch_bar_class(hear, "Qwen3-8B"))
    assert isinstance(ended.value.reason, Enough)


def test_a_bar_that_counts_files_tells_nothing():
    told: list[LoadingProgress] = []
    bar = build_hub_fetch_bar_class(told.append, "x")
    assert issubclass(bar, tqdm)
    for _ in bar(range(3), desc="Fetching 3 files"):
        pass
    bar(total=3).update(1)
    assert told == []


def test_a_repository_of_the_hub_is_fetched_with_a_bar_of_ours_and_a_folder_is_not(llama, monkeypatch):
    given = []

    def fail(**arguments):
        given.append(arguments)
        raise OSError(2, "no such file")

    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", fail)
    config = loading.load_text_config_of_checkpoint(pair_of(llama[0]).target_checkpoint)
    monkeypatch.setattr(loading, "load_text_config_of_checkpoint", lambda _: config)
    for checkpoint in (loading.Checkpoint("org/large", "a" * 40), loading.Checkpoint(str(llama[0]))):
        with pytest.raises(ValueError):
            loading.load_model(checkpoint, torch.device("cpu"), torch.float32, report_progress=lambda _: None)
    assert [issubclass(each.get("tqdm_class", int), tqdm) for each in given] == [True, False]
