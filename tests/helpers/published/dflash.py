"""A published block-diffusion drafter, plainly: a layer's config, random weights by the published names, and the network.

The network is written from the format's description and keeps no cache.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F

from engine.forward.runner import Runner
from engine.models.pairs import LoadedPair
from engine.nets import open_lazy_nets
from engine.race import Race, Settings
from helpers.pairs import tiny_pair

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCAB, OWN, LAYERS, BLOCK, MASK = 64, 4, 2, 32, 96, 256, 120, 8, 5, 250
LAYER = {
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "num_hidden_layers": 2,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "attention_bias": False,
    "rope_theta": 500000.0,
    "layer_types": ["full_attention", "full_attention"],
}


def tensors(taps: int = 3, layers: int = 2, bias: bool = False, whole: bool = False) -> dict[str, torch.Tensor]:
    """Random weights by the published names; with `whole`, an embedding, a head and a vocabulary of its own as well."""
    draw = torch.Generator().manual_seed(6)

    def random(*shape: int) -> torch.Tensor:
        return 1 + 0.3 * torch.randn(shape, generator=draw) if len(shape) == 1 else (
            torch.randn(shape, generator=draw) * 2 / shape[1] ** 0.5
        )  # fmt: skip

    found = {
        "fc.weight": random(HIDDEN, taps * HIDDEN),
        "hidden_norm.weight": random(HIDDEN),
        "norm.weight": random(HIDDEN),
    }
    shapes = {
        "input_layernorm.weight": (HIDDEN,),
        "post_attention_layernorm.weight": (HIDDEN,),
        "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        "self_attn.q_norm.weight": (HEAD_DIM,),
        "self_attn.k_norm.weight": (HEAD_DIM,),
        "mlp.gate_proj.weight": (MLP, HIDDEN),
        "mlp.up_proj.weight": (MLP, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, MLP),
    }
    if bias:
        shapes |= {f"self_attn.{name}_proj.bias": (shapes[f"self_attn.{name}_proj.weight"][0],) for name in "qkvo"}
    for layer in range(layers):
        found |= {f"layers.{layer}.{name}": random(*shape) for name, shape in shapes.items()}
    if whole:
        ids = torch.randperm(VOCAB, generator=draw)[:OWN].sort().values
        found |= {"embed_tokens.weight": random(VOCAB, HIDDEN), "lm_head.weight": random(OWN, HIDDEN)}
        found |= {"d2t": ids - torch.arange(OWN), "t2d": torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids, True)}
    return found


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def reference(
    w: dict[str, torch.Tensor],
    model,
    context: list[int],
    anchor: int,
    places: tuple[int, ...],
    seen_in: tuple[torch.Tensor | bool, torch.Tensor | bool] = (True, True),
) -> torch.Tensor:
    """Logits `[BLOCK, own]` of the anchor's slot and of those behind it. `places` index the target's hidden states.

    `seen_in` holds, for each layer, which of the context and the block `[BLOCK, context + BLOCK]` every slot sees.
    """
    hidden = model(torch.tensor([context]), output_hidden_states=True).hidden_states
    seen = rms(torch.cat([hidden[k][0] for k in places], -1) @ w["fc.weight"].T, w["hidden_norm.weight"])
    embedding = w.get("embed_tokens.weight", model.get_input_embeddings().weight)
    x = embedding[torch.tensor([anchor] + [MASK] * (BLOCK - 1))]
    frequencies = 500000.0 ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.arange(len(context) + BLOCK)[:, None] * torch.cat([frequencies, frequencies])

    def turned(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        left, right = heads.chunk(2, -1)
        return heads * angles.cos() + torch.cat([-right, left], -1) * angles.sin()

    for layer in range(2):

        def of(name: str, layer=layer) -> torch.Tensor:
            return w[f"layers.{layer}.{name}"]

        def heads(name: str, entering: torch.Tensor, of=of) -> torch.Tensor:
            out = entering @ of(f"self_attn.{name}_proj.weight").T
            if f"layers.0.self_attn.{name}_proj.bias" in w:
                out = out + of(f"self_attn.{name}_proj.bias")
            return out.view(len(entering), -1, HEAD_DIM).transpose(0, 1)

        entering = rms(x, of("input_layernorm.weight"))
        both = torch.cat([seen, entering])
        queries = turned(rms(heads("q", entering), of("self_attn.q_norm.weight")), angles[len(context) :])
        keys = turned(rms(heads("k", both), of("self_attn.k_norm.weight")), angles)
        keys, values = (each.repeat_interleave(HEADS // KV_HEADS, 0) for each in (keys, heads("v", both)))
        scores = queries @ keys.mT / HEAD_DIM**0.5
        weights = scores.where(torch.as_tensor(seen_in[layer]), -torch.inf).softmax(-1)
        attended = (weights @ values).transpose(0, 1).flatten(1) @ of("self_attn.o_proj.weight").T
        x = x + attended + w.get(f"layers.{layer}.self_attn.o_proj.bias", 0)
        inner = rms(x, of("post_attention_layernorm.weight"))
        inner = F.silu(inner @ of("mlp.gate_proj.weight").T) * (inner @ of("mlp.up_proj.weight").T)
        x = x + inner @ of("mlp.down_proj.weight").T
    head = w.get("lm_head.weight", model.get_output_embeddings().weight)
    return rms(x, w["norm.weight"]) @ head.T


# ---- pairs and races


def pair_of(folder, model) -> LoadedPair:
    """The tiny pair with this target, and with the drafters in the folder."""
    return replace(tiny_pair(), target=Runner(model), learned=open_lazy_nets(folder, model))


def race_keeps_the_text(pair: LoadedPair, drafter: str, policies: tuple[str, ...], temperature: float) -> None:
    """Trees of every policy write plain decoding's tokens, take one draft forward a round at most, and win some."""
    systems = ("vanilla", *(f"{drafter}/{policy}/token_match" for policy in policies))
    race = Race(pair, Settings("Story: Once", systems, temperature=temperature, seed=5, max_new_tokens=24))
    list(race.run())
    assert all(lane.trace.tokens == race.lanes[0].trace.tokens for lane in race.lanes)
    assert all(step.draft_forwards <= 1 for lane in race.lanes for step in lane.trace.steps)
    assert max(len(step.tokens) for step in race.lanes[1].trace.steps) > 3
