"""Requests for training: around texts, and short ones. None that is held out or measured is trained on."""

import json

import numpy as np
import pytest

from engine.lab.train.self_written import requests
from engine.lab.train.self_written.short_requests import draw_short_request
from engine.measure.options import load_chat_page_prompts, load_chat_prompts


def test_requests_are_made_of_texts_by_kind(tmp_path, monkeypatch):
    monkeypatch.setattr(
        requests, "load_functions_of_installed_packages", lambda held_out: ["def add(a, b):\n    return a + b"]
    )
    (tmp_path / "gsm8k").mkdir()
    for name in ("train", "test"):
        (tmp_path / "gsm8k" / f"{name}.jsonl").write_text(json.dumps({"question": f"How many {name}?", "answer": "1"}))
    learn, held_out = (
        requests.request_drawer_from_data(tmp_path, held, requests.draw_no_request) for held in (False, True)
    )
    rng = np.random.default_rng(0)
    drawn = [learn(rng) for _ in range(200)]
    assert 130 < drawn.count(None) < 185
    assert any("How many train?" in each for each in drawn if each) and any(
        "```python" in each for each in drawn if each
    )
    assert not any("How many train?" in each for each in (held_out(rng) for _ in range(200)) if each)
    with pytest.raises(ValueError, match="holds neither gsm8k/ nor tinystories/"):
        requests.request_drawer_from_data(tmp_path / "gsm8k", False, requests.draw_no_request)
    assert requests.shorten_text_at_word("one two three", 8) == "one two"


def test_short_requests_for_training_are_never_held_out_and_never_measured():
    rng = np.random.default_rng(0)
    own, held_out = ({draw_short_request(rng, kept) for _ in range(2_000)} for kept in (False, True))
    assert len(own) > 1_500 and len(held_out) > 200 and not own & held_out
    assert not any("{" in request or not request[0].isupper() for request in own | held_out if "dict" not in request)
    measured = {prompt for kind in load_chat_prompts().values() for prompt in kind}
    shown = {example["prompt"] for kind in load_chat_page_prompts().values() for example in kind}
    assert not (own | held_out) & (measured | shown)
