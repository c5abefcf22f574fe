"""A larger Llama that computes what a small one computes (Net2Net, arXiv 1511.05641; bert2BERT, 2110.07143). Knows weights, no files.

Every hidden number stands `copies` times, and so does every head. A target that grew writes the small one's text, and a drafter of the
small one guesses it as before. Only what a forward costs differs, so it shows what a target's size does to a race. Training can go on
from it too: then a weight is shared out among the copies of its input at random, so that no two copies learn alike.
"""

from copy import deepcopy

import torch
from transformers import LlamaForCausalLM, PreTrainedConfig, PreTrainedModel

from engine.models.pairs import Growth
from engine.sampling import seeded

UNEVEN = 0.5  # spread of a weight's shares in training, beside their mean


def shared_out(weight: torch.Tensor, copies: int, uneven: float, draws: torch.Generator) -> torch.Tensor:
    """`[out, in]` to `[out, copies * in]`: on an input that stands `copies` times, the new weight gives what `weight` gives."""
    shares = torch.full((copies, *weight.shape), 1 / copies)
    if uneven:
        shares += uneven * torch.empty_like(shares).normal_(generator=draws) / copies
        shares += (1 - shares.sum(0)) / copies
    return (shares * weight).permute(1, 0, 2).reshape(weight.shape[0], -1)


def grow(small: LlamaForCausalLM, large: LlamaForCausalLM, uneven: float = 0.0) -> None:
    """Write into `large` what computes the same as `small`: in float32 their logits differ by rounding only.

    Raises `ValueError` unless `large` has as many layers, head numbers and tokens as `small`, a hidden size that is a multiple, and an
    MLP at least as wide.
    """
    few, many = small.config, large.config
    copies, rest = divmod(many.hidden_size, few.hidden_size)
    alike = all(getattr(few, name) == getattr(many, name) for name in ("num_hidden_layers", "head_dim", "vocab_size"))
    if rest or not alike or many.intermediate_size < few.intermediate_size or not few.tie_word_embeddings:
        raise ValueError(
            f"Hidden size {few.hidden_size}, {few.num_hidden_layers} layers and MLP {few.intermediate_size} can not grow to "
            f"{many.hidden_size}, {many.num_hidden_layers} layers and MLP {many.intermediate_size}. A multiple of the hidden "
            "size, as many layers and an MLP at least as wide would do."
        )
    draws = seeded("shares of grown weights")

    def shared(weight: torch.Tensor) -> torch.Tensor:
        return shared_out(weight, copies, uneven, draws)

    # Which neuron of the small MLP each neuron of the large one copies, and how many copies it has
    source = torch.arange(many.intermediate_size) % few.intermediate_size
    numbers = torch.bincount(source, minlength=few.intermediate_size)
    with torch.no_grad():
        large.model.embed_tokens.weight.copy_(small.model.embed_tokens.weight.repeat(1, copies))
        # The tied head adds up all copies
        large.model.norm.weight.copy_(small.model.norm.weight.repeat(copies) / copies)
        for old, new in zip(small.model.layers, large.model.layers, strict=True):
            for name in ("input_layernorm", "post_attention_layernorm"):
                getattr(new, name).weight.copy_(getattr(old, name).weight.repeat(copies))
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                wider = shared(getattr(old.self_attn, name).weight).repeat(copies, 1)
                getattr(new.self_attn, name).weight.copy_(wider)
            for name in ("gate_proj", "up_proj"):
                getattr(new.mlp, name).weight.copy_(shared(getattr(old.mlp, name).weight)[source])
            down = old.mlp.down_proj.weight[:, source] / numbers[source]
            new.mlp.down_proj.weight.copy_(down.repeat(copies, 1))


def grown_config(small: PreTrainedConfig, growth: Growth) -> PreTrainedConfig:
    """The sizes of the target that grows from one of the sizes `small`."""
    config = deepcopy(small)
    for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"):
        setattr(config, name, growth.copies * getattr(small, name))
    config.intermediate_size = growth.mlp
    return config


def grown(small: PreTrainedModel, growth: Growth) -> LlamaForCausalLM:
    """The float32 target that grew from `small`. Its weights are rounded to float16, in which checkpoints are stored."""
    with torch.device("meta"):
        large = LlamaForCausalLM(grown_config(small.config, growth))
    large = large.to_empty(device="cpu")
    large.tie_weights()
    large.model.rotary_emb = type(small.model.rotary_emb)(large.config)  # its frequencies are no weights
    grow(small, large)
    large.generation_config = small.generation_config
    return large.half().float().eval().requires_grad_(False)
