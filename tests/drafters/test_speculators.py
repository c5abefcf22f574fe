"""Checkpoints that speculators itself makes draft here as they do there, and it reads what is exported here. Needs its package.

Its networks are computed by its own modules. Probabilities are compared at 1e-4, those of eight-bit exports without their eight bits.
"""

import copy
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, Qwen3Config

from engine.drafters import DRAFTERS
from engine.forward.runner import Runner
from engine.models.export import export_drafter_as_speculators
from engine.models.pairs import MODELS, find_listed_pair
from engine.nets import open_lazy_nets
from engine.target import Target
from engine.tree import DraftTree
from helpers import learned
from helpers.pairs import tiny_llama, tiny_pair

pytestmark = pytest.mark.speculators

LAYERS, OWN, BLOCK, MASK, ROOT = 8, 120, 5, 250, 12
TEXT = 2 * learned.TEXT
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 256,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "attn_implementation": "eager",
}
EAGLES = {  # the layer's kind, how many, its own vocabulary, and more of the config
    "one Llama layer": (LlamaConfig, 1, OWN, {}),
    "Qwen3 and the whole vocabulary": (Qwen3Config, 1, 256, {"norm_before_residual": True}),
    "norms of single layers": (LlamaConfig, 1, OWN, {"fc_norm": True, "norm_before_residual": True}),
    "one norm before and a normed output": (LlamaConfig, 1, OWN, {"norm_before_fc": True, "norm_output": True}),
    "two layers": (LlamaConfig, 2, OWN, {}),
    "the last layer": (LlamaConfig, 1, OWN, {"eagle_aux_hidden_state_layer_ids": [1, 4, LAYERS]}),
}
BLOCKS = {  # the kind, its own vocabulary, and more of the config
    "DFlash": ("dflash", 256, {}),
    "DFlash with its own vocabulary": ("dflash", OWN, {}),
    "DFlash from the anchor": ("dflash", 256, {"sample_from_anchor": True}),
    "DFlash with the last layer": ("dflash", 256, {"aux_hidden_state_layer_ids": [1, 4, LAYERS]}),
    "DSpark": ("dspark", 256, {"markov_rank": 12}),
    "DSpark with its own vocabulary": ("dspark", OWN, {"markov_rank": 12, "enable_confidence_head": False}),
}


@pytest.fixture(scope="module")
def model():
    return tiny_llama(0, layers=LAYERS)


@pytest.fixture(scope="module")
def target(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    model.save_pretrained(folder)
    return folder


def made(kind: str, architecture: type, config: dict, own: int, target):
    """A drafter of speculators with random weights, norms too, and the target's own tables."""
    from speculators import SpeculatorModel, SpeculatorModelConfig
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    said = SpeculatorsConfig(
        algorithm=kind,
        proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=4)],
        default_proposal_method="greedy",
        verifier=VerifierConfig.from_pretrained(str(target)),
    )
    kinds = SpeculatorModelConfig.registry
    found = kinds[kind](**config, draft_vocab_size=own, speculators_config=said)
    torch.manual_seed(3)
    net = SpeculatorModel.registered_model_class_from_config(found)(found)
    ids = torch.randperm(256)[:own].sort().values
    net.load_vocab_mappings(torch.zeros(256, dtype=torch.bool).index_fill_(0, ids, True), ids - torch.arange(own))
    net.load_verifier_weights()
    for name, each in net.named_parameters():
        if not name.startswith(("embed_tokens", "lm_head", "verifier")):
            each.data = torch.randn_like(each) * (0.3 if each.dim() == 1 else each.shape[-1] ** -0.5) + (
                each.dim() == 1
            )
    return net.eval().float(), ids if own < 256 else torch.arange(256)


def features(model, layers) -> torch.Tensor:
    """Hidden states of `TEXT`, joined `[1, T, taps x H]`; the last layer's before the final norm."""
    states: list[torch.Tensor] = []
    hooks = [each.register_forward_hook(lambda _, __, out: states.append(out)) for each in model.model.layers]
    model(torch.tensor([TEXT]))
    for hook in hooks:
        hook.remove()
    return torch.cat([states[each - 1] for each in layers], -1).float()


