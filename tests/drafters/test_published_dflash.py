"""DFlash drafters as others publish them: random checkpoints in both forms, beside a plain computation of the published network.

Probabilities are compared at 1e-4, losslessness is token equality.
"""

from dataclasses import replace

import pytest
import torch

from engine.drafters import DRAFTERS
from engine.nets import open_lazy_nets
from engine.nets.dflash import DFlash
from engine.target import Target
from engine.tree import DraftTree
from helpers.learned import TEXT
from helpers.pairs import tiny_llama, tiny_pair
from helpers.published.dflash import (
    BLOCK,
    HIDDEN,
    LAYER,
    LAYERS,
    MASK,
    MLP,
    OWN,
    VOCAB,
    pair_of,
    race_keeps_the_text,
    reference,
    tensors,
)
from helpers.published.files import write

Z_LAB = {
    **LAYER,
    "architectures": ["DFlashDraftModel"],
    "block_size": BLOCK,
    "num_target_layers": LAYERS,
    "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [1, 3, 5]},
}
SPECULATORS = {
    "architectures": ["DFlashSpeculator"],
    "speculators_model_type": "dflash",
    "speculators_version": "0.7.0",
    "transformer_layer_config": LAYER,
    "draft_vocab_size": OWN,
    "block_size": BLOCK,
    "mask_token_id": MASK,
    "aux_hidden_state_layer_ids": [1, 4, 6],
    "sample_from_anchor": False,
}


@pytest.fixture(scope="module")
def model():
    return tiny_llama(0, layers=LAYERS)


NESTED = {key: each for key, each in Z_LAB.items() if key not in ("block_size", "num_target_layers")}
CASES = {
    "z-lab": (Z_LAB, tensors(), (2, 4, 6)),
    "z-lab with its block size inside, biases, and layers by the rule": (
        NESTED | {"attention_bias": True, "dflash_config": {"mask_token_id": MASK, "block_size": BLOCK}},
        tensors(taps=2, bias=True),
        (2, 6),
    ),
    "speculators with its own vocabulary": (SPECULATORS, tensors(whole=True), (1, 4, 6)),
}


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_a_published_block_guesses_as_the_published_network(case, model, tmp_path):
    """Round after round, with paths of 2, 0 and 1 nodes and once without a draft; both branches of a depth get one guess."""
    config, found, places = CASES[case]
    write(tmp_path / "Any-Name", config, found)
    pair = pair_of(tmp_path, model)
    assert list(pair.learned) == ["dflash"] and isinstance(pair.net("dflash"), DFlash)
    pair.net("dflash").compiled = None
    drafter = DRAFTERS["dflash"](pair, 64)
    assert drafter.reads_features == places
    target, root = Target(pair.target, 64, drafter.reads_features), 5
    drafter.begin(TEXT[: root + 1], target.prefill_and_return_features(TEXT[:root]))
    ids = torch.arange(len(found.get("lm_head.weight", torch.zeros(VOCAB)))) + found.get("d2t", 0)
    for number, accepted in enumerate((2, 0, 1, 1)):
        tree = DraftTree.from_root_token(TEXT[root])
        for token in TEXT[root + 1 : root + 4]:
            tree.add(len(tree) - 1, token, 1.0, 1.0)
        tree.add(0, 3, 1.0, 1.0)
        if number != 2:
            guessed = torch.cat([drafter.log_q(tree, [level]) for level in range(4)])
            expected = reference(found, model, TEXT[:root], TEXT[root], places)[1:].log_softmax(-1)
            assert torch.allclose(guessed[:, ids].exp(), expected.exp(), atol=1e-4, rtol=0), root
            assert torch.isfinite(guessed).sum() == 4 * len(ids)
            assert torch.equal(drafter.log_q(tree, [1, 4]), guessed[[1, 1]])
        _, features = target.verify(tree)
        path = list(range(1, accepted + 1))
        target.commit(path)
        drafter.commit(tree, path, TEXT[root + accepted + 1], features)
        root += accepted + 1
    assert drafter.draft_forward_count == 3


