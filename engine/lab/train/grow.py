"""A larger Llama that computes what a trained small one computes, to train on from (Net2Net, arXiv 1511.05641; bert2BERT, 2110.07143).

Every hidden number stands `copies` times, and so does every head. A weight is shared out among the copies of its input at random, so
that their sum stays while no two copies learn alike. A drafter of the small model is carried over too. Knows weights, no texts.
"""

import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from engine.nets import Net


def shared_out(weight: torch.Tensor, copies: int, generator: torch.Generator) -> torch.Tensor:
    """`[out, in]` to `[out, copies * in]`: on an input that stands `copies` times, the new weight gives what `weight` gives."""
    shares = 1 / copies + 0.5 * torch.randn(copies, *weight.shape, generator=generator) / copies
    shares += (1 - shares.sum(0)) / copies
    return (shares * weight).permute(1, 0, 2).reshape(weight.shape[0], -1)


def grow(small: LlamaForCausalLM, large: LlamaForCausalLM, seed: int = 0) -> None:
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
    generator = torch.Generator().manual_seed(seed)

    def wider(weight: torch.Tensor) -> torch.Tensor:
        return shared_out(weight, copies, generator).repeat(copies, 1)

    # Which neuron of the small MLP each neuron of the large one copies, and how many copies it has
    source = torch.arange(many.intermediate_size) % few.intermediate_size
    source = source[torch.randperm(len(source), generator=generator)]
    numbers = torch.bincount(source, minlength=few.intermediate_size)
    with torch.no_grad():
        large.model.embed_tokens.weight.copy_(small.model.embed_tokens.weight.repeat(1, copies))
        # The tied head adds up all copies
        large.model.norm.weight.copy_(small.model.norm.weight.repeat(copies) / copies)
        for old, new in zip(small.model.layers, large.model.layers, strict=True):
            for name in ("input_layernorm", "post_attention_layernorm"):
                getattr(new, name).weight.copy_(getattr(old, name).weight.repeat(copies))
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                getattr(new.self_attn, name).weight.copy_(wider(getattr(old.self_attn, name).weight))
            for name in ("gate_proj", "up_proj"):
                getattr(new.mlp, name).weight.copy_(
                    shared_out(getattr(old.mlp, name).weight, copies, generator)[source]
                )
            down = old.mlp.down_proj.weight[:, source] / numbers[source]
            new.mlp.down_proj.weight.copy_(down.repeat(copies, 1))


def carried_over(stored: dict[str, torch.Tensor], net: Net, small: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights for `net` that make it guess as a drafter of `small` does, whose weights are `stored`.

    The net's target grew from `small`, and the net is as wide as the drafter. A matrix that reads features reads every copy of a number
    with an equal share. Tables that the drafter shares with `small` become the net's own.
    """
    hidden, weights = small.config.hidden_size, dict[str, torch.Tensor]()
    tables = {
        "embedding": small.get_input_embeddings().weight.float(),
        "head": small.get_output_embeddings().weight.float(),
        "narrow.weight": torch.eye(hidden),  # Medusa's heads read the feature itself
    }
    for name, own in net.state_dict().items():
        weight = (stored[name] if name in stored else tables[name]).detach()
        weight = weight.float() if weight.is_floating_point() else weight
        if weight.shape != own.shape:
            copies = own.shape[1] // weight.shape[1]
            parts = weight.view(len(weight), -1, 1, hidden).expand(-1, -1, copies, -1)
            weight = (parts / copies).reshape(own.shape)
        weights[name] = weight
    return weights