def read_back(folder, model, kind: str):
    """The drafter behind the root `TEXT[ROOT]`, and a chain of the tokens behind it."""
    pair = replace(tiny_pair(), target=Runner(model), learned=open_lazy_nets(folder, model))
    assert list(pair.learned) == [kind]
    pair.net(kind).compiled = None
    drafter = DRAFTERS[kind](pair, 64)
    drafter.begin(
        TEXT[: ROOT + 1], Target(pair.target, 64, drafter.reads_features).prefill_and_return_features(TEXT[:ROOT])
    )
    tree = DraftTree.from_root_token(TEXT[ROOT])
    for token in TEXT[ROOT + 1 : ROOT + BLOCK]:
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    return drafter, tree


def logits_of(net, seen, text: list[int], steps: int) -> torch.Tensor:
    """speculators' logits `[steps, own]` of an EAGLE drafter behind the root and behind the tokens after it."""
    kept: list[torch.Tensor] = []
    hook = net.lm_head.register_forward_hook(lambda _, __, out: kept.append(out))
    count = torch.tensor([text[1:]])
    net(seen[:, :-1], count, torch.zeros_like(count), ttt_steps=steps)
    hook.remove()
    return torch.stack([each[0, ROOT - 1] for each in kept])


@pytest.mark.parametrize("case", EAGLES)
@torch.inference_mode()
def test_an_eagle_of_speculators_drafts_as_it_does_there(case, model, target, tmp_path):
    layer, count, own, more = EAGLES[case]
    config = {"eagle_aux_hidden_state_layer_ids": [1, 4, 6], **more}
    net, ids = made(
        "eagle3", layer, config | {"transformer_layer_config": layer(**SIZES, num_hidden_layers=count)}, own, target
    )
    net.save_pretrained(tmp_path / "any")
    expected = logits_of(net, features(model, config["eagle_aux_hidden_state_layer_ids"]), TEXT, 3).softmax(-1)
    drafter, tree = read_back(tmp_path, model, "eagle")
    found = torch.cat([drafter.log_q(tree, [level]) for level in range(3)]).exp()
    assert torch.allclose(found[:, ids], expected, atol=1e-4, rtol=0)
    assert found.sum(-1) == pytest.approx([1.0] * 3, abs=1e-4) and expected.max() > 0.05


@pytest.mark.parametrize("case", BLOCKS)
@torch.inference_mode()
def test_a_block_of_speculators_guesses_as_it_does_there(case, model, target, tmp_path):
    kind, own, more = BLOCKS[case]
    layer = Qwen3Config(**SIZES, num_hidden_layers=2)
    config = {"aux_hidden_state_layer_ids": [1, 4, 6], "block_size": BLOCK, "mask_token_id": MASK, **more}
    net, ids = made(kind, Qwen3Config, config | {"transformer_layer_config": layer}, own, target)
    net.save_pretrained(tmp_path / "any")
    text = torch.tensor([TEXT[: ROOT + 2 * BLOCK]])
    chosen = torch.zeros_like(text).index_fill_(1, torch.tensor(ROOT), 1)
    seen = features(model, config["aux_hidden_state_layer_ids"])[:, : text.shape[1]]
    _, logits, *_ = net._backbone_forward(
        seen, text, chosen, torch.zeros(1, text.shape[1], 64), torch.zeros_like(text), max_anchors=1
    )
    slots, from_anchor = logits[0], net.config.sample_from_anchor
    if kind == "dspark":
        slots = (
            slots
            + net.markov_head.block_bias(
                prev_token_ids=torch.tensor([TEXT[ROOT : ROOT + BLOCK]]), hidden_states=slots[None]
            )[0]
        )
    expected = slots[0 if from_anchor else 1 :].softmax(-1)
    drafter, tree = read_back(tmp_path, model, kind)
    found = torch.cat([drafter.log_q(tree, [level]) for level in range(len(expected))]).exp()
    assert torch.allclose(found[:, ids], expected, atol=1e-4, rtol=0) and expected.max() > 0.05