@torch.inference_mode()
def test_a_block_that_guesses_from_its_anchor_reaches_one_level_more(model, tmp_path):
    found, places = tensors(whole=True), (1, 4, 6)
    write(tmp_path / "drafter", SPECULATORS | {"sample_from_anchor": True}, found)
    pair = pair_of(tmp_path, model)
    pair.net("dflash").compiled = None
    drafter = DRAFTERS["dflash"](pair, 64)
    drafter.begin(TEXT[:6], Target(pair.target, 64, places).prefill_and_return_features(TEXT[:5]))
    tree = DraftTree.from_root_token(TEXT[5])
    for token in TEXT[6 : 5 + BLOCK]:
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    guessed = torch.cat([drafter.log_q(tree, [level]) for level in range(BLOCK)])
    expected = reference(found, model, TEXT[:5], TEXT[5], places).softmax(-1)
    assert torch.allclose(guessed[:, torch.arange(OWN) + found["d2t"]].exp(), expected, atol=1e-4, rtol=0)


@torch.inference_mode()
def test_a_block_ends_and_a_single_token_is_context_enough(model, tmp_path):
    config, found, places = CASES["z-lab"]
    write(tmp_path / "drafter", config, found)
    pair = pair_of(tmp_path, model)
    drafter = DRAFTERS["dflash"](pair, 64)
    drafter.begin([TEXT[0]], Target(pair.target, 64, places).prefill_and_return_features([]))
    tree = DraftTree.from_root_token(TEXT[0])
    for token in TEXT[1:BLOCK]:
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    assert drafter.log_q(tree, [BLOCK - 1]) is None
    assert torch.isfinite(drafter.log_q(tree, [0, BLOCK - 2])).all()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("case", ["z-lab", "speculators with its own vocabulary"])
def test_trees_of_a_published_block_write_plain_decodings_tokens(case, temperature, model, tmp_path):
    config, found, _ = CASES[case]
    write(tmp_path / "published", config, found)
    race_keeps_the_text(
        pair_of(tmp_path, model), "dflash", ("best_first", "chain", "beam", "expand_rerank"), temperature
    )


def test_a_block_that_compiled_loops_do_not_serve_drafts_with_tensors(model, tmp_path, monkeypatch):
    """One of an odd MLP, and one too large for one thread. The loops read the weights and the head."""
    config, found, _ = CASES["z-lab"]
    write(tmp_path / "even" / "drafter", config, found)
    even = pair_of(tmp_path / "even", model).net("dflash")
    assert even.compiled and even.build_compiled()
    odd = {name: each[:-1] if "gate" in name or "up" in name else each for name, each in found.items()}
    odd = {name: each[:, :-1].clone() if "down" in name else each.clone() for name, each in odd.items()}
    write(tmp_path / "odd" / "drafter", {**config, "intermediate_size": MLP - 1}, odd)
    pair = pair_of(tmp_path / "odd", model)
    assert pair.net("dflash").compiled is None
    drafter = DRAFTERS["dflash"](pair, 64)
    drafter.begin([TEXT[0]], Target(pair.target, 64, drafter.reads_features).prefill_and_return_features([]))
    assert torch.isfinite(drafter.log_q(DraftTree.from_root_token(TEXT[0]), [0])).all()
    monkeypatch.setattr("engine.nets.dflash.LARGEST", sum(each.numel() for each in found.values()) + VOCAB * HIDDEN - 1)
    assert even.build_compiled() is None


# ---- refusals


