"""EAGLE-3 drafters as others publish them: random checkpoints in both forms, beside a plain computation of the published network.

The reference below is written from the formats' description. Probabilities are compared at 1e-4, losslessness is token equality.
"""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from engine.drafters import DRAFTERS
from engine.forward.runner import Runner
from engine.nets import load_nets
from engine.nets.eagle3 import Eagle3
from engine.race import Race, Settings
from engine.target import Target
from engine.tree import DraftTree
from helpers.learned import TEXT
from helpers.pairs import tiny_llama, tiny_pair

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCAB, OWN, LAYERS = 64, 4, 2, 32, 96, 256, 120, 8
LAYER = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "num_hidden_layers": 1,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
SAFEAILAB = {**LAYER, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": OWN}
SPECULATORS = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "speculators_version": "0.3.0",
    "draft_vocab_size": OWN,
    "norm_before_residual": True,
    "eagle_aux_hidden_state_layer_ids": [1, 4, 6],
    "transformer_layer_config": {**LAYER, "rope_theta": 500000.0},
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def tensors(prefix: str, own: int = OWN, hidden: int = HIDDEN, head_norms: bool = False) -> dict[str, torch.Tensor]:
    """Random weights in a published checkpoint's names; about half of the matrices' outputs matter."""
    draw = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw) * (0.3 if len(shape) == 1 else 2 / shape[1] ** 0.5) + (
            len(shape) == 1
        )

    found = {
        "fc.weight": random(hidden, 3 * HIDDEN),
        "norm.weight": random(hidden),
        "lm_head.weight": random(own, hidden),
    }
    shapes = {
        "input_layernorm": (hidden,),
        "hidden_norm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (HEADS * HEAD_DIM, 2 * hidden),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, 2 * hidden),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, 2 * hidden),
        "self_attn.o_proj": (hidden, HEADS * HEAD_DIM),
        "mlp.gate_proj": (MLP, hidden),
        "mlp.up_proj": (MLP, hidden),
        "mlp.down_proj": (hidden, MLP),
    }
    if head_norms:
        shapes |= {"self_attn.q_norm": (HEAD_DIM,), "self_attn.k_norm": (HEAD_DIM,)}
    found |= {f"{prefix}{name}.weight": random(*shape) for name, shape in shapes.items()}
    if own < VOCAB:
        ids = torch.randperm(VOCAB, generator=draw)[:own].sort().values
        found["d2t"] = ids - torch.arange(own)
        found["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids, True)
    return found


def write(folder, config: dict, found: dict[str, torch.Tensor]) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(found, folder / "model.safetensors")


@pytest.fixture(scope="module")
def model():
    return tiny_llama(0, layers=LAYERS)


def pair_of(folder, model):
    return replace(tiny_pair(), target=Runner(model), learned=load_nets(folder, model))


# ---- the published network, plainly


def rms(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def turned(x: torch.Tensor, positions: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """`x [heads, N, head_dim]` turned by its positions, halves against each other."""
    angles = positions[:, None] * torch.cat([inverse, inverse])
    left, right = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-right, left], -1) * angles.sin()


def reference(found, prefix, model, text, layers, levels, *, residual, inverse, window=10**9) -> torch.Tensor:
    """Log-probabilities `[levels, own]` of guessing along `text`, whose last `levels` - 1 tokens are drafted ones.

    Entry t holds token t + 1 and the feature of token t; drafted tokens take the output of the entry before in place of a feature.
    """
    w = {name.removeprefix(prefix): each.float() for name, each in found.items()}
    read = len(text) - levels  # tokens whose features the target has given: all before the root
    hidden = model(torch.tensor([text[:read]]), output_hidden_states=True).hidden_states
    features = list(torch.cat([hidden[k][0] for k in layers], -1) @ w["fc.weight"].T)
    embedding = w.get("embed_tokens.weight", model.get_input_embeddings().weight)[torch.tensor(text[1:])]
    outs = []
    for _ in range(levels):
        count = len(features)
        h = torch.stack(features)
        normed = rms(h, w["hidden_norm.weight"])
        x = torch.cat([rms(embedding[:count], w["input_layernorm.weight"]), normed], -1)
        places = torch.arange(count)

        def heads(name: str, x=x, count=count):
            return (x @ w[f"self_attn.{name}_proj.weight"].T).view(count, -1, HEAD_DIM).transpose(0, 1)

        queries, keys, values = heads("q"), heads("k"), heads("v")
        if "self_attn.q_norm.weight" in w:
            queries, keys = rms(queries, w["self_attn.q_norm.weight"]), rms(keys, w["self_attn.k_norm.weight"])
        queries, keys = turned(queries, places, inverse), turned(keys, places, inverse)
        keys, values = (each.repeat_interleave(HEADS // KV_HEADS, 0) for each in (keys, values))
        away = places[:, None] - places
        scores = (queries @ keys.mT / HEAD_DIM**0.5).masked_fill((away < 0) | (away >= window), -torch.inf)
        attended = (scores.softmax(-1) @ values).transpose(0, 1).flatten(1)
        x = (normed if residual else h) + attended @ w["self_attn.o_proj.weight"].T
        inner = rms(x, w["post_attention_layernorm.weight"])
        inner = F.silu(inner @ w["mlp.gate_proj.weight"].T) * (inner @ w["mlp.up_proj.weight"].T)
        out = (x + inner @ w["mlp.down_proj.weight"].T)[-1]
        outs.append((rms(out, w["norm.weight"]) @ w["lm_head.weight"].T).log_softmax(-1))
        features.append(out)
    return torch.stack(outs)


def plain_inverse(theta: float) -> torch.Tensor:
    return theta ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)


def llama3_inverse(theta: float) -> torch.Tensor:
    """Long waves are slowed down eight times, short ones not at all, and those between in part."""
    plain = plain_inverse(theta)
    turns = 64 * plain / (2 * torch.pi)  # in the original context
    share = ((turns - 1.0) / (4.0 - 1.0)).clamp(0, 1)
    return share * plain + (1 - share) * plain / 8


def speculators(**layer) -> dict:
    return {**SPECULATORS, "transformer_layer_config": {**SPECULATORS["transformer_layer_config"], **layer}}


def drawn_embedding(hidden: int) -> dict[str, torch.Tensor]:
    return {"embed_tokens.weight": torch.randn(VOCAB, hidden, generator=torch.Generator().manual_seed(2))}


CASES = {
    "safeailab": (
        SAFEAILAB,
        tensors("midlayer."),
        {"layers": (2, 4, 5), "residual": False, "inverse": plain_inverse(10000.0)},
    ),
    "speculators": (
        SPECULATORS,
        tensors("layers.0."),
        {"layers": (1, 4, 6), "residual": True, "inverse": plain_inverse(500000.0)},
    ),
    "speculators without ids, whole vocabulary": (
        SPECULATORS
        | {"eagle_aux_hidden_state_layer_ids": None, "norm_before_residual": False, "draft_vocab_size": VOCAB},
        tensors("layers.0.", own=VOCAB),
        {"layers": (2, 4, 5), "residual": False, "inverse": plain_inverse(500000.0)},
    ),
    "qwen3 with a window": (
        speculators(model_type="qwen3", layer_types=["sliding_attention"], sliding_window=5),
        tensors("layers.0.", head_norms=True),
        {"layers": (1, 4, 6), "residual": True, "inverse": plain_inverse(500000.0), "window": 5},
    ),
    "a narrower drafter with its own embedding, turned as llama3": (
        speculators(hidden_size=32, rope_theta=10000.0, rope_scaling=LLAMA3, max_position_embeddings=512)
        | {"target_hidden_size": HIDDEN},
        tensors("layers.0.", hidden=32) | drawn_embedding(32),
        {"layers": (1, 4, 6), "residual": True, "inverse": llama3_inverse(10000.0)},
    ),
}


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_a_published_drafter_guesses_as_the_published_network(case, model, tmp_path):
    """Along TEXT, three levels deep, round after round with paths of 2 and 0 nodes; tokens outside its vocabulary are ruled out."""
    config, found, description = CASES[case]
    write(tmp_path / "Any-Name", config, found)
    pair = pair_of(tmp_path, model)
    assert list(pair.learned) == ["eagle"] and isinstance(pair.net("eagle"), Eagle3)
    drafter = DRAFTERS["eagle"](pair, 64)
    assert drafter.reads_features == description["layers"]
    target, root = Target(pair.target, 64, drafter.reads_features), 7
    drafter.begin(TEXT[: root + 1], target.prefill(TEXT[:root]))
    ids = torch.arange(len(found["lm_head.weight"])) + found.get("d2t", 0)
    prefix = "layers.0." if "speculators_model_type" in config else "midlayer."
    for accepted in (2, 0, 1):
        tree = DraftTree.rooted(TEXT[root])
        for token in TEXT[root + 1 : root + 3]:
            tree.add(len(tree) - 1, token, 1.0, 1.0)
        guessed = torch.cat([drafter.log_q(tree, [level]) for level in range(3)])
        expected = reference(found, prefix, model, TEXT[: root + 3], levels=3, **description)
        assert torch.allclose(guessed[:, ids].exp(), expected.exp(), atol=1e-4, rtol=0), root
        assert torch.isfinite(guessed).sum() == 3 * len(ids)
        _, features = target.verify(tree)
        path = list(range(1, accepted + 1))
        target.commit(path)
        drafter.commit(tree, path, TEXT[root + accepted + 1], features)
        root += accepted + 1


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("case", ["safeailab", "qwen3 with a window"])
def test_trees_of_a_published_drafter_write_plain_decodings_tokens(case, temperature, model, tmp_path):
    config, found, _ = CASES[case]
    write(tmp_path / "published", config, found)
    systems = ("vanilla", "eagle", "auto", "eagle/chain/speculative")
    race = Race(
        pair_of(tmp_path, model), Settings("Story: Once", systems, temperature=temperature, seed=5, max_new_tokens=24)
    )
    list(race.run())
    base, eagle, auto, chain = (lane.trace.tokens for lane in race.lanes)
    assert base == eagle == auto and (temperature > 0 or chain == base)
    assert max(len(step.tokens) for step in race.lanes[1].trace.steps) > 3


# ---- refusals


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({**SPECULATORS, "speculators_model_type": "mlp"}, "of the type 'mlp'. Only eagle3 is read"),
        ({**SPECULATORS, "transformer_layer_config": None}, "lacks transformer_layer_config"),
        ({**SPECULATORS, "norm_before_residual": None}, "does not say norm_before_residual"),
        ({**SPECULATORS, "norm_before_fc": True}, "was trained with norm_before_fc"),
        (
            {**SPECULATORS, "eagle_aux_hidden_state_layer_ids": [1, 4, 8]},
            r"between 1 and 7 for this target, got \[1, 4, 8\]",
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
        ({**SAFEAILAB, "hidden_size": "64"}, "hidden_size as a whole number, got '64'"),
        ({**SAFEAILAB, "num_hidden_layers": 2}, "has 2 layers"),
        ({**SAFEAILAB, "model_type": "mamba"}, "of the type 'mamba'"),
        ({**SAFEAILAB, "hidden_act": "gelu"}, "an MLP with 'gelu'"),
        ({**SAFEAILAB, "layer_types": ["chunked_attention"]}, "chunked_attention"),
        ({**SAFEAILAB, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "its rotary embedding is 'dynamic'"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused_before_weights_are_read(config, sentence, model, tmp_path):
    write(tmp_path / "drafter", config, {})
    with pytest.raises(ValueError, match=sentence):
        load_nets(tmp_path, model)


def test_a_target_of_few_layers_is_refused_where_the_config_names_none(tmp_path):
    write(tmp_path / "drafter", SAFEAILAB, {})
    with pytest.raises(ValueError, match="a target of at least 7, and this one has 2"):
        load_nets(tmp_path, tiny_llama(0))


def changed(**tensors_by_name) -> dict[str, torch.Tensor]:
    found = {**tensors("midlayer."), **{name.replace("__", "."): each for name, each in tensors_by_name.items()}}
    return {name: each for name, each in found.items() if each is not None}


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (changed(fc__bias=torch.zeros(HIDDEN)), r"holds the tensor fc\.bias, which this format does not have"),
        (tensors("layers.0."), r"holds the tensor layers\.0\.\S+, which this format does not have"),
        (changed(norm__weight=None), r"lacks the tensor norm\.weight"),
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
    nets = load_nets(tmp_path, model)
    with pytest.raises(ValueError, match=sentence):
        nets["eagle"]


def test_pickled_weights_are_refused_with_the_command_that_converts_them(model, tmp_path):
    write(tmp_path / "drafter", SAFEAILAB, {})
    (tmp_path / "drafter" / "model.safetensors").rename(tmp_path / "drafter" / "pytorch_model.bin")
    nets = load_nets(tmp_path, model)
    with pytest.raises(ValueError, match=r"pickled weights \(pytorch_model\.bin\).*python -m engine convert"):
        nets["eagle"]
    (tmp_path / "drafter" / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match="holds no safetensors file"):
        nets["eagle"]


def test_a_file_that_is_no_safetensors_is_refused(model, tmp_path):
    write(tmp_path / "drafter", SAFEAILAB, {})
    (tmp_path / "drafter" / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        load_nets(tmp_path, model)["eagle"]


def test_two_drafters_of_one_name_are_refused(model, tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, SAFEAILAB, {})
    with pytest.raises(ValueError, match=r"one and .*two both hold a drafter eagle\. Keep one of them"):
        load_nets(tmp_path, model)
