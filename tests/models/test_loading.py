"""Model pairs, on small random checkpoints in the Hub's format. No test needs a network."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from huggingface_hub import errors as hub
from safetensors.torch import load_file

from engine.models import loading, pairs, refusals
from engine.models.bigram import BigramTable
from helpers.checkpoints import VOCAB, byte_tokenizer, logits_of, pair_of, reference, write

# loading


def test_a_pair_loads_with_the_logits_that_were_saved(llama, qwen, no_network):
    """Both families; float16 weights compute in float32; no connection is even tried."""
    (target, target_model), (draft, draft_model) = llama, qwen
    assert {weight.dtype for weight in load_file(target / "model.safetensors").values()} == {torch.float16}
    loaded = loading.load_pair_anew(pair_of(target, draft), device="cpu")
    torch.testing.assert_close(logits_of(loaded.target), reference(target_model), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits_of(loaded.draft), reference(draft_model), atol=1e-4, rtol=1e-4)
    assert loaded.tokenizer.encode("Hi") == byte_tokenizer().encode("Hi")
    assert (loaded.dtype, loaded.title, loaded.bigram) == ("fp32", "test pair", None)
    assert loaded.hardware.endswith(("CPU core", "CPU cores"))
    assert {parameter.dtype for parameter in loaded.target.model.parameters()} == {torch.float32}
    assert no_network == []


def test_padded_logits_are_welcome_and_the_smaller_window_counts(llama, qwen):
    loaded = loading.load_pair_anew(pair_of(llama[0], qwen[0]), device="cpu")
    assert (loaded.target.vocab, loaded.draft.vocab) == (VOCAB, 320)
    assert (loaded.target.context, loaded.draft.context, loaded.context) == (128, 96, 96)


def test_a_target_alone_loads(llama):
    loaded = loading.load_pair_anew(pair_of(llama[0]), device="cpu", dtype="bf16")
    assert (loaded.draft, loaded.context, loaded.dtype) == (None, 128, "bf16")
    assert loaded.target.model.dtype == torch.bfloat16


def test_stop_ids_join_lists_and_numbers_of_every_source(llama, qwen):
    assert loading.load_pair_anew(pair_of(llama[0]), device="cpu").stop_ids == {256, 10}
    assert loading.load_pair_anew(pair_of(qwen[0]), device="cpu").stop_ids == {256}


def test_the_default_dtype_follows_the_device():
    assert loading.validate_or_choose_dtype(None, torch.device("cpu")) == "fp32"
    assert loading.validate_or_choose_dtype(None, torch.device("cuda", 0)) == "bf16"


def test_load_keeps_one_object_for_the_same_arguments(llama, qwen, monkeypatch):
    monkeypatch.setattr(pairs, "PAIRS", {"embedded": pair_of(llama[0], qwen[0])})
    monkeypatch.setattr(loading, "_loaded", {})
    first = loading.load(device="cpu")
    assert loading.load("embedded", "cpu", "fp32") is first
    assert loading.load("embedded", "cpu", "bf16") is not first


def test_threads_that_ask_together_share_one_load(monkeypatch):
    loads = []

    def slow(*arguments):
        loads.append(arguments)
        time.sleep(0.05)
        return object()

    monkeypatch.setattr(loading, "_loaded", {})
    monkeypatch.setattr(loading, "load_pair_anew", slow)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: loading.load("embedded", "cpu"), range(8)))) == 1
    assert len(loads) == 1


def test_the_bigram_table_comes_along_and_must_fit(llama, tmp_path):
    BigramTable.build_from_token_stream(np.arange(VOCAB), VOCAB, follower_count=2).save(tmp_path / "fits")
    BigramTable.build_from_token_stream(np.arange(9), 9, follower_count=2).save(tmp_path / "small")
    assert (
        loading.load_pair_anew(pair_of(llama[0], bigram_path=str(tmp_path / "fits")), device="cpu").bigram.vocab
        == VOCAB
    )
    with pytest.raises(ValueError, match=r"covers 9 tokens.*has 257"):
        loading.load_pair_anew(pair_of(llama[0], bigram_path=str(tmp_path / "small")), device="cpu")
    with pytest.raises(ValueError, match=r"No bigram table at .*engine train pair"):
        loading.load_pair_anew(pair_of(llama[0], bigram_path=str(tmp_path / "none")), device="cpu")


def test_four_bit_weights_forward_near_the_plain_ones(llama):
    """NF4 through bitsandbytes for real: near the plain logits, not equal to them, and really packed in bytes."""
    loaded = loading.load_pair_anew(pair_of(llama[0]), device="cpu", quantisation="nf4")
    weight = loaded.target.model.model.layers[0].mlp.down_proj.weight
    assert (loaded.dtype, weight.dtype, weight.numel()) == ("nf4", torch.uint8, 64 * 128 // 2)
    wanted = reference(llama[1])
    error = (logits_of(loaded.target) - wanted).std() / wanted.std()
    assert 0.005 < error < 0.3


# the Hub


def test_every_listed_hub_repository_is_pinned_and_the_embedded_pairs_are_local():
    for pair in pairs.PAIRS.values():
        pins = (pair.target_revision, pair.draft_revision)
        here = (
            pair.name in pairs.EMBEDDED or Path(pair.target).is_file()
        )  # the package of a published one may be installed
        named = [pin for pin, path in zip(pins, (pair.target, pair.draft), strict=True) if path]
        assert pins == (None, None) if here else all(len(pin) == 40 for pin in named), pair.name
    for name in pairs.EMBEDDED:
        assert pairs.PAIRS[name].target_checkpoint.load_arguments["local_files_only"] is True
        assert Path(pairs.PAIRS[name].target).is_absolute()
    with pytest.raises(ValueError, match=r"40-digit commit, got 'main'"):
        pairs.Pair("x", "x", "org/name", target_revision="main")


def test_a_hub_pair_loads_the_pinned_commit(tmp_path, monkeypatch, no_network):
    """A local Hub cache with two commits; `main` points to the other one."""
    pinned, other = "a" * 40, "b" * 40
    repository = tmp_path / "models--org--name"
    model = write(repository / "snapshots" / pinned, seed=2)
    write(repository / "snapshots" / other, seed=3)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(other)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    loaded = loading.load_pair_anew(pairs.Pair("test", "test", "org/name", target_revision=pinned), device="cpu")
    torch.testing.assert_close(logits_of(loaded.target), reference(model), atol=1e-4, rtol=1e-4)
    (repository / "snapshots" / pinned / "model.safetensors").unlink()
    torch.save(model.state_dict(), repository / "snapshots" / pinned / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"safetensors weights\) could not be fetched"):
        loading.load_pair_anew(pairs.Pair("test", "test", "org/name", target_revision=pinned), device="cpu")


def test_no_network_is_a_sentence(tmp_path, monkeypatch, no_network):
    """The attempts that are recorded here also prove that their absence above means something."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(time, "sleep", lambda _: None)  # the Hub's client waits between its attempts
    with pytest.raises(ValueError, match=r"Qwen/Qwen2.5-7B-Instruct .*Check the network, or use an embedded pair"):
        loading.load_pair_anew(pairs.PAIRS["qwen2.5-7b"], device="cpu")
    assert no_network


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (hub.GatedRepoError, r"org/name is gated: accept its licence at https://huggingface.co/org/name .*HF_TOKEN"),
        (hub.RevisionNotFoundError, r"shows no org/name at revision a{40}"),
        (hub.RepositoryNotFoundError, r"shows no org/name at revision a{40}"),
        (torch.OutOfMemoryError, r"Out of memory while loading org/name.*--quantisation 8-bit or nf4"),
        (MemoryError, r"Out of memory while loading org/name"),
        (ImportError, r"org/name needs packages that are not installed.*requirements.txt"),
    ],
)
def test_errors_from_below_become_sentences(cause, sentence, monkeypatch):
    """transformers wraps the Hub's errors in `OSError`, so only the chain of causes tells them apart."""

    def fail(**_):
        error = cause.__new__(cause)
        raise OSError("We could not load it.") from error

    monkeypatch.setattr(loading.AutoConfig, "from_pretrained", fail)
    with pytest.raises(ValueError, match=sentence):
        loading.load_pair_anew(pairs.Pair("test", "test", "org/name", target_revision="a" * 40), device="cpu")


# refusals


def test_an_unknown_pair_names_the_known_ones():
    with pytest.raises(ValueError, match=r"Unknown pair 'gpt-9'\. Available: embedded, small, smollm2, qwen2\.5-7b"):
        loading.load("gpt-9")


def test_missing_embedded_weights_say_how_to_make_them(tmp_path, monkeypatch):
    monkeypatch.setattr(refusals, "MODELS", tmp_path)
    with pytest.raises(ValueError, match=r"No model weights at .*target.*python -m engine train pair"):
        loading.load_pair_anew(pair_of(tmp_path / "target"), device="cpu")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"No model weights at .*nowhere.*config\.json"):
        loading.load_pair_anew(pair_of(tmp_path / "nowhere"), device="cpu")
