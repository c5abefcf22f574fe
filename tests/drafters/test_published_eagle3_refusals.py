"""What is no EAGLE-3 drafter for the target is refused: configs before weights are read, tensors by their names and shapes."""

import pytest
import torch

from engine.nets import open_lazy_nets
from helpers.pairs import tiny_llama
from helpers.published.eagle3 import HIDDEN, LAYER, LAYERS, OWN, P_EAGLE, SAFEAILAB, SPECULATORS, VOCAB, tensors
from helpers.published.files import write

MIXED = {"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8}


@pytest.fixture(scope="module")
def model():
    return tiny_llama(0, layers=LAYERS)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {**SPECULATORS, "speculators_model_type": "mlp"},
            "of the type 'mlp'. Those of the types eagle3, peagle, dflash and dspark",
        ),
        ({**P_EAGLE, "mask_token_id": None}, "mask_token_id between 0 and 255, got None"),
        ({**P_EAGLE, "mask_token_id": 256}, "mask_token_id between 0 and 255, got 256"),
        ({**P_EAGLE, "speculators_config": None}, "how many speculative_tokens, at least 2"),
        ({**SPECULATORS, "transformer_layer_config": None}, "lacks transformer_layer_config"),
        ({**SPECULATORS, "norm_before_residual": None}, "does not say norm_before_residual"),
        (
            {**SPECULATORS, "norm_before_fc": True, "fc_norm": True},
            "norm_before_fc and fc_norm, of which a drafter has one",
        ),
        ({**SPECULATORS, "norm_output": "yes"}, "norm_output as true or false, got 'yes'"),
        (
            {**SPECULATORS, "eagle_aux_hidden_state_layer_ids": [1, 4, 9]},
            r"between 1 and 8 for this target, got \[1, 4, 9\]",
        ),
        ({**SPECULATORS, "eagle_aux_hidden_state_layer_ids": [4, 1]}, r"must ascend .*, got \[4, 1\]"),
        ({**SPECULATORS, "eagle_aux_hidden_state_layer_ids": "2"}, "got 2"),
        (
            {**SAFEAILAB, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1]}},
            "in eagle_config, which engines count",
        ),
        ({**SAFEAILAB, "target_layer_ids": [1, 4]}, "in target_layer_ids, which engines count"),
        ({**SAFEAILAB, "draft_vocab_size": 300}, "draft_vocab_size between 1 and 256, got 300"),
        (
            {**SAFEAILAB, "draft_vocab_size": 40, "vocab_size": 100},
            "a target of 100 tokens and hidden size 64, this one has 256 and 64",
        ),
        ({**SAFEAILAB, "hidden_size": 32}, "hidden size 32, this one has 256 and 64"),
        ({**SAFEAILAB, "hidden_size": "64"}, "hidden_size as a whole number from 1 on, got '64'"),
        ({**SAFEAILAB, "num_hidden_layers": 2}, "has 2 layers"),
        (
            {**SPECULATORS, "transformer_layer_config": {**LAYER, **MIXED}},
            "mixes full_attention and sliding_attention. Only layers of one type are computed",
        ),
        ({**SAFEAILAB, "model_type": "mamba"}, "of the type 'mamba'"),
        ({**SAFEAILAB, "a_key_of_next_year": 0}, "sets a_key_of_next_year to 0 in config.json, .* delete it there"),
        (
            {**SAFEAILAB, "eagle_config": {"use_aux_hidden_state": False}},
            "use_aux_hidden_state to False in eagle_config",
        ),
        ({**SPECULATORS, "attention_sink_bias": True}, "sets attention_sink_bias to True in config.json"),
        (
            {**SPECULATORS, "transformer_layer_config": {**LAYER, "residual_multiplier": 0.2}},
            r"sets residual_multiplier to 0\.2 in transformer_layer_config",
        ),
        ({**SAFEAILAB, "sliding_window": 8}, "sets sliding_window to 8 and no layer_types"),
        ({**SAFEAILAB, "hidden_act": "gelu"}, "an MLP with 'gelu'"),
        ({**SAFEAILAB, "layer_types": ["chunked_attention"]}, "chunked_attention"),
        ({**SAFEAILAB, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "its rotary embedding is 'dynamic'"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused_before_weights_are_read(config, sentence, model, tmp_path):
    write(tmp_path / "drafter", config, {})
    with pytest.raises(ValueError, match=sentence):
        open_lazy_nets(tmp_path, model)


@pytest.mark.parametrize(
    "config",
    [
        {
            **SPECULATORS,
            "embed_requires_grad": False,
            "norm_output": False,
            "eagle_config": {"use_aux_hidden_state": True},
        },
        {**SPECULATORS, "transformer_layer_config": {**LAYER, "use_cache": True, "mlp_bias": False, "pad_token_id": 0}},
    ],
)
def test_settings_that_change_nothing_are_no_obstacle(config, model, tmp_path):
    write(tmp_path / "drafter", config, tensors("layers.0."))
    assert open_lazy_nets(tmp_path, model)["eagle"].form


def test_a_target_of_few_layers_is_refused_where_the_config_names_none(tmp_path):
    write(tmp_path / "drafter", SAFEAILAB, {})
    with pytest.raises(ValueError, match="a target of at least 7, and this one has 2"):
        open_lazy_nets(tmp_path, tiny_llama(0))


def changed(**tensors_by_name) -> dict[str, torch.Tensor]:
    found = {**tensors("midlayer."), **{name.replace("__", "."): each for name, each in tensors_by_name.items()}}
    return {name: each for name, each in found.items() if each is not None}


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (changed(fc__bias=torch.zeros(HIDDEN)), r"holds the tensor fc\.bias, which this format does not have"),
        (tensors("layers.0."), r"holds the tensor layers\.0\.\S+, which this format does not have"),
        (changed(norm__weight=None), r"lacks the tensor norm\.weight"),
        (changed(input_norm__weight=torch.ones(192)), r"holds the tensor input_norm\.weight"),
        (changed(d2t=None), "lacks the tensor d2t"),
        (changed(fc__weight=torch.zeros(HIDDEN, 128)), r"fc\.weight in the shape \[64, 128\].* need \[64, 192\]"),
        (changed(d2t=torch.zeros(OWN)), "d2t as torch.float32"),
        (changed(d2t=torch.full((OWN,), VOCAB)), "to the ids 256 to 375 by d2t, and the target has 256"),
        (changed(d2t=-torch.arange(OWN)), "maps 120 tokens to 1 ids"),
        (changed(t2d=torch.ones(VOCAB, dtype=torch.bool)), "t2d that marks 256 ids, which are not the 120 ids of d2t"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(found, sentence, model, tmp_path):
    write(tmp_path / "drafter", SAFEAILAB, found)
    nets = open_lazy_nets(tmp_path, model)
    with pytest.raises(ValueError, match=sentence):
        nets["eagle"]


def test_pickled_weights_are_refused_with_the_command_that_converts_them(model, tmp_path):
    write(tmp_path / "drafter", SAFEAILAB, {})
    (tmp_path / "drafter" / "model.safetensors").rename(tmp_path / "drafter" / "pytorch_model.bin")
    nets = open_lazy_nets(tmp_path, model)
    with pytest.raises(ValueError, match=r"pickled weights \(pytorch_model\.bin\).*python -m engine convert"):
        nets["eagle"]
    (tmp_path / "drafter" / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match="holds no safetensors file"):
        nets["eagle"]


def test_a_file_that_is_no_safetensors_is_refused(model, tmp_path):
    write(tmp_path / "drafter", SAFEAILAB, {})
    (tmp_path / "drafter" / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        open_lazy_nets(tmp_path, model)["eagle"]


def test_two_drafters_of_one_name_are_refused(model, tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, SAFEAILAB, {})
    with pytest.raises(ValueError, match=r"one and .*two both hold a drafter eagle\. Keep one of them"):
        open_lazy_nets(tmp_path, model)
