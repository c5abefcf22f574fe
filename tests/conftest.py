"""What tests share: a random Llama pair with a byte tokenizer, the embedded pair, and the page, served and open in a real Chromium."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may reach for a network

import pytest
import torch
from playwright.sync_api import Page, expect, sync_playwright
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.forward.runner import Runner
from engine.models.bigram import BigramTable
from engine.models.loading import load
from engine.models.pairs import LoadedPair, Pair
from engine.record.calibration import Calibration
from engine.train.learned import RECIPES, config_for

ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
FLAGS += ["--disable-component-update", "--disable-sync"]
PATIENCE = 120_000  # milliseconds; a busy machine is slow, a broken page waits for ever

collect_ignore = [] if torch.cuda.is_available() else ["test_graphs_on_gpu.py"]


def pytest_report_header() -> str:
    return "CUDA graphs: " + (
        "tested" if torch.cuda.is_available() else "no CUDA GPU here, test_graphs_on_gpu.py is left out"
    )


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, 256 in all."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def tiny_llama(seed: int, layers: int = 2, kv_heads: int = 2, scale: float = 3.0) -> LlamaForCausalLM:
    """A random Llama over 256 tokens; `scale` sharpens its logits so that its distributions differ clearly."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=kv_heads,
        max_position_embeddings=160,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    model.lm_head.weight.data.mul_(scale / 0.16)
    return model.eval()


def tiny_pair(lean: bool = True, stop_ids: frozenset[int] = frozenset(), same: bool = False) -> LoadedPair:
    """A random pair with untrained drafters; with `same` the draft is the target itself, so that long paths are accepted."""
    target = Runner(tiny_llama(0), lean=lean)
    ids = torch.arange(256).repeat(4)
    learned = {
        name: recipe.build(target.model, config_for(name, target.model), ids) for name, recipe in RECIPES.items()
    }
    return LoadedPair(
        pair=Pair(name="tiny", title="tiny random pair", target="", draft=""),
        tokenizer=byte_tokenizer(),
        target=target,
        draft=target if same else Runner(tiny_llama(1, layers=1)),
        bigram=BigramTable.count(torch.randint(0, 256, (2000,), generator=torch.Generator().manual_seed(0)), 256, k=8),
        hardware="test machine",
        dtype="fp32",
        context=160,
        stop_ids=stop_ids,
        learned={name: net.eval().requires_grad_(False) for name, net in learned.items()},
        calibration=Calibration(ranks=[[0.5, 0.2, 0.1], [0.4, 0.2, 0.1], [0.3, 0.1, 0.1]]),
    )


@pytest.fixture(scope="session")
def embedded() -> LoadedPair:
    return load("embedded", device="cpu")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "app.py", "--port", str(port)], cwd=ROOT)
    url = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(600):
            assert process.poll() is None, "app.py ended before it served"
            try:
                urllib.request.urlopen(url, timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(server, browser) -> Iterator[Page]:
    """The page at 1280x720, at full speed. Afterwards: nothing in the console, and no request to anywhere else."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    complaints, requests = [], []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(f"{server}?seed=0")  # an address with settings: no recorded race is played
    expect(opened.locator("[data-lane]")).to_have_count(2)
    expect(opened.locator("#prompt textarea")).to_be_visible()
    opened.wait_for_function("window.TreeRace?.view?.canDraw")  # Plotly's script may arrive late
    opened.get_by_role("radio", name="1×", exact=True).dispatch_event("click")
    yield opened
    context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith((server, "data:", "blob:"))] == []
