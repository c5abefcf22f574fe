"""Memory: what is computed from a configuration is what loading takes, and what does not fit is refused before a weight is read."""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
import torch
import transformers as tr
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from engine.forward.llama import JoinedLinear
from engine.forward.runner import Runner
from engine.models import loading, memory
from engine.models.memory import GIB, build_meta_device_model, count_needed_bytes_by_use
from engine.models.pairs import Pair
from helpers.checkpoints import SIZES, byte_tokenizer, pair_of, write

CPU = torch.device("cpu")
PAIR = Pair("test", "Qwen3 0.6B → 8B", "large", "small")
WIDE = SIZES | {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
KINDS = {
    "llama": (tr.LlamaForCausalLM, tr.LlamaConfig(**WIDE)),
    "llama, tied": (tr.LlamaForCausalLM, tr.LlamaConfig(**WIDE, tie_word_embeddings=True)),
    "qwen2": (tr.Qwen2ForCausalLM, tr.Qwen2Config(**WIDE)),
    "qwen3": (tr.Qwen3ForCausalLM, tr.Qwen3Config(**WIDE)),
    "gemma": (tr.GemmaForCausalLM, tr.GemmaConfig(**WIDE, head_dim=64)),
    "phi-3": (tr.Phi3ForCausalLM, tr.Phi3Config(**WIDE, pad_token_id=0)),
    "mixtral": (tr.MixtralForCausalLM, tr.MixtralConfig(**WIDE, num_local_experts=4)),
    "gpt-2": (tr.GPT2LMHeadModel, tr.GPT2Config(vocab_size=257, n_embd=256, n_layer=2, n_head=4, n_positions=128)),
}
QWEN3_8B = tr.Qwen3Config(
    vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
    num_key_value_heads=8, head_dim=128, tie_word_embeddings=False, max_position_embeddings=40960, dtype="bfloat16",
)  # fmt: skip
QWEN3_06B = tr.Qwen3Config(
    vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
    num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, max_position_embeddings=40960, dtype="bfloat16",
)  # fmt: skip


def held(model) -> int:
    """Bytes of a model's tensors as they lie in memory, with what bitsandbytes keeps beside them."""
    tensors = {id(each): each for each in (*model.parameters(), *model.buffers())}
    for module in model.modules():
        weight = getattr(module, "weight", None)
        for beside in (getattr(weight, "SCB", None), getattr(getattr(weight, "quant_state", None), "absmax", None)):
            if beside is not None:
                tensors[id(beside)] = beside
    return sum(each.numel() * each.element_size() for each in tensors.values())


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("quantisation", "dtype"),
    [("none", torch.float32), ("none", torch.bfloat16), ("8-bit", torch.bfloat16), ("nf4", torch.float32)],
)
def test_the_computed_bytes_are_the_loaded_ones(name, quantisation, dtype, tmp_path):
    kind, config = KINDS[name]
    kind(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    loaded = loading.load_model(pair_of(tmp_path).target_checkpoint, CPU, dtype, quantisation)
    computed = count_needed_bytes_by_use(config, CPU, dtype, quantisation)["weights"]
    assert computed == pytest.approx(held(loaded), rel=0.01)


@pytest.mark.parametrize(
    ("half", "dtype", "quantisation"),
    [(True, "fp32", "none"), (False, "fp32", "none"), (True, "bf16", "none"), (True, "fp32", "8-bit")],
)
def test_copies_are_those_that_the_forward_makes(half, dtype, quantisation, tmp_path):
    """The compiled forward keeps a matrix in the checkpoint's type. Norms and tables beside the matrices are small."""
    write(tmp_path, half=half, **WIDE)
    model = loading.load_model(pair_of(tmp_path).target_checkpoint, CPU, loading.DTYPES[dtype], quantisation)
    runner = Runner(model, thread_count=1)
    if runner.forward_kind == "compiled":
        made = runner.own.stored_bytes
    else:
        parts = [each for layer in runner.own.layers for each in layer] + [runner.own.head]
        weights = [each for each in parts if isinstance(each, JoinedLinear)]
        made = sum(each.packed.numel() * 2 for each in weights)
    config = loading.load_text_config_of_checkpoint(pair_of(tmp_path).target_checkpoint)
    config.dtype = torch.float16 if half else torch.float32
    copies = count_needed_bytes_by_use(config, CPU, loading.DTYPES[dtype], quantisation)["copies"]
    assert copies == pytest.approx(made, rel=0.06)  # 257 logits lie in 320


def test_a_real_size_is_counted_without_its_memory():
    """8.19 billion weights; two lanes of 1,024 rows, to which a GPU rounds up, and their graphs' logits. Nothing is allocated."""
    found = count_needed_bytes_by_use(QWEN3_8B, torch.device("cuda", 0), torch.bfloat16)
    assert found["weights"] / 2 == pytest.approx(8.19e9, rel=0.01) and found["copies"] == 0
    assert found["rows"] == 2 * 1024 * 2 * 36 * 8 * 128 * 2
    assert (
        found["graphs"] == 2 * 129 * 151936 * 2 and found.total() == found["weights"] + found["rows"] + found["graphs"]
    )
    assert count_needed_bytes_by_use(QWEN3_8B, CPU, torch.float32)["rows"] == 2 * 512 * 2 * 36 * 8 * 128 * 4
    assert count_needed_bytes_by_use(QWEN3_8B, CPU, torch.float32)["graphs"] == 0
    eight = count_needed_bytes_by_use(QWEN3_8B, torch.device("cuda", 0), torch.bfloat16, "8-bit")
    assert eight["weights"] == pytest.approx(
        6.95e9 + 2 * 2 * 151936 * 4096, rel=0.01
    )  # embedding and head stay in bf16
    assert count_needed_bytes_by_use(QWEN3_8B, CPU, torch.float32)["copies"] == pytest.approx(2 * 7.57e9, rel=0.01)


def test_what_lies_there_before_layers_are_rounded_counts_where_it_is_more():
    """A checkpoint in float32 is twice what its rounded layers and their copies take; one in bfloat16 is less than they are."""
    wide, half = deepcopy(QWEN3_8B), count_needed_bytes_by_use(QWEN3_8B, CPU, torch.float32, "8-bit")
    wide.dtype = torch.float32
    found = count_needed_bytes_by_use(wide, CPU, torch.float32, "8-bit")
    assert half["loading"] == 0 and found["loading"] > 0
    assert found.total() == pytest.approx(4 * 8.19e9, rel=0.01)
    assert half["weights"] == pytest.approx(6.95e9 * (1 + 4 / 64) + 2 * 4 * 151936 * 4096, rel=0.01)


def test_draft_and_rows_count_too(llama, qwen):
    target, draft = (
        loading.load_text_config_of_checkpoint(pair_of(each[0]).target_checkpoint) for each in (llama, qwen)
    )
    both = count_needed_bytes_by_use(target, CPU, torch.float32) + count_needed_bytes_by_use(draft, CPU, torch.float32)
    assert both.total() == sum(count_needed_bytes_by_use(each, CPU, torch.float32).total() for each in (target, draft))
    assert both["rows"] == 2 * 4 * (128 * 2 * 2 * 2 * 32 + 96 * 2 * 1 * 2 * 32)


def test_learned_drafters_count_as_they_lie_in_memory(tmp_path, free):
    """A file that is not safetensors counts nothing: loading refuses it."""
    for name, numbers in (("eagle", 5_000_000), ("medusa", 1_000_000)):
        (tmp_path / name).mkdir()
        save_file({"a": torch.zeros(numbers, dtype=torch.half)}, tmp_path / name / "model.safetensors")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"no")
    assert (
        memory.count_learned_drafter_bytes(str(tmp_path)) == 4 * 6_000_000
        and memory.count_learned_drafter_bytes(None) == 0
    )
    free(1)
    with_nets = replace(PAIR, drafters_folder=str(tmp_path))
    config = KINDS["llama"][1]
    alone = count_needed_bytes_by_use(config, CPU, torch.float32).total()
    free((alone + 12_000_000) / GIB)
    assert memory.count_needed_bytes_or_refuse(PAIR, config, None, CPU, torch.float32, "none") > 0
    with pytest.raises(ValueError, match=r"needs 0\.0 GiB of memory"):
        memory.count_needed_bytes_or_refuse(with_nets, config, None, CPU, torch.float32, "none")


