"""GGUF as a checkpoint: small random models of each family, read back with the numbers, tokens and ends that the file holds."""

import json
import os

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from engine.models import loading
from engine.models.chat import render_chat, tokenise_chat
from engine.models.gguf import reading as gguf_reading
from engine.models.pairs import build_pair
from helpers.published.gguf_models import (
    END,
    FAMILIES,
    TURN_END,
    install,
    merging_tokenizer,
    named_places,
    random_model,
    write_gguf,
)

LONG = [int(each) for each in np.random.default_rng(0).integers(32, 250, 40)]
BLOCKS = [each for each in Kind if each.name not in ("F64", "I8", "I16", "I32", "I64")]
WRITTEN = (Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A user's cache of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for each in (gguf_reading.private_cache_folder, gguf_reading.convert_config_and_tokenizer_once_per_file_state):
        each.cache_clear()
    yield tmp_path / "cache"
    for each in (gguf_reading.private_cache_folder, gguf_reading.convert_config_and_tokenizer_once_per_file_state):
        each.cache_clear()


def logits(model, ids=LONG):
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0]


def loaded(path, **how):
    return loading.load_pair_anew(build_pair(str(path)), "cpu", **how)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_each_family_is_read_with_its_logits_and_writes_the_text_of_generate(family, tmp_path):
    file = tmp_path / "model.gguf"
    wanted = write_gguf(file, random_model(family), family, Kind.Q8_0)
    pair = loaded(file)
    assert pair.target.model.config.model_type == wanted.config.model_type
    assert (pair.context, pair.stop_ids, pair.dtype, pair.title) == (128, {END, TURN_END}, "fp32", "model")
    torch.testing.assert_close(logits(pair.target.model), logits(wanted), atol=1e-5, rtol=1e-5)
    found = pair.target.model.state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in wanted.state_dict().items())


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.name)
def test_each_kind_of_blocks_has_the_values_of_the_package(kind, tmp_path):
    file = tmp_path / "model.gguf"
    wanted = write_gguf(file, random_model("llama"), "llama", kind)
    model = loaded(file).target.model
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in wanted.state_dict().items())
    sixteen = {Kind.F16: torch.float16, Kind.BF16: torch.bfloat16}
    assert json.loads((gguf_reading.convert_config_and_tokenizer_into_cache(str(file)) / "config.json").read_text())[
        "dtype"
    ] == str(sixteen.get(kind, torch.float32)).removeprefix("torch.")


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
def test_blocks_of_any_kind_are_found_in_the_file_and_dequantised(kind, tmp_path):
    """Random blocks, because the package writes few of these kinds. What they hold is its own word."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(1).integers(0, 60, (3, 2 * size), np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "file.gguf", "llama")
    writer.add_tensor("before", np.ones(5, np.float32))
    writer.add_tensor("blocks", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    [_, stored] = gguf.GGUFReader(tmp_path / "file.gguf").tensors
    place = gguf_reading.TensorPlace(
        "blocks", "weight", 0, int(kind), (3, 2 * block), stored.data_offset, stored.n_bytes
    )
    try:
        wanted = gguf.dequantize(raw, kind)
    except NotImplementedError:
        with pytest.raises(ValueError, match=f"blocks is of the type {kind.name}, which the package gguf 0"):
            gguf_reading.refuse_unreadable_types([(0, stored)])
        return
    np.testing.assert_array_equal(gguf_reading.read_and_dequantise_tensor(place, tmp_path / "file.gguf"), wanted)
    gguf_reading.refuse_unreadable_types([(0, stored)])


def test_shards_are_one_model_and_a_missing_one_is_named(tmp_path):
    wanted = write_gguf(tmp_path / "large.gguf", random_model("qwen2"), "qwen2", Kind.Q4_0, shards=9)
    files = sorted(tmp_path.glob("*.gguf"))
    assert [each.name for each in files] == [f"large-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    for named in (files[1], tmp_path):
        pair = build_pair(str(named))
        assert (pair.target, pair.title) == (str(files[0]), "large")
    torch.testing.assert_close(logits(loaded(files[2]).target.model), logits(wanted), atol=1e-5, rtol=1e-5)
    files[1].unlink()
    with pytest.raises(ValueError, match=r"one of 3 shards, and large-00002-of-00003.gguf cannot be found") as refused:
        build_pair(str(files[0]))
    assert str(tmp_path) not in str(refused.value)


def test_a_folder_or_an_installed_package_with_one_file_names_it(tmp_path, monkeypatch):
    install(tmp_path / "site", "some-model", "model.gguf")
    file = tmp_path / "site" / "some_model" / "model.gguf"
    write_gguf(file, random_model("llama"), "llama")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert build_pair("some-model").target == str(file) == build_pair(str(file.parent)).target
    assert loaded("some-model").title == "model"
    write_gguf(file.with_name("other.gguf"), random_model("llama"), "llama")
    with pytest.raises(ValueError, match=r"some_model holds 2 GGUF models, model\.gguf, other\.gguf: name one"):
        build_pair(str(file.parent))
    with pytest.raises(ValueError, match=r"'none.gguf' is no file here\. Check the path of the GGUF file"):
        build_pair("none.gguf")
    with pytest.raises(ValueError, match="a GGUF file, an installed package that holds one, or a repository"):
        build_pair("no-such-package")


def test_the_tokenizer_its_template_and_its_rule_come_from_the_file(tmp_path):
    for rule in ("gpt-2", "smollm"):
        file = tmp_path / f"{rule}.gguf"
        write_gguf(file, random_model("llama"), "llama", rule=rule)
        pair, text = loaded(file), "in the 123 <|end|>"
        assert pair.tokenizer(text)["input_ids"] == merging_tokenizer(rule).encode(text).ids
        assert render_chat(pair.tokenizer, "Hi") == "<|start|>user\nHi<|end|>\n<|start|>assistant\n"
        written = tokenise_chat(pair.tokenizer, "a <|end|>")
        assert written.count(TURN_END) == 1 and pair.tokenizer.decode(written).count("<|end|>") == 2
        assert pair.chat
    write_gguf(tmp_path / "odd.gguf", random_model("llama"), "llama", rule="viking")
    with pytest.raises(ValueError, match=r"odd\.gguf does not load: its tokenizer splits texts by the rule 'viking'"):
        loaded(tmp_path / "odd.gguf")


@pytest.mark.parametrize(
    ("rope", "more"),
    [
        ({"rope_type": "linear", "factor": 4.0}, {"{arch}.rope.scaling.type": "linear", "{arch}.rope.scaling.factor": 4.0}),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
            {
                "{arch}.rope.scaling.type": "yarn",
                "{arch}.rope.scaling.factor": 4.0,
                "{arch}.rope.scaling.original_context_length": 32,
            },
        ),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, {"{arch}.rope.dimension_count": 16}),
    ],
)  # fmt: skip
def test_rope_settings_come_from_the_file(rope, more, tmp_path):
    family = "phi3" if "partial_rotary_factor" in rope else "qwen2"
    model = random_model(family, rope_parameters={"rope_theta": 500.0, **rope})
    wanted = write_gguf(tmp_path / "model.gguf", model, family, more=more)
    assert (
        logits(random_model(family, rope_parameters={"rope_theta": 500.0, "rope_type": "default"})) - logits(wanted)
    ).abs().max() > 1e-3
    torch.testing.assert_close(
        logits(loaded(tmp_path / "model.gguf").target.model), logits(wanted), atol=1e-5, rtol=1e-5
    )


def test_the_factors_of_llama_3_are_recognised_and_others_refused(tmp_path):
    rope = {"rope_theta": 5e5, "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope["original_max_position_embeddings"] = 8192
    model = random_model("llama", rope_parameters=rope)
    plain = 1 / 5e5 ** (np.arange(0, 32, 2) / 32)
    factors = (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    wanted = write_gguf(tmp_path / "model.gguf", model, "llama", tensors={"rope_freqs.weight": factors})
    model = loaded(tmp_path / "model.gguf").target.model
    assert {name: model.config.rope_parameters[name] for name in rope} == rope
    torch.testing.assert_close(logits(model), logits(wanted), atol=1e-5, rtol=1e-5)
    write_gguf(tmp_path / "odd.gguf", wanted, "llama", tensors={"rope_freqs.weight": factors[::-1].copy()})
    with pytest.raises(ValueError, match=r"rope_freqs\.weight holds other factors than those of Llama 3\.1"):
        loaded(tmp_path / "odd.gguf")


def test_what_is_missing_is_named_without_the_files_folder(tmp_path):
    (tmp_path / "empty.gguf").write_bytes(b"no")
    write_gguf(tmp_path / "long.gguf", random_model("qwen2"), "qwen2", more={"{arch}.rope.scaling.type": "longrope"})
    write_gguf(
        tmp_path / "more.gguf",
        random_model("llama"),
        "llama",
        tensors={"blk.0.attn_sinks.weight": np.ones(2, np.float32)},
    )
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "rwkv7")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    for name, words in {
        "empty": "empty.gguf does not load",
        "long": "rotary embedding is scaled in the way 'longrope'",
        "more": "transformers' llama has no place for 1 of its tensors, such as blk.0.attn_sinks.weight",
        "other": r"its architecture is 'rwkv7', and transformers \S+ reads bloom",
    }.items():
        with pytest.raises(ValueError, match=words) as refused:
            loading.check_files_memory_and_choose_quantisation(build_pair(str(tmp_path / f"{name}.gguf")), "cpu")
        assert str(tmp_path) not in str(refused.value)


def test_a_missing_weight_is_named(tmp_path, monkeypatch):
    model = random_model("llama")
    write_gguf(tmp_path / "model.gguf", model, "llama")
    found = gguf_reading.lazy_weights_of(str(tmp_path / "model.gguf"))
    found.pop("model.layers.1.mlp.up_proj.weight")
    monkeypatch.setattr(gguf_reading, "lazy_weights_of", lambda path: found)
    with pytest.raises(ValueError, match=r"lacks 1 of its model's weights, for example model\.layers\.1\.mlp\.up_proj"):
        loaded(tmp_path / "model.gguf")


def test_a_second_start_reads_no_vocabulary_out_of_the_file_and_other_content_is_another_model(
    tmp_path, cache, monkeypatch
):
    file = tmp_path / "model.gguf"
    write_gguf(file, random_model("llama"), "llama")
    assert gguf_reading.is_gguf_conversion_uncached(str(file))
    first = gguf_reading.convert_config_and_tokenizer_into_cache(str(file))
    assert not gguf_reading.is_gguf_conversion_uncached(str(file))
    assert first.is_relative_to(cache) and first.parent.stat().st_mode & 0o077 == 0
    gguf_reading.convert_config_and_tokenizer_once_per_file_state.cache_clear()  # as in another process
    monkeypatch.setattr(
        gguf_reading, "write_config_tokenizer_and_locations", lambda *_: pytest.fail("It was read again")
    )
    assert gguf_reading.convert_config_and_tokenizer_into_cache(str(file)) == first
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    write_gguf(file, random_model("llama", seed=1), "llama")
    assert (
        gguf_reading.convert_config_and_tokenizer_into_cache(str(file)) != first
        and len(list(first.parent.iterdir())) == 2
    )


def test_a_cache_that_others_may_write_is_not_used(tmp_path, cache):
    folder = cache / "treerace" / "gguf"
    folder.mkdir(parents=True)
    os.chmod(folder, 0o777)
    write_gguf(tmp_path / "model.gguf", random_model("llama"), "llama")
    assert not gguf_reading.convert_config_and_tokenizer_into_cache(str(tmp_path / "model.gguf")).is_relative_to(cache)
    assert not any(folder.iterdir())


def test_loading_tells_of_bytes_and_eight_bits_keep_the_head_in_sixteen(tmp_path):
    file, told = tmp_path / "model.gguf", []
    wanted = write_gguf(file, random_model("llama"), "llama", Kind.Q8_0)
    pair = loaded(file, quantisation="8-bit", report_progress=told.append)
    assert {each.model_name for each in told} == {"model"} and told[-1].done_bytes == told[-1].total_bytes > told[
        0
    ].done_bytes
    model = pair.target.model
    assert model.model.layers[0].mlp.up_proj.weight.dtype == torch.int8
    head = wanted.get_input_embeddings().weight
    assert torch.equal(model.get_input_embeddings().weight, head.half().float())
    assert not torch.equal(model.get_input_embeddings().weight, head)


def test_target_and_draft_may_both_be_files(tmp_path):
    for name, layers in (("target", 2), ("draft", 1)):
        write_gguf(tmp_path / f"{name}.gguf", random_model("llama", num_hidden_layers=layers), "llama")
    pair = build_pair(str(tmp_path / "target.gguf"), str(tmp_path / "draft.gguf"))
    assert (pair.title, pair.training_command_options) == ("draft → target", "--target target")
    both = loading.load_pair_anew(pair, "cpu")
    assert len(both.draft.model.model.layers) == 1 and named_places(both.draft.model, "llama")
