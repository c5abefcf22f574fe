"""GGUF files that are written here: the package gguf and this engine read back the model's weights and its tokenizer's words."""

from copy import deepcopy

import gguf
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from engine.__main__ import main
from engine.models import export
from engine.models.gguf import reading as gguf_reading
from engine.models.gguf import writing as gguf_writing
from engine.models.loading import load_pair_anew
from engine.models.pairs import PAIRS, build_pair, find_listed_pair
from helpers.checkpoints import IDS, write
from helpers.published.gguf_models import TEMPLATE, TOKENS, merging_tokenizer

Kind = gguf.GGMLQuantizationType


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A user's cache of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for each in (gguf_reading.private_cache_folder, gguf_reading.convert_config_and_tokenizer_once_per_file_state):
        each.cache_clear()


def tokenizer(rule: str = "gpt-2") -> PreTrainedTokenizerFast:
    found = PreTrainedTokenizerFast(tokenizer_object=merging_tokenizer(rule), eos_token="<|endoftext|>")
    found.chat_template = TEMPLATE
    return found


def random_llama(folder, **sizes):
    return write(folder, vocab_size=TOKENS, half=True, **{"num_key_value_heads": 1} | sizes)


def values_of(file) -> dict:
    return {name: field.contents() for name, field in gguf.GGUFReader(file).fields.items()}


def types_of(file) -> dict:
    return {each.name: each.tensor_type for each in gguf.GGUFReader(file).tensors}


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(torch.tensor([IDS])).logits[0]


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_is_read_back_with_its_logits(tied, tmp_path):
    """In 16 bits it is the same model, because its weights are stored so. In 8 bits every number is off by half a step at most."""
    model = random_llama(tmp_path / "model", tie_word_embeddings=tied)
    for kind, most in (("F16", 1e-5), ("Q8_0", 0.3)):
        file = tmp_path / f"{kind}.gguf"
        count = gguf_writing.write_gguf(file, model, tokenizer("smollm"), kind)
        types = types_of(file)
        assert count == len(types) == 2 + 9 * 2 + (not tied) and ("output.weight" in types) != tied
        assert {types[name] for name in types if "norm" in name} == {Kind.F32}
        assert {types[name] for name in types if "norm" not in name} == {gguf_writing.KINDS[kind][0]}
        pair = load_pair_anew(build_pair(str(file)), "cpu")
        difference = (logits(pair.target.model) - logits(model)).abs().max()
        assert difference < most and (kind == "F16" or difference > 0)
        assert pair.tokenizer("the 12 <|end|>")["input_ids"] == tokenizer("smollm")("the 12 <|end|>")["input_ids"]
        assert pair.tokenizer.chat_template == TEMPLATE
        assert values_of(file)["general.file_type"] == int(gguf_writing.KINDS[kind][1])


def test_rows_that_blocks_do_not_fill_are_written_in_sixteen_bits(tmp_path):
    model = random_llama(tmp_path / "model", intermediate_size=72)
    gguf_writing.write_gguf(tmp_path / "file", model, tokenizer(), "Q8_0")
    types = types_of(tmp_path / "file")
    assert (types["blk.0.ffn_down.weight"], types["blk.0.ffn_up.weight"]) == (Kind.F16, Kind.Q8_0)


def test_the_tokenizer_is_whole(embedded, tmp_path):
    main(["export", "gguf", str(tmp_path / "files"), "--pair", "small"])
    assert sorted(each.name for each in (tmp_path / "files").iterdir()) == [
        "draft.F16.gguf", "draft.Q8_0.gguf", "target.F16.gguf", "target.Q8_0.gguf"
    ]  # fmt: skip
    values = values_of(tmp_path / "files" / "target.F16.gguf")
    tokens = values["tokenizer.ggml.tokens"]
    assert [embedded.tokenizer.convert_tokens_to_ids(token) for token in tokens] == list(range(embedded.target.vocab))
    assert values["tokenizer.ggml.merges"][:2] == ["Ġ t", "h e"] and values["tokenizer.ggml.pre"] == "smollm"
    assert values["tokenizer.ggml.token_type"][:3] == [3, 1, 1] and values["tokenizer.ggml.add_bos_token"] is True
    assert (values["tokenizer.ggml.bos_token_id"], values["llama.rope.freq_base"]) == (0, 10000.0)
    with pytest.raises(ValueError, match=r"holds files already\. Choose another folder"):
        export.export_gguf(PAIRS["small"], tmp_path / "files")


def test_what_the_layout_does_not_hold_is_refused(tmp_path):
    words, model = tokenizer(), random_llama(tmp_path / "a")
    assert gguf_writing.explain_unwritable(model, words) == ""
    other = write(tmp_path / "b", Qwen2ForCausalLM, Qwen2Config)
    assert gguf_writing.explain_unwritable(other, words) == "a qwen2 model is not laid out as GGUF calls llama"
    assert gguf_writing.explain_unwritable(random_llama(tmp_path / "c", attention_bias=True), words) == "it has biases"
    stretched = random_llama(tmp_path / "d", rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4})
    assert gguf_writing.explain_unwritable(stretched, words).startswith("its rotary embedding is linear")
    strange = deepcopy(words)
    strange.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(ValueError, match="cannot be written as GGUF: its tokenizer does not cut texts as"):
        gguf_writing.write_gguf(tmp_path / "file", model, strange, "F16")


def test_other_engines_files_need_their_package_and_a_draft_needs_a_target(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="written by the package openvino-genai: `pip install openvino-genai`"):
        export.export_openvino(find_listed_pair("small"), tmp_path)
    with pytest.raises(SystemExit):
        main(["export", "gguf", str(tmp_path), "--draft", "A"])
    assert "--draft 'A' belongs to --target" in capsys.readouterr().err