@pytest.fixture
def free(monkeypatch):
    """Says how many GiB are free, on whatever device."""

    def free(gib: float) -> None:
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=int(gib * GIB)))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(gib * GIB), 80 * GIB))

    return free


def refused(gib: float, free, device=CPU, dtype=torch.float32, quantisation="none", draft=QWEN3_06B) -> str:
    free(gib)
    with pytest.raises(ValueError) as refusal:
        memory.count_needed_bytes_or_refuse(PAIR, QWEN3_8B, draft, device, dtype, quantisation)
    return str(refusal.value)


def test_what_would_fit_is_named(free):
    gpu = torch.device("cuda", 0)
    said = refused(16, free, gpu, torch.bfloat16)
    assert said.startswith("Qwen3 0.6B → 8B needs 17.0 GiB of memory, and 16.0 GiB are free here. ")
    assert said.endswith("--quantisation 8-bit would need 10.5 GiB and --quantisation nf4 would need 7.7 GiB.")
    assert refused(9, free, gpu, torch.bfloat16).endswith("free here. --quantisation nf4 would need 7.7 GiB.")
    assert refused(9, free, gpu, torch.bfloat16, "8-bit").startswith(
        "Qwen3 0.6B → 8B needs 10.5 GiB of memory as 8-bit"
    )
    assert refused(6.4, free, gpu, torch.bfloat16, "nf4").endswith("without a draft model would need 6.3 GiB.")
    assert refused(1, free, gpu, torch.bfloat16).endswith(
        "Nothing of it fits: choose a smaller pair or a larger device."
    )
    free(17.5)
    assert memory.count_needed_bytes_or_refuse(PAIR, QWEN3_8B, QWEN3_06B, gpu, torch.bfloat16, "none") > 16 * 2**30


def test_a_pair_is_refused_before_a_weight_is_read(llama, qwen, free, monkeypatch):
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda **_: pytest.fail("read weights"))
    free(0.0001)
    for call in (loading.load_pair_anew, loading.check_files_memory_and_choose_quantisation):
        with pytest.raises(ValueError, match=r"test pair needs 0\.0 GiB of memory, and 0\.0 GiB are free here"):
            call(pair_of(llama[0], qwen[0]), device="cpu")


def test_counting_changes_no_configuration():
    config = KINDS["llama"][1]
    before = config.to_dict()
    model = build_meta_device_model(config, torch.bfloat16, "nf4")
    assert {each.device.type for each in model.parameters()} == {"meta"} and config.to_dict() == before
