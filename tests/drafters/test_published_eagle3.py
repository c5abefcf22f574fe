"""EAGLE-3 drafters as others publish them: random checkpoints in both forms, beside a plain computation of the published network.

The reference below is written from the formats' description. Probabilities are compared at 1e-4, losslessness is token equality.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from engine.drafters import DRAFTERS
from engine.drafters.on_device.layers import EagleOnDevice
from engine.forward.runner import Runner
from engine.nets import open_lazy_nets
from engine.nets.eagle import Eagle
from engine.race import Race, Settings
from engine.target import Target
from engine.tree import DraftTree
from helpers.learned import TEXT
from helpers.pairs import tiny_llama, tiny_pair
from helpers.published.eagle3 import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    P_EAGLE,
    SAFEAILAB,
    SPECULATORS,
    VOCAB,
    tensors,
)
from helpers.published.files import write

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.fixture(scope="module")
def model():
    return tiny_llama(0, layers=LAYERS)


def pair_of(folder, model):
    return replace(tiny_pair(), target=Runner(model), learned=open_lazy_nets(folder, model))


# ---- the published network, plainly


def rms(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def turned(x: torch.Tensor, positions: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """`x [heads, N, head_dim]` turned by its positions, halves against each other."""
    angles = positions[:, None] * torch.cat([inverse, inverse])
    left, right = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-right, left], -1) * angles.sin()


def reference(
    found, prefix, model, text, layers, levels, *, residual, inverse, window=10**9, fed_back_normed=False, mask=None
) -> torch.Tensor:
    """Log-probabilities `[levels, own]` of guessing along `text`, whose last `levels` - 1 tokens are drafted ones.

    Entry t holds token t + 1 and the feature of token t; drafted tokens take the output of the entry before in place of a feature.
    With a `mask` token, that token and a learned feature take the place of all drafted ones.
    """
    w = {name.removeprefix(prefix): each.float() for name, each in found.items()}
    read = len(text) - levels  # tokens whose features the target has given: all before the root
    hidden = model(torch.tensor([text[:read]]), output_hidden_states=True).hidden_states
    taps = [hidden[k][0] for k in layers]
    if mask is not None:
        text = text[: read + 1] + [mask] * (levels - 1)
        rows = zip(taps, w["mask_hidden"].view(len(taps), 1, -1), strict=True)
        taps = [torch.cat([tap, row.expand(levels - 1, -1)]) for tap, row in rows]
    if "fc_norm.0.weight" in w:
        taps = [rms(each, w[f"fc_norm.{number}.weight"]) for number, each in enumerate(taps)]
    fused = torch.cat(taps, -1)
    if "input_norm.weight" in w:
        fused = rms(fused, w["input_norm.weight"])
    fused = fused @ w["fc.weight"].T
    features, masked = list(fused[:read]), list(fused[read:])
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
        following = rms(out, w["norm.weight"]) if fed_back_normed else out
        features.append(masked.pop(0) if masked else following)
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


MASKED = {"mask_hidden": (1, 1, 3 * HIDDEN)}
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
    "one norm before fc": (
        SPECULATORS | {"norm_before_fc": True, "fc_norm": False},
        tensors("layers.0.", extra={"input_norm.weight": (3 * HIDDEN,)}),
        {"layers": (1, 4, 6), "residual": True, "inverse": plain_inverse(500000.0)},
    ),
    "a norm for each layer read, and the normed output fed back": (
        SPECULATORS | {"fc_norm": True, "norm_output": True, "norm_before_residual": False},
        tensors("layers.0.", extra={f"fc_norm.{tap}.weight": (HIDDEN,) for tap in range(3)}),
        {"layers": (1, 4, 6), "residual": False, "inverse": plain_inverse(500000.0), "fed_back_normed": True},
    ),
    "safeailab with flags in eagle_config": (
        SAFEAILAB | {"eagle_config": {"fc_norm": True}},
        tensors("midlayer.", extra={f"fc_norm.{tap}.weight": (HIDDEN,) for tap in range(3)}),
        {"layers": (2, 4, 5), "residual": False, "inverse": plain_inverse(10000.0)},
    ),
    "P-EAGLE": (
        P_EAGLE | {"fc_norm": True},
        tensors("layers.0.", extra={f"fc_norm.{tap}.weight": (HIDDEN,) for tap in range(3)} | MASKED),
        {"layers": (1, 4, 6), "residual": True, "inverse": plain_inverse(500000.0), "mask": P_EAGLE["mask_token_id"]},
    ),
}


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_a_published_drafter_guesses_as_the_published_network(case, model, tmp_path):
    """Along TEXT, three levels deep, round after round with paths of 2 and 0 nodes; tokens outside its vocabulary are ruled out."""
    config, found, description = CASES[case]
    write(tmp_path / "Any-Name", config, found)
    pair = pair_of(tmp_path, model)
    assert list(pair.learned) == ["eagle"] and isinstance(pair.net("eagle"), Eagle) and pair.net("eagle").form
    drafter = DRAFTERS["eagle"](pair, 64)
    assert drafter.reads_features == description["layers"]
    target, root = Target(pair.target, 64, drafter.reads_features), 7
    drafter.begin(TEXT[: root + 1], target.prefill_and_return_features(TEXT[:root]))
    ids = torch.arange(len(found["lm_head.weight"])) + found.get("d2t", 0)
    prefix = "layers.0." if "speculators_model_type" in config else "midlayer."
    for accepted in (2, 0, 1):
        tree = DraftTree.from_root_token(TEXT[root])
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


def test_p_eagle_answers_its_levels_with_one_forward_a_round_and_no_deeper_one(model, tmp_path):
    config, found, _ = CASES["P-EAGLE"]
    write(tmp_path / "any", config, found)
    pair = pair_of(tmp_path, model)
    drafter = DRAFTERS["eagle"](pair, 64)
    drafter.begin(TEXT[:8], Target(pair.target, 64, drafter.reads_features).prefill_and_return_features(TEXT[:7]))
    tree = DraftTree.from_root_token(TEXT[7])
    for token in (3, 4, 5):
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    levels = [drafter.log_q(tree, [node]) for node in range(4)]
    assert [each is None for each in levels] == [False, False, False, True] and drafter.draft_forward_count == 1
    assert EagleOnDevice.find_device_net(pair, "eagle") is None


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("case", ["safeailab", "qwen3 with a window", "P-EAGLE"])
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
