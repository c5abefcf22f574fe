"""Packed products, a matrix times a few rows, and lighter modules for any model that runs through transformers on a CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from engine.forward.llama_layer import attend_with_optional_cache, is_single_bfloat16_row_on_cpu
from engine.forward.spread import is_spread

DTYPES = (torch.float32, torch.bfloat16)  # types that oneDNN multiplies


def is_unquantised_on_cpu(model: PreTrainedModel) -> bool:
    """Whether the model is on a CPU, all in one of `DTYPES`, not quantised and not spread."""
    dtypes = {parameter.dtype for parameter in model.parameters()}
    plain = getattr(model, "hf_quantizer", None) is None and not is_spread(model)
    return model.device.type == "cpu" and len(dtypes) == 1 and dtypes <= set(DTYPES) and plain


def pack_weight_for_onednn(weight: Tensor) -> Tensor:
    """The weight `[out, in]` in oneDNN's own layout, or as it is where this torch or this processor has none for its type."""
    try:
        if weight.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return weight.detach().contiguous()
        return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
    except (AttributeError, RuntimeError):
        return weight.detach().contiguous()


def multiply_packed_weight(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """`x [..., in]` times a transposed matrix that `pack_weight_for_onednn` laid out, plus the bias `[out]`: `[..., out]`."""
    if not packed.is_mkldnn:
        return F.linear(x, packed, bias)
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


class PackedLinear(nn.Linear):
    """A linear layer that multiplies by a packed copy of its weight, unless gradients are wanted."""

    packed: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if torch.is_grad_enabled() else multiply_packed_weight(x, self.packed, self.bias)


def folded_sdpa(module, query, key, value, attention_mask, **kwargs):
    """transformers' sdpa attention, but `engine.forward.llama_layer.attend_with_optional_cache` where that is quicker.

    So it is under a mask of `groups * N` rows, the forward's N rows once for every query head of a key head, and for a single query
    of bfloat16 on a CPU.
    """
    groups, count = query.shape[1] // key.shape[1], query.shape[2]
    folded = groups > 1 and attention_mask is not None and attention_mask.shape[2] == groups * count
    if not folded and (groups > 1 or not is_single_bfloat16_row_on_cpu(query)):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    attended = attend_with_optional_cache(query, key, value, attention_mask, scale=kwargs.get("scaling"))
    return attended.transpose(1, 2).contiguous(), None


AttentionInterface.register("folded_sdpa", folded_sdpa)
AttentionMaskInterface.register("folded_sdpa", sdpa_mask)


def optimise_cpu_linear_and_attention(model: PreTrainedModel) -> None:
    """Give a model that runs through transformers on a CPU packed linear layers and, in bfloat16, `folded_sdpa`.

    Its logits and weights stay what they are. Call it again after weights have changed. Other models stay as they are.
    """
    if not is_unquantised_on_cpu(model):
        return
    for module in model.modules():
        if type(module) in (nn.Linear, PackedLinear):
            module.__class__, module.packed = PackedLinear, pack_weight_for_onednn(module.weight)
    if model.dtype == torch.bfloat16 and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation("folded_sdpa")