def inner(**change) -> dict:
    return {**Z_LAB, "dflash_config": {**Z_LAB["dflash_config"], **change}}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({**SPECULATORS, "transformer_layer_config": None}, "lacks transformer_layer_config"),
        ({**Z_LAB, "dflash_config": []}, "lacks dflash_config"),
        ({**Z_LAB, "head_dim": None}, "head_dim as a whole number from 1 on, got None"),
        ({**Z_LAB, "model_type": "llama"}, "of the type 'llama' with 'silu'"),
        ({**Z_LAB, "hidden_size": 32}, "hidden size 32, this one has 256 and 64"),
        ({**Z_LAB, "block_size": 1}, "block_size as a whole number from 2 on, got 1"),
        ({**Z_LAB, "num_target_layers": 36}, "a target of 36 layers, this one has 8"),
        ({**Z_LAB, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "its rotary embedding is 'dynamic'"),
        (inner(mask_token_id=None), "mask_token_id between 0 and 255, got None"),
        (inner(mask_token_id=256), "mask_token_id between 0 and 255, got 256"),
        ({**Z_LAB, "architectures": ["DFlash2DraftModel"]}, "is a DFlash2DraftModel, whose network is another one"),
        ({**Z_LAB, "architectures": ["DominoDraftModel"]}, "is a DominoDraftModel, whose network is another one"),
        ({**Z_LAB, "rope_is_neox_style": False}, "sets rope_is_neox_style to False in config.json"),
        ({**Z_LAB, "attention_sink_bias": True}, "sets attention_sink_bias to True in config.json"),
        ({**Z_LAB, "layer_types": None, "sliding_window": 2048}, "sets sliding_window to 2048 and no layer_types"),
        ({**Z_LAB, "a_key_of_next_year": 0}, "sets a_key_of_next_year to 0 in config.json, .* delete it there"),
        (inner(rope_is_neox_style=False), "sets rope_is_neox_style to False in dflash_config"),
        ({**SPECULATORS, "is_causal": True}, "sets is_causal to True in config.json"),
        (
            {**SPECULATORS, "transformer_layer_config": {**LAYER, "attention_sink_bias": True}},
            "sets attention_sink_bias to True in transformer_layer_config",
        ),
        (inner(causal=True), "sets causal to True in dflash_config"),
        (inner(selector_rank=8), "sets selector_rank to 8 in dflash_config"),
        (inner(target_layer_ids="1"), "target_layer_ids .* must ascend between 0 and 6 for this target, got 1"),
        (inner(target_layer_ids=[1, 7]), r"must ascend between 0 and 6 for this target, got \[1, 7\]"),
        (inner(target_layer_ids=[3, 1]), r"must ascend .*, got \[3, 1\]"),
        ({**SPECULATORS, "aux_hidden_state_layer_ids": [1, 9]}, r"must ascend between 1 and 8 .*, got \[1, 9\]"),
        ({**SPECULATORS, "draft_vocab_size": 300}, "draft_vocab_size between 1 and 256, got 300"),
        (
            {**SPECULATORS, "speculators_model_type": "dflash2"},
            "of the type 'dflash2'. Those of the types eagle3, peagle, dflash",
        ),
    ],
)
def test_a_block_that_cannot_be_served_is_refused_before_weights_are_read(config, sentence, model, tmp_path):
    write(tmp_path / "drafter", config, {})
    with pytest.raises(ValueError, match=sentence):
        open_lazy_nets(tmp_path, model)


@pytest.mark.parametrize(
    "more",
    [
        {"is_causal": False, "rope_is_neox_style": True, "attention_sink_bias": None, "use_cache": True},
        {"layer_types": None, "sliding_window": 4096, "use_sliding_window": False},
        {
            "transformers_version": "5.3.0",
            "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
            "initializer_range": 0.02,
        },
    ],
)
def test_settings_that_change_nothing_are_no_obstacle(more, model, tmp_path):
    config, found, _ = CASES["z-lab"]
    write(tmp_path / "drafter", {**config, **more}, found)
    assert isinstance(open_lazy_nets(tmp_path, model)["dflash"], DFlash)


@pytest.mark.parametrize(
    ("config", "found", "sentence"),
    [
        (Z_LAB, tensors(whole=True), r"holds the tensor d2t, which this format does not have"),
        (Z_LAB, tensors(layers=3), r"holds the tensor layers\.2\.\S+, which this format does not have"),
        (Z_LAB, tensors(layers=1), r"lacks the tensor layers\.1\."),
        (Z_LAB, tensors(taps=2), r"fc\.weight in the shape \[64, 128\].* need \[64, 192\]"),
        (SPECULATORS, tensors(), r"lacks the tensor d2t"),
    ],
)
def test_tensors_of_another_block_are_refused_by_name(config, found, sentence, model, tmp_path):
    write(tmp_path / "drafter", config, found)
    nets = open_lazy_nets(tmp_path, model)
    with pytest.raises(ValueError, match=sentence):
        nets["dflash"]


def test_a_pair_without_a_block_drafter_says_where_one_comes_from():
    with pytest.raises(ValueError, match=r"no trained dflash .*python -m engine train dflash"):
        DRAFTERS["dflash"](replace(tiny_pair(), learned={}), 64)
