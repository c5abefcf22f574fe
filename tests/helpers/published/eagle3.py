"""EAGLE-3 in the form of SafeAILab and in that of speculators: configs and random weights."""

import torch

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
P_EAGLE = {
    **SPECULATORS,
    "speculators_model_type": "peagle",
    "mask_token_id": 250,
    "speculators_config": {"proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}]},
}


def tensors(
    prefix: str, own: int = OWN, hidden: int = HIDDEN, head_norms: bool = False, extra: dict | None = None
) -> dict[str, torch.Tensor]:
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
    found |= {name: random(*shape) for name, shape in (extra or {}).items()}
    if own < VOCAB:
        ids = torch.randperm(VOCAB, generator=draw)[:own].sort().values
        found["d2t"] = ids - torch.arange(own)
        found["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids, True)
    return found
