"""Targets that a drafter was not trained for: the small one turned, quantised or tuned since."""

from copy import deepcopy

import torch


def turned(model):
    """A target that computes the same with its hidden numbers in reverse order, as a rotated one does."""
    other = deepcopy(model)
    with torch.no_grad():
        other.model.embed_tokens.weight.copy_(model.model.embed_tokens.weight.flip(1))
        other.model.norm.weight.copy_(model.model.norm.weight.flip(0))
        for new, old in zip(other.model.layers, model.model.layers, strict=True):
            for name in ("input_layernorm", "post_attention_layernorm"):
                getattr(new, name).weight.copy_(getattr(old, name).weight.flip(0))
            for part, names in (("self_attn", ("q_proj", "k_proj", "v_proj")), ("mlp", ("gate_proj", "up_proj"))):
                for name in names:
                    getattr(getattr(new, part), name).weight.copy_(getattr(getattr(old, part), name).weight.flip(1))
            new.self_attn.o_proj.weight.copy_(old.self_attn.o_proj.weight.flip(0))
            new.mlp.down_proj.weight.copy_(old.mlp.down_proj.weight.flip(0))
    return other


def linear_layers(model):
    return [each for name, each in model.named_modules() if isinstance(each, torch.nn.Linear) and name != "lm_head"]


def quantised(model):
    """In two bits: a number of each row is 0, or plus or minus its largest. Three bits would leave the drafter 3.8 tokens a round."""
    other = deepcopy(model)
    with torch.no_grad():
        for each in linear_layers(other):
            largest = each.weight.abs().amax(1, keepdim=True)
            each.weight.copy_((each.weight / largest).round() * largest)
    return other


def tuned(model):
    """With a strong update of rank 8 merged into every matrix, the form in which most fine-tuning comes."""
    other, draws = deepcopy(model), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for each in linear_layers(other):
            high, wide = each.weight.shape
            update = torch.randn(high, 8, generator=draws) @ torch.randn(8, wide, generator=draws)
            each.weight.add_(1.5 * each.weight.norm() / update.norm() * update)
    return other
