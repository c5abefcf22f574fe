"""GGUF: a file that is read by another reader, from the format's description, holds the model's weights and its tokenizer's words."""

import struct
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from engine.__main__ import main
from engine.models import export, gguf
from engine.models.pairs import PAIRS, named
from helpers.checkpoints import IDS, byte_tokenizer, write

SIMPLE = {4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q"}


class Reader:
    """A GGUF file: `values` by key, and `tensors` by name, as float32 arrays."""

    def __init__(self, path: Path):
        self.raw, self.at = path.read_bytes(), 0
        assert self.raw[:4] == b"GGUF"
        self.at = 4
        version, tensors, values = (self.take(form) for form in ("<I", "<Q", "<Q"))
        assert version == 3
        self.values = {self.text(): self.value(self.take("<I")) for _ in range(values)}
        listed = []
        for _ in range(tensors):
            name = self.text()
            sizes = [self.take("<Q") for _ in range(self.take("<I"))]
            listed.append((name, sizes[::-1], self.take("<I"), self.take("<Q")))
        start = -(-self.at // 32) * 32
        assert all(offset % 32 == 0 for *_, offset in listed)
        self.types = {name: kind for name, _, kind, _ in listed}
        self.tensors = {name: self.numbers(sizes, kind, start + offset) for name, sizes, kind, offset in listed}

    def take(self, form: str) -> Any:
        [found] = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return found

    def text(self) -> str:
        count = self.take("<Q")
        self.at += count
        return self.raw[self.at - count : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == 8:
            return self.text()
        if kind == 9:
            each, count = self.take("<I"), self.take("<Q")
            return [self.value(each) for _ in range(count)]
        return self.take(SIMPLE[kind])

    def numbers(self, sizes: list[int], kind: int, at: int) -> np.ndarray:
        count = int(np.prod(sizes))
        if kind < 2:
            return np.frombuffer(self.raw, ("<f4", "<f2")[kind], count, at).astype(np.float32).reshape(sizes)
        assert kind == 8
        blocks = np.frombuffer(self.raw, np.dtype([("scale", "<f2"), ("whole", "i1", 32)]), count // 32, at)
        return (blocks["scale"].astype(np.float32)[:, None] * blocks["whole"]).reshape(sizes)


def unpaired(rows: np.ndarray, heads: int) -> torch.Tensor:
    """Rows of queries or keys in transformers' order, where llama.cpp turns neighbours."""
    each = rows.reshape(heads, -1, rows.shape[1])
    return torch.from_numpy(np.concatenate([each[:, 0::2], each[:, 1::2]], 1).reshape(rows.shape))


def read_back(file: Reader, config: LlamaConfig) -> LlamaForCausalLM:
    model, words = LlamaForCausalLM(config), {theirs: ours for ours, theirs in gguf.LAYER.items()}
    weights = {
        "model.embed_tokens.weight": file.tensors["token_embd.weight"],
        "model.norm.weight": file.tensors["output_norm.weight"],
    }
    weights["lm_head.weight"] = file.tensors.get("output.weight", file.tensors["token_embd.weight"])
    for name, numbers in file.tensors.items():
        if name.startswith("blk."):
            _, layer, kind, _ = name.split(".")
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(kind)
            weights[f"model.layers.{layer}.{words[kind]}.weight"] = (
                numbers if heads is None else unpaired(numbers, heads)
            )
    model.load_state_dict(
        {name: torch.as_tensor(each.copy() if isinstance(each, np.ndarray) else each) for name, each in weights.items()}
    )
    return model.eval()


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(torch.tensor([IDS])).logits[0]


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_is_read_back_with_its_logits(tied, tmp_path):
    """In 16 bits it is the same model, because its weights are stored so. In 8 bits every number is off by half a step at most."""
    model = write(tmp_path / "model", half=True, num_key_value_heads=1, tie_word_embeddings=tied)
    for kind, most in (("F16", 1e-5), ("Q8_0", 0.3)):
        count = gguf.write(tmp_path / kind, model, byte_tokenizer(), kind)
        file = Reader(tmp_path / kind)
        assert count == len(file.tensors) == 2 + 9 * 2 + (not tied) and ("output.weight" in file.tensors) != tied
        assert {file.types[name] for name in file.types if "norm" in name} == {0}
        assert {file.types[name] for name in file.types if "norm" not in name} == {1 if kind == "F16" else 8}
        difference = (logits(read_back(file, model.config)) - logits(model)).abs().max()
        assert difference < most and (kind == "F16" or difference > 0)
        assert file.values["general.file_type"] == gguf.KINDS[kind]


def test_a_block_is_rounded_to_half_a_step_and_an_empty_one_stays_empty():
    numbers = np.concatenate([np.linspace(-1, 1, 32), np.zeros(32), [3.0], np.zeros(31)]).astype(np.float32)
    raw = gguf.stored(numbers, gguf.Q8_0)
    assert len(raw) == 3 * 34 == gguf.bytes_of(torch.from_numpy(numbers), gguf.Q8_0)
    blocks = np.frombuffer(raw, np.dtype([("scale", "<f2"), ("whole", "i1", 32)]))
    found = (blocks["scale"].astype(np.float32)[:, None] * blocks["whole"]).ravel()
    assert (
        np.abs(found - numbers).max() < 0.5 / 127 + 2e-3 and not found[32:64].any() and blocks["whole"][0].min() == -127
    )


def test_rows_that_blocks_do_not_fill_are_written_in_sixteen_bits(tmp_path):
    model = write(tmp_path / "model", intermediate_size=72)
    gguf.write(tmp_path / "file", model, byte_tokenizer(), "Q8_0")
    types = Reader(tmp_path / "file").types
    assert (types["blk.0.ffn_down.weight"], types["blk.0.ffn_up.weight"]) == (1, 8)


def test_the_tokenizer_is_whole(embedded, tmp_path):
    main(["export", "gguf", str(tmp_path / "files"), "--pair", "small"])
    assert sorted(each.name for each in (tmp_path / "files").iterdir()) == [
        "draft.F16.gguf", "draft.Q8_0.gguf", "target.F16.gguf", "target.Q8_0.gguf"
    ]  # fmt: skip
    values, tokenizer = Reader(tmp_path / "files" / "target.F16.gguf").values, embedded.tokenizer
    tokens = values["tokenizer.ggml.tokens"]
    assert [tokenizer.convert_tokens_to_ids(token) for token in tokens] == list(range(embedded.target.vocab))
    assert values["tokenizer.ggml.merges"][:2] == ["Ġ t", "h e"] and values["tokenizer.ggml.pre"] == "smollm"
    assert values["tokenizer.ggml.token_type"][:3] == [3, 1, 1] and values["tokenizer.ggml.add_bos_token"] is True
    assert (values["tokenizer.ggml.bos_token_id"], values["llama.rope.freq_base"]) == (0, 10000.0)
    with pytest.raises(ValueError, match=r"holds files already\. Choose another folder"):
        export.export_gguf(PAIRS["small"], tmp_path / "files")


def test_what_the_layout_does_not_hold_is_refused(tmp_path):
    tokenizer, model = byte_tokenizer(), write(tmp_path / "a")
    assert gguf.obstacle(model, tokenizer) == ""
    other = write(tmp_path / "b", Qwen2ForCausalLM, Qwen2Config)
    assert gguf.obstacle(other, tokenizer) == "a qwen2 model is not laid out as GGUF calls llama"
    assert gguf.obstacle(write(tmp_path / "c", attention_bias=True), tokenizer) == "it has biases"
    stretched = write(tmp_path / "d", rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4})
    assert gguf.obstacle(stretched, tokenizer).startswith("its rotary embedding is linear")
    strange = deepcopy(tokenizer)
    strange.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(ValueError, match="cannot be written as GGUF: its tokenizer does not cut texts as"):
        gguf.write(tmp_path / "file", model, strange, "F16")


def test_other_engines_files_need_their_package_and_a_draft_needs_a_target(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="written by the package openvino-genai: `pip install openvino-genai`"):
        export.export_openvino(named("small"), tmp_path)
    with pytest.raises(SystemExit):
        main(["export", "gguf", str(tmp_path), "--draft", "A"])
    assert "--draft 'A' belongs to --target" in capsys.readouterr().err
