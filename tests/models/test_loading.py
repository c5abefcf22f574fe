"""Model pairs, on small random checkpoints in the Hub's format. No test needs a network."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from huggingface_hub import errors as hub
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    T5Config,
)

from engine.models import loading, pairs, refusals
from engine.models.bigram import BigramTable

VOCAB = 257  # 256 bytes and one end-of-text token
IDS = list(range(40, 49))


def byte_tokenizer(swapped: bool = False) -> PreTrainedTokenizerFast:
    """A token for every byte. `swapped` exchanges the ids of "A" and "B": same tokens, same size, another map."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate(alphabet)}
    if swapped:
        vocab["A"], vocab["B"] = vocab["B"], vocab["A"]
    vocab["<|endoftext|>"] = 256
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 256,
}


def write(folder: Path, kind=LlamaForCausalLM, config=LlamaConfig, seed=0, swapped=False, half=False, **sizes):
    """A random checkpoint and its tokenizer in `folder`; returns the float32 model whose weights were saved."""
    torch.manual_seed(seed)
    model = kind(config(**{**SIZES, **sizes})).eval()
    for name, parameter in model.named_parameters():
        if "norm" not in name:  # as far from 0 as trained weights, so that a wrong one shows
            torch.nn.init.normal_(parameter, std=0.1)
        if half:
            parameter.data = parameter.data.half().float()
    stored = {name: weight.half() if half else weight for name, weight in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=stored)
    byte_tokenizer(swapped).save_pretrained(folder)
    return model


def pair_of(target: Path, draft: Path | None = None, **rest) -> pairs.Pair:
    return pairs.Pair("test", "test pair", str(target), None if draft is None else str(draft), **rest)


def logits_of(runner) -> torch.Tensor:
    return runner.open(len(IDS)).forward(IDS, list(range(len(IDS))))[0]


