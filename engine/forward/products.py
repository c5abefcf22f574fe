"""Products: one matrix times a few rows, laid out for the machine.

A CPU spends most of a small model's forward on them. `pack` is exact and serves targets and drafters alike.
"""

import torch
import torch.nn.functional as F


def pack(weight: torch.Tensor) -> torch.Tensor:
    """The weight `[out, in]` in oneDNN's own layout.

    It stays as it is where this torch or this processor has no such layout for its type.
    """
    try:
        if weight.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return weight.detach().contiguous()
        return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
    except (AttributeError, RuntimeError):
        return weight.detach().contiguous()


def packed_product(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`x [..., in]` times a transposed matrix that `pack` laid out, plus the bias `[out]`: `[..., out]`."""
    if not packed.is_mkldnn:
        return F.linear(x, packed, bias)
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