@torch.inference_mode()
def test_a_p_eagle_of_speculators_guesses_as_it_does_there(model, target, tmp_path, monkeypatch):
    """Its training draws the places whose depths are guessed. Here it is told the root and three depths."""
    from speculators.models.peagle import core

    layers, depths = [1, 4, 6], 4
    layer = LlamaConfig(**SIZES, num_hidden_layers=2)
    config = {"eagle_aux_hidden_state_layer_ids": layers, "mask_token_id": MASK, "fc_norm": True}
    net, ids = made("peagle", LlamaConfig, config | {"transformer_layer_config": layer}, OWN, target)
    net.save_pretrained(tmp_path / "any")
    seen, text = features(model, layers)[:, :-1], torch.tensor([TEXT[1:]])
    places, count = [ROOT - 1] * (depths - 1), text.shape[1]
    drawn = torch.tensor([*range(count), *places]), torch.tensor([0] * count + list(range(1, depths)))
    monkeypatch.setattr(core, "generate_cod_sample_indices", lambda **_: drawn)
    monkeypatch.setattr(core, "compute_metrics", lambda **_: (None, {}))
    kept: list[torch.Tensor] = []
    net.lm_head.register_forward_hook(lambda _, __, out: kept.append(out))
    net(seen, text, torch.zeros_like(text), verifier_last_hidden_states=torch.zeros(1, count, SIZES["hidden_size"]))
    expected = torch.cat([kept[0][0, ROOT - 1 : ROOT], kept[0][0, count:]]).softmax(-1)
    drafter, tree = read_back(tmp_path, model, "eagle")
    found = torch.cat([drafter.log_q(tree, [level]) for level in range(depths)]).exp()
    assert torch.allclose(found[:, ids], expected, atol=1e-4, rtol=0) and expected.max() > 0.05


# ---- what is exported here


@torch.inference_mode()
def test_speculators_reads_an_exported_eagle_with_its_embedding(embedded, tmp_path):
    """Without an embedding in the file it took zeros, and said nothing."""
    from speculators import SpeculatorModel, SpeculatorModelConfig

    export_drafter_as_speculators(find_listed_pair("small"), "eagle", tmp_path / "eagle")
    config = SpeculatorModelConfig.from_pretrained(str(tmp_path / "eagle"))
    config.transformer_layer_config._attn_implementation = "eager"
    net = SpeculatorModel.from_pretrained(str(tmp_path / "eagle"), config=config).eval().float()
    target = embedded.target.model
    assert torch.equal(net.embed_tokens.weight, target.get_input_embeddings().weight.float())
    text = embedded.tokenizer("Story: Once upon a time, a small fox lived in a big tree.")["input_ids"][: ROOT + 3]
    states: list[torch.Tensor] = []
    hooks = [each.register_forward_hook(lambda _, __, out: states.append(out)) for each in target.model.layers]
    target(torch.tensor([text]))
    for hook in hooks:
        hook.remove()
    seen = torch.cat([states[each - 1] for each in net.config.eagle_aux_hidden_state_layer_ids], -1).float()
    expected = logits_of(net, seen, text, 2).softmax(-1)
    own = copy.copy(embedded.net("eagle"))
    own.compiled = None
    pair = replace(embedded, learned={"eagle": own})
    drafter = DRAFTERS["eagle"](pair, 64)
    drafter.begin(
        text[: ROOT + 1], Target(pair.target, 64, drafter.reads_features).prefill_and_return_features(text[:ROOT])
    )
    tree = DraftTree.from_root_token(text[ROOT])
    tree.add(0, text[ROOT + 1], 1.0, 1.0)
    found = torch.cat([drafter.log_q(tree, [level]) for level in range(2)]).exp()[:, own.vocabulary]
    assert torch.allclose(found, expected, atol=1e-3, rtol=0) and expected.max() > 0.1


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
def test_speculators_reads_an_exported_block(kind, tmp_path):
    from safetensors.torch import load_file
    from speculators import SpeculatorModel

    export_drafter_as_speculators(find_listed_pair("small"), kind, tmp_path / kind)
    net = SpeculatorModel.from_pretrained(str(tmp_path / kind))
    stored, shipped = net.state_dict(), load_file(MODELS / "small" / "drafters" / kind / "model.safetensors")
    assert all(torch.equal(stored[name].half(), each) for name, each in shipped.items())
    assert net.config.sample_from_anchor == (kind == "dspark")
    assert net.target_layer_ids == [2, 4, 7]
