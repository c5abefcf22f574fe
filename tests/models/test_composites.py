"""Checkpoints of models that read more than text: the text model alone is raced, and writes what the whole model writes."""

import json
import logging
from dataclasses import replace
from unittest import TestCase

import pytest
import torch
import transformers as tr
from safetensors.torch import load_file

from engine.custom_generate import treerace
from engine.drafters import DRAFTERS
from engine.models import spreading
from engine.models.loading import load_and_check_tokenizer_and_config, load_pair_anew
from engine.models.pairs import build_pair
from engine.models.refusals import explain_why_unable_to_verify_trees
from engine.nets.formats.composite import TRIED, text_tensor_name
from engine.race import Race, Settings
from helpers.checkpoints import pair_of
from helpers.families import daily
from helpers.published.composites import COMPOSITES, WITH_MTP, write, write_with_mtp
from helpers.published.mtp import rewrite, tensors_of

UNTRIED = "it reads more than text, and nobody has tried here how its text model is computed alone; the text models of Gemma 3, "


def raced(pair, *systems: str, **settings) -> Race:
    race = Race(pair, Settings("Once upon", ("vanilla", *systems), **settings))
    for _ in race.run():
        pass
    return race


def written(model: tr.PreTrainedModel, prompt: list[int], tokens: int) -> list[int]:
    how = {"max_new_tokens": tokens, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    return model.generate(torch.tensor([prompt]), **how)[0, len(prompt) :].tolist()


def test_every_type_that_is_read_is_tried_here():
    assert [*COMPOSITES] == [*TRIED]


@pytest.mark.parametrize("name", daily(COMPOSITES, "gemma3", "qwen3_5", "kimi_k25"))
def test_the_text_model_writes_what_the_whole_model_writes(name, tmp_path):
    """Greedily, token for token; and with guesses the same, at both temperatures. No table of what was not read is printed."""
    whole = write(tmp_path, name)
    with TestCase().assertNoLogs("transformers.modeling_utils", logging.WARNING):
        pair = load_pair_anew(build_pair(str(tmp_path)), device="cpu")
    assert pair.stop_ids == {256} and pair.context == 128
    free = replace(pair, stop_ids=frozenset())
    for temperature in (0.0, 0.8):
        race = raced(free, "lookup", "recycling", max_new_tokens=24, temperature=temperature, seed=3)
        assert race.result()["identical"] is True
        if temperature == 0:
            trace = race.lanes[0].trace
            assert trace.tokens == written(whole, trace.prompt_tokens, 24)
    text = [5, 80, 33, 12, 200, 41, 7]
    with torch.no_grad():
        expected = whole(torch.tensor([text])).logits[0]
    found = pair.target.open_session(len(text)).forward(text, list(range(len(text))))[0]
    assert (found - expected).abs().max() < 1e-4
    assert sum(each.numel() for each in pair.target.model.parameters()) < sum(
        each.numel() for each in whole.parameters()
    )


@pytest.mark.parametrize("name", ["qwen3_5", "qwen2_5_vl", "mistral3"])
def test_the_whole_models_config_says_whether_the_head_is_the_embedding(name, tmp_path):
    """transformers looks there, and a text model that has a head of its own would lack it."""
    whole = write(tmp_path, name, tied=True)
    assert not any(each.endswith("lm_head.weight") for each in load_file(tmp_path / "model.safetensors"))
    pair = load_pair_anew(build_pair(str(tmp_path)), device="cpu")
    assert torch.equal(pair.target.model.lm_head.weight, whole.lm_head.weight)


@pytest.mark.parametrize("name", ["mistral3", "kimi_k25"])
def test_a_head_in_the_files_stays_where_the_config_is_silent(name, tmp_path):
    """These configs then say that the head is the embedding, and transformers keeps both where the files hold both."""
    whole = write(tmp_path, name)
    config = json.loads((tmp_path / "config.json").read_text())
    config.pop("tie_word_embeddings"), config["text_config"].pop("tie_word_embeddings", None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert tr.AutoConfig.from_pretrained(tmp_path).tie_word_embeddings
    loaded = type(whole).from_pretrained(tmp_path)
    pair = load_pair_anew(build_pair(str(tmp_path)), device="cpu")
    for each in (loaded.lm_head, pair.target.model.lm_head):
        assert torch.equal(each.weight, whole.lm_head.weight)


def test_a_flat_config_of_before_is_read_as_the_nested_one(tmp_path):
    """Published Qwen2.5-VL checkpoints have the text model's settings beside vision_config, and its tensors without a prefix."""
    whole = write(tmp_path, "qwen2_5_vl")
    config = json.loads((tmp_path / "config.json").read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    flat = {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}
    (tmp_path / "config.json").write_text(json.dumps({**text, **config, **flat, "model_type": "qwen2_5_vl"}))
    stored = tensors_of(tmp_path)
    rewrite(tmp_path, {each.replace("model.language_model.", "model."): tensor for each, tensor in stored.items()})
    pair = replace(load_pair_anew(build_pair(str(tmp_path)), device="cpu"), stop_ids=frozenset())
    trace = raced(pair, max_new_tokens=20).lanes[0].trace
    assert pair.target.forward_kind == "compiled" and trace.tokens == written(whole, trace.prompt_tokens, 20)


def test_with_layers_on_a_disk_it_writes_the_same_text(tmp_path, monkeypatch):
    write(tmp_path, "qwen3_vl")
    whole = load_pair_anew(build_pair(str(tmp_path)), device="cpu")
    monkeypatch.setattr(spreading, "available_weight_bytes_by_device", lambda: {"cpu": 120_000})
    spread = load_pair_anew(build_pair(str(tmp_path)), device="cpu", spread="layers")
    assert {*spread.target.model.hf_device_map.values()} == {"cpu", "disk"}
    texts = [raced(pair, max_new_tokens=12).lanes[0].trace.tokens for pair in (whole, spread)]
    assert texts[0] == texts[1]


def test_in_eight_bits_it_races_losslessly(tmp_path):
    write(tmp_path, "qwen3_vl")
    pair = load_pair_anew(build_pair(str(tmp_path)), device="cpu", quantisation="8-bit")
    assert pair.dtype == "8-bit"
    assert raced(replace(pair, stop_ids=frozenset()), "lookup", max_new_tokens=16).result()["identical"] is True


def test_a_weight_of_the_text_model_that_is_missing_is_told_by_its_name(tmp_path):
    write(tmp_path, "qwen3_vl")
    stored = tensors_of(tmp_path)
    rewrite(tmp_path, {name: each for name, each in stored.items() if not name.endswith("layers.1.mlp.up_proj.weight")})
    with pytest.raises(ValueError, match=r"lacks 1 of its model's weights, for example model\.layers\.1\.mlp\.up_proj"):
        load_pair_anew(build_pair(str(tmp_path)), device="cpu")


@pytest.mark.parametrize(
    ("stored", "own"),
    [
        ("model.language_model.layers.0.x", "model.layers.0.x"),
        ("language_model.model.layers.0.x", "model.layers.0.x"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("model.text_model.layers.0.x", "model.layers.0.x"),
        ("model.layers.0.x", "model.layers.0.x"),
        ("mtp.layers.0.x", "mtp.layers.0.x"),
        ("model.visual.blocks.0.x", "model.visual.blocks.0.x"),
    ],
)
def test_tensors_are_known_by_their_names_in_the_text_model(stored, own):
    assert text_tensor_name(stored) == own


# ---- with MTP layers


@pytest.fixture(scope="module", params=WITH_MTP)
def published(request, tmp_path_factory):
    """The folder of a whole model with an MTP layer, and the model."""
    folder, work = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("text")
    return folder, write_with_mtp(folder, work, request.param)


def test_it_drafts_with_the_mtp_layer_in_its_own_folder(published):
    folder, whole = published
    pair = replace(load_pair_anew(build_pair(str(folder)), device="cpu"), stop_ids=frozenset())
    assert [*pair.learned] == ["mtp"] and DRAFTERS["best"].inner_drafter_candidates(pair) == ["mtp"]
    for temperature in (0.0, 0.8):
        systems = "mtp", "auto", "mtp/chain/token_match:3x1x4"
        race = raced(pair, *systems, max_new_tokens=24, temperature=temperature, seed=3)
        assert race.result()["identical"] is True
        assert temperature == 0 or max(lane.trace.tau for lane in race.lanes) > 1.2  # some guesses came true
        if temperature == 0:
            trace = race.lanes[0].trace
            assert trace.tokens == written(whole, trace.prompt_tokens, 24)


def test_its_guesses_are_those_beside_the_text_model_alone(published, tmp_path):
    """The same layer beside the same text model, stored under its own names."""
    folder, _ = published
    rewrite(tmp_path, {text_tensor_name(name): each for name, each in tensors_of(folder).items() if "vis" not in name})
    config = tr.AutoConfig.from_pretrained(folder).text_config
    config.save_pretrained(tmp_path)
    tr.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    pairs = [load_pair_anew(build_pair(str(each)), device="cpu") for each in (folder, tmp_path)]
    whole, alone = (raced(pair, "mtp", max_new_tokens=20).lanes[1].trace for pair in pairs)
    assert [(step.tokens, step.burst) for step in whole.steps] == [(step.tokens, step.burst) for step in alone.steps]


# ---- what is refused


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "llama4",
            r"its text model alone (llama4_text) cannot be raced either: it has layers of type chunked_attention",
        ),
        ("mllama", UNTRIED),
        ("glm4v", UNTRIED),
        ("qwen3_vl_moe", UNTRIED),
        ("voxtral", UNTRIED),
    ],
)
def test_others_are_refused_with_the_reason(name, reason):
    assert reason in explain_why_unable_to_verify_trees(tr.AutoConfig.for_model(name))


def test_whole_weights_that_are_quantised_are_refused_as_text_models_are(tmp_path):
    write(tmp_path, "qwen3_vl")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8"}}))
    with pytest.raises(ValueError, match=r"\(qwen3\) cannot be raced: its weights are already quantised"):
        load_and_check_tokenizer_and_config(pair_of(tmp_path).target_checkpoint)


def test_inside_generate_a_whole_model_is_refused_by_a_sentence(tmp_path):
    whole = write(tmp_path, "qwen3_vl")
    with pytest.raises(ValueError, match="it reads more than text; give its text model alone"):
        whole.generate(torch.tensor([[5, 9, 17]]), custom_generate=treerace, max_new_tokens=4, do_sample=False)
