"""Pairs that cannot be raced are refused with the reason and with what would work, before any weight is read where that is possible."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    ByT5Tokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    T5Config,
)

from engine.models import loading, refusals
from engine.models.pairs import Checkpoint
from helpers.checkpoints import SIZES, pair_of, write


def test_pickled_weights_are_refused_unread(llama, tmp_path):
    write(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"whatever this is, it is not read")
    with pytest.raises(ValueError, match=r"pickled weights \(\.bin\)"):
        loading.load_pair_anew(pair_of(tmp_path), device="cpu")
    with pytest.raises(ValueError, match=r"pickled weights \(\.bin\)"):
        loading.load_pair_anew(pair_of(llama[0], tmp_path), device="cpu")


def test_a_checkpoint_that_lacks_a_weight_is_refused(tmp_path):
    """transformers would only warn and race a random matrix."""
    write(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks 1 of .*model\.layers\.1\.mlp\.up_proj\.weight"):
        loading.load_pair_anew(pair_of(tmp_path), device="cpu")


def test_truncated_weights_are_a_sentence(tmp_path):
    write(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"does not load: "):
        loading.load_pair_anew(pair_of(tmp_path), device="cpu")


def test_a_draft_with_permuted_ids_is_refused(llama, tmp_path):
    """Same size, same tokens: only the map tells."""
    write(tmp_path, swapped=True)
    with pytest.raises(ValueError, match=r"2 tokens have other ids.*'A' is 32 in the target, 33 in the draft"):
        loading.load_pair_anew(pair_of(llama[0], tmp_path), device="cpu")


def test_a_tokenizer_beyond_the_logits_is_refused(tmp_path):
    write(tmp_path, vocab_size=256, eos_token_id=0)
    with pytest.raises(ValueError, match=r"ids up to 256, its model only 256 logits"):
        loading.load_pair_anew(pair_of(tmp_path), device="cpu")


def test_an_unknown_type_of_layer_is_refused_from_disk(llama, tmp_path):
    write(tmp_path, Qwen2ForCausalLM, Qwen2Config, layer_types=["chunked_attention", "full_attention"])
    with pytest.raises(ValueError, match=r"\(qwen2\) cannot be raced: it has layers of type chunked_attention"):
        loading.load_pair_anew(pair_of(tmp_path), device="cpu")
    with pytest.raises(ValueError, match=r"cannot be raced"):
        loading.load_pair_anew(pair_of(llama[0], tmp_path), device="cpu")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (MambaConfig(), "recurrent state"),
        (T5Config(), "no causal language model"),
        (AutoConfig.for_model("deepseek_v2"), "plain keys and values"),
        (LlamaConfig(**SIZES, quantization_config={"quant_method": "awq"}), "already quantised"),
        (
            LlamaConfig(**SIZES, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
            "dynamic rotary embedding",
        ),
    ],
)
def test_what_cannot_verify_a_tree_is_refused(config, reason):
    assert reason in refusals.explain_why_unable_to_verify_trees(config)


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SIZES),
        Qwen2Config(**SIZES, sliding_window=32),  # the window is there but not in use
        MistralConfig(**SIZES, sliding_window=None),
        MistralConfig(**SIZES, sliding_window=128),  # as wide as the context
        MistralConfig(**{**SIZES, "sliding_window": 32}),
        AutoConfig.for_model("gemma2"),
        AutoConfig.for_model("phimoe", sliding_window=4096, max_position_embeddings=4096),  # nothing is beyond it
        AutoConfig.for_model("qwen3"),
    ],
)
def test_what_can_verify_a_tree_is_not_refused(config):
    assert refusals.explain_why_unable_to_verify_trees(config) is None


def test_a_model_without_sdpa_is_refused(monkeypatch):
    monkeypatch.setattr(LlamaForCausalLM, "_supports_sdpa", False)
    assert "sdpa" in refusals.explain_why_unable_to_verify_trees(LlamaConfig(**SIZES))


def test_a_tokenizer_in_python_is_refused_before_a_race_would_fail(tmp_path):
    write(tmp_path)
    for old in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / old).unlink()
    ByT5Tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"\(ByT5Tokenizer\) runs in Python only.*tokenizer\.json"):
        loading.load_pair_anew(pair_of(tmp_path), device="cpu")


def test_code_of_a_repository_is_never_run(tmp_path):
    write(tmp_path)
    config = '{"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}'
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "own.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ValueError, match=r"that is never run here"):
        loading.load_pair_anew(pair_of(tmp_path), device="cpu")


def test_four_bit_refuses_sizes_that_crash_it(tmp_path):
    write(tmp_path, intermediate_size=96)
    with pytest.raises(ValueError, match=r"multiples of 64.*MLP size of 96"):
        loading.load_pair_anew(pair_of(tmp_path), device="cpu", quantisation="nf4")


def test_four_bit_without_its_packages_says_what_to_install(llama, monkeypatch):
    monkeypatch.setattr("transformers.quantizers.quantizer_bnb_4bit.is_accelerate_available", lambda: False)
    with pytest.raises(ValueError, match=r"packages that are not installed.*accelerate.*requirements\.txt"):
        loading.load_pair_anew(pair_of(llama[0]), device="cpu", quantisation="nf4")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"device": "cuda"}, r"no CUDA GPU here, got device='cuda'"),
        ({"device": "tpu"}, r"cpu, mps, cuda or cuda:N, got 'tpu'"),
        ({"device": "cpu", "dtype": "int3"}, r"Unknown dtype 'int3'\. Available: fp32"),
    ],
)
def test_impossible_places_and_dtypes_are_sentences(arguments, sentence, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=sentence):
        loading.load(**arguments)


@pytest.mark.parametrize(("more", "less"), [("draft", "target"), ("target", "draft")])
def test_a_token_that_one_side_alone_has_is_refused(more, less):
    """A draft's own token would be guessed, and the target has no row for it; and no guess would ever be the target's own."""
    words = {side: {"a": 0, "b": 1} for side in (more, less)}
    words[more]["<think>"] = 2
    sides = [SimpleNamespace(get_vocab=lambda side=side: words[side]) for side in ("draft", "target")]
    with pytest.raises(ValueError, match=r"1 tokens have other ids.*'<think>'"):
        refusals.refuse_other_vocabulary(Checkpoint("here", None), Checkpoint("there", None), *sides)