@torch.no_grad()
def reference(model) -> torch.Tensor:
    return model(torch.tensor([IDS])).logits[0]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A target in float16 as the embedded one ships, with a tied head and two stop tokens; and the saved model."""
    folder = tmp_path_factory.mktemp("models") / "target"
    model = write(folder, half=True, tie_word_embeddings=True)
    model.generation_config.eos_token_id = [256, 10]
    model.generation_config.save_pretrained(folder)
    return folder, model


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    """A draft of another family with padded logits and a smaller context window."""
    folder = tmp_path_factory.mktemp("models") / "draft"
    sizes = {"num_hidden_layers": 1, "vocab_size": 320, "max_position_embeddings": 96}
    return folder, write(folder, Qwen2ForCausalLM, Qwen2Config, seed=1, **sizes)


@pytest.fixture
def no_network(monkeypatch):
    """Every attempt to connect is an error, recorded so that swallowing it does not help."""
    attempts = []

    def refuse(self, address, *rest):
        attempts.append(address)
        raise OSError(f"A test tried to reach {address}.")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # nothing but the loader itself may prevent it
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: refuse(None, host))
    return attempts


# loading


def test_a_pair_loads_with_the_logits_that_were_saved(llama, qwen, no_network):
    """Both families; float16 weights compute in float32; no connection is even tried."""
    (target, target_model), (draft, draft_model) = llama, qwen
    assert {weight.dtype for weight in load_file(target / "model.safetensors").values()} == {torch.float16}
    loaded = loading.load_pair(pair_of(target, draft), device="cpu")
    torch.testing.assert_close(logits_of(loaded.target), reference(target_model), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits_of(loaded.draft), reference(draft_model), atol=1e-4, rtol=1e-4)
    assert loaded.tokenizer.encode("Hi") == byte_tokenizer().encode("Hi")
    assert (loaded.dtype, loaded.title, loaded.bigram) == ("fp32", "test pair", None)
    assert loaded.hardware.endswith(("CPU core", "CPU cores"))
    assert {parameter.dtype for parameter in loaded.target.model.parameters()} == {torch.float32}
    assert no_network == []


def test_padded_logits_are_welcome_and_the_smaller_window_counts(llama, qwen):
    loaded = loading.load_pair(pair_of(llama[0], qwen[0]), device="cpu")
    assert (loaded.target.vocab, loaded.draft.vocab) == (VOCAB, 320)
    assert (loaded.target.context, loaded.draft.context, loaded.context) == (128, 96, 96)


def test_a_target_alone_loads(llama):
    loaded = loading.load_pair(pair_of(llama[0]), device="cpu", dtype="bf16")
    assert (loaded.draft, loaded.context, loaded.dtype) == (None, 128, "bf16")
    assert loaded.target.model.dtype == torch.bfloat16


def test_stop_ids_join_lists_and_numbers_of_every_source(llama, qwen):
    assert loading.load_pair(pair_of(llama[0]), device="cpu").stop_ids == {256, 10}
    assert loading.load_pair(pair_of(qwen[0]), device="cpu").stop_ids == {256}


def test_the_default_dtype_follows_the_device():
    assert loading.checked_dtype(None, torch.device("cpu")) == "fp32"
    assert loading.checked_dtype(None, torch.device("cuda", 0)) == "bf16"


def test_load_keeps_one_object_for_the_same_arguments(llama, qwen, monkeypatch):
    monkeypatch.setattr(loading, "PAIRS", {"embedded": pair_of(llama[0], qwen[0])})
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
    monkeypatch.setattr(loading, "load_pair", slow)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: loading.load("embedded", "cpu"), range(8)))) == 1
    assert len(loads) == 1


def test_the_bigram_table_comes_along_and_must_fit(llama, tmp_path):
    BigramTable.count(np.arange(VOCAB), VOCAB, k=2).save(tmp_path / "fits")
    BigramTable.count(np.arange(9), 9, k=2).save(tmp_path / "small")
    assert loading.load_pair(pair_of(llama[0], bigram=str(tmp_path / "fits")), device="cpu").bigram.vocab == VOCAB
    with pytest.raises(ValueError, match=r"covers 9 tokens.*has 257"):
        loading.load_pair(pair_of(llama[0], bigram=str(tmp_path / "small")), device="cpu")
    with pytest.raises(ValueError, match=r"No bigram table at .*engine\.train pair"):
        loading.load_pair(pair_of(llama[0], bigram=str(tmp_path / "none")), device="cpu")


def test_four_bit_weights_forward_near_the_plain_ones(llama):
    """NF4 through bitsandbytes for real: near the plain logits, not equal to them, and really packed in bytes."""
    loaded = loading.load_pair(pair_of(llama[0]), device="cpu", four_bit=True)
    weight = loaded.target.model.model.layers[0].mlp.down_proj.weight
    assert (loaded.dtype, weight.dtype, weight.numel()) == ("nf4", torch.uint8, 64 * 128 // 2)
    wanted = reference(llama[1])
    error = (logits_of(loaded.target) - wanted).std() / wanted.std()
    assert 0.005 < error < 0.3


# the Hub


def test_every_listed_hub_repository_is_pinned_and_the_embedded_pair_is_local():
    for pair in pairs.PAIRS.values():
        pins = (pair.target_revision, pair.draft_revision)
        assert pins == (None, None) if pair.name == "embedded" else all(len(pin) == 40 for pin in pins), pair.name
    assert pairs.PAIRS["embedded"].target_checkpoint.source["local_files_only"] is True
    assert Path(pairs.PAIRS["embedded"].target).is_absolute()
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
    loaded = loading.load_pair(pairs.Pair("test", "test", "org/name", target_revision=pinned), device="cpu")
    torch.testing.assert_close(logits_of(loaded.target), reference(model), atol=1e-4, rtol=1e-4)
    (repository / "snapshots" / pinned / "model.safetensors").unlink()
    torch.save(model.state_dict(), repository / "snapshots" / pinned / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"safetensors weights\) could not be fetched"):
        loading.load_pair(pairs.Pair("test", "test", "org/name", target_revision=pinned), device="cpu")


def test_no_network_is_a_sentence(tmp_path, monkeypatch, no_network):
    """The attempts that are recorded here also prove that their absence above means something."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(time, "sleep", lambda _: None)  # the Hub's client waits between its attempts
    with pytest.raises(ValueError, match=r"Qwen/Qwen2.5-7B-Instruct .*Check the network, or use the embedded pair"):
        loading.load_pair(pairs.PAIRS["qwen2.5-7b"], device="cpu")
    assert no_network


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (hub.GatedRepoError, r"org/name is gated: accept its licence at https://huggingface.co/org/name .*HF_TOKEN"),
        (hub.RevisionNotFoundError, r"shows no org/name at revision a{40}"),
        (hub.RepositoryNotFoundError, r"shows no org/name at revision a{40}"),
        (torch.OutOfMemoryError, r"Out of memory while loading org/name.*four_bit"),
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
        loading.load_pair(pairs.Pair("test", "test", "org/name", target_revision="a" * 40), device="cpu")


# refusals


def test_an_unknown_pair_names_the_known_ones():
    with pytest.raises(ValueError, match=r"Unknown pair 'gpt-9'\. Available: embedded, qwen2\.5-7b"):
        loading.load("gpt-9")


def test_missing_embedded_weights_say_how_to_make_them(tmp_path, monkeypatch):
    monkeypatch.setattr(refusals, "EMBEDDED", tmp_path)
    with pytest.raises(ValueError, match=r"No model weights at .*target.*python -m engine train pair"):
        loading.load_pair(pair_of(tmp_path / "target"), device="cpu")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"No model weights at .*nowhere.*config\.json"):
        loading.load_pair(pair_of(tmp_path / "nowhere"), device="cpu")


