"""What ships: sizes, offline loading through the Auto classes, and a README that quotes real files."""

import json
import re
import subprocess
import sys

import pytest

from engine.measure.options import CHAT, first_held_out_prompts, load_chat_page_prompts, load_chat_prompts
from engine.models.pairs import MODELS
from helpers.paths import ROOT

ASSETS = ROOT / "assets"
MEGABYTE = 1 << 20


def test_files_stay_small():
    sizes = {path: path.stat().st_size for path in ASSETS.rglob("*") if path.is_file()}
    assert max(sizes.values()) < 50 * MEGABYTE
    assert sum(sizes.values()) < 220 * MEGABYTE


@pytest.mark.slow
def test_the_embedded_models_load_like_any_hub_model_with_no_network():
    """In a fresh process in which every socket fails."""
    code = f"""
import socket
def refuse(*args, **kwargs): raise OSError("no network in this test")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({str(MODELS / "small" / "target")!r})
for name in ("small/target", "small/draft", "embedded/target", "embedded/draft"):
    folder = {str(MODELS)!r} + "/" + name
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == tokenizer.get_vocab()
    assert model.config.vocab_size == len(tokenizer) == 4096
    assert model.config.max_position_embeddings >= 1024
    assert model.generate(**tokenizer("Story: Once", return_tensors="pt"), max_new_tokens=3).shape[1] > 3
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_every_prompt_of_gallery_and_bench_is_usable(embedded):
    gallery = json.loads((ASSETS / "prompts.json").read_text(encoding="utf-8"))
    held_out = json.loads((ASSETS / "held_out.json").read_text(encoding="utf-8"))
    written = {"translation", "summary", "retrieval"}  # kinds of prompt that the models were not trained for
    assert set(gallery) == set(held_out) - {"hostile", *written} == {"stories", "code", "word problems"}
    assert len(held_out.pop("hostile")) == 12  # random bytes and other languages: what no drafter was made for
    assert all(len(prompts) >= 4 for prompts in gallery.values())
    assert all(len(prompts) == (12 if domain in written else 20) for domain, prompts in held_out.items())
    assert all(len(set(held_out[domain])) == 12 for domain in written)
    texts = [each["prompt"] for prompts in gallery.values() for each in prompts]
    for text in texts + [text for prompts in held_out.values() for text in prompts]:
        ids = embedded.tokenizer(text)["input_ids"]
        assert ids[0] == embedded.tokenizer.bos_token_id
        assert len(ids) < embedded.context - 200
        assert embedded.tokenizer.decode(ids, skip_special_tokens=True) == text


def test_the_prompts_for_a_chat_are_forty_of_five_kinds_that_no_training_reads():
    kinds = load_chat_prompts()
    assert sorted(kinds) == ["code", "question", "rewriting", "story", "sums"]
    texts = [prompt for each in kinds.values() for prompt in each]
    assert {len(each) for each in kinds.values()} == {8} and len(set(texts)) == 40
    first = first_held_out_prompts(CHAT, 5)
    assert [next(kind for kind, each in kinds.items() if text in each) for text in first] == list(kinds)
    assert not {each["prompt"] for every in load_chat_page_prompts().values() for each in every} & set(texts)
    for path in (ROOT / "engine" / "lab" / "train").rglob("*.py"):
        assert not {"chat_prompts", "CHAT_FILE"} & {*re.findall(r"\w+", path.read_text(encoding="utf-8"))}, path


def test_the_readme_quotes_a_real_drafter_and_names_both_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (ROOT / "engine" / "drafters" / "bigram.py").read_text(encoding="utf-8").strip() in readme
    install = "python3 -m venv .venv && .venv/bin/pip install -q -r requirements.txt && "
    assert f"{install}.venv/bin/python app.py\n" in readme
    assert f"{install}.venv/bin/python -m pytest -n 3\n" in readme
    assert (ASSETS / "page.png").is_file()