def test_pickled_weights_are_refused_unread(llama, tmp_path):
    write(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"whatever this is, it is not read")
    with pytest.raises(ValueError, match=r"pickled weights \(\.bin\)"):
        loading.load_pair(pair_of(tmp_path), device="cpu")
    with pytest.raises(ValueError, match=r"pickled weights \(\.bin\)"):
        loading.load_pair(pair_of(llama[0], tmp_path), device="cpu")


def test_a_checkpoint_that_lacks_a_weight_is_refused(tmp_path):
    """transformers would only warn and race a random matrix."""
    write(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks 1 of .*model\.layers\.1\.mlp\.up_proj\.weight"):
        loading.load_pair(pair_of(tmp_path), device="cpu")


def test_truncated_weights_are_a_sentence(tmp_path):
    write(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"does not load: "):
        loading.load_pair(pair_of(tmp_path), device="cpu")


def test_a_draft_with_permuted_ids_is_refused(llama, tmp_path):
    """Same size, same tokens: only the map tells."""
    write(tmp_path, swapped=True)
    with pytest.raises(ValueError, match=r"2 tokens have other ids.*'A' is 32 in the target, 33 in the draft"):
        loading.load_pair(pair_of(llama[0], tmp_path), device="cpu")


def test_a_tokenizer_beyond_the_logits_is_refused(tmp_path):
    write(tmp_path, vocab_size=256, eos_token_id=0)
    with pytest.raises(ValueError, match=r"ids up to 256, its model only 256 logits"):
        loading.load_pair(pair_of(tmp_path), device="cpu")


def test_a_sliding_window_is_refused_from_disk(llama, tmp_path):
    window = {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1}
    write(tmp_path, Qwen2ForCausalLM, Qwen2Config, **window)
    with pytest.raises(ValueError, match=r"\(qwen2\) cannot be raced: it has layers of type sliding_attention"):
        loading.load_pair(pair_of(tmp_path), device="cpu")
    with pytest.raises(ValueError, match=r"cannot be raced"):
        loading.load_pair(pair_of(llama[0], tmp_path), device="cpu")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (MistralConfig(**{**SIZES, "sliding_window": 32}), "sliding window of 32 tokens"),
        (MambaConfig(), "recurrent state"),
        (T5Config(), "no causal language model"),
        (AutoConfig.for_model("gpt2"), "plain keys and values"),
        (AutoConfig.for_model("gemma2"), "layers of type sliding_attention"),
        (LlamaConfig(**SIZES, quantization_config={"quant_method": "awq"}), "already quantised"),
        (
            LlamaConfig(**SIZES, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
            "dynamic rotary embedding",
        ),
    ],
)
def test_what_cannot_verify_a_tree_is_refused(config, reason):
    assert reason in refusals.obstacle(config)


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SIZES),
        Qwen2Config(**SIZES, sliding_window=32),  # the window is there but not in use
        MistralConfig(**SIZES, sliding_window=None),
        MistralConfig(**SIZES, sliding_window=128),  # as wide as the context
        AutoConfig.for_model("qwen3"),
    ],
)
def test_what_can_verify_a_tree_is_not_refused(config):
    assert refusals.obstacle(config) is None


def test_a_model_without_sdpa_is_refused(monkeypatch):
    monkeypatch.setattr(LlamaForCausalLM, "_supports_sdpa", False)
    assert "sdpa" in refusals.obstacle(LlamaConfig(**SIZES))


def test_code_of_a_repository_is_never_run(tmp_path):
    write(tmp_path)
    config = '{"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}'
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "own.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ValueError, match=r"that is never run here"):
        loading.load_pair(pair_of(tmp_path), device="cpu")


def test_four_bit_refuses_sizes_that_crash_it(tmp_path):
    write(tmp_path, intermediate_size=96)
    with pytest.raises(ValueError, match=r"multiples of 64.*MLP size of 96"):
        loading.load_pair(pair_of(tmp_path), device="cpu", four_bit=True)


def test_four_bit_without_its_packages_says_what_to_install(llama, monkeypatch):
    monkeypatch.setattr("transformers.quantizers.quantizer_bnb_4bit.is_accelerate_available", lambda: False)
    with pytest.raises(ValueError, match=r"packages that are not installed.*accelerate.*requirements\.txt"):
        loading.load_pair(pair_of(llama[0]), device="cpu", four_bit=True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"device": "cuda"}, r"no CUDA GPU here, got device='cuda'"),
        ({"device": "tpu"}, r"cpu, cuda or cuda:N, got 'tpu'"),
        ({"device": "cpu", "dtype": "int3"}, r"Unknown dtype 'int3'\. Available: fp32"),
    ],
)
def test_impossible_places_and_dtypes_are_sentences(arguments, sentence, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=sentence):
        loading.load(**arguments)
