"""Products: one matrix times a few rows, laid out for the machine. Knows matrices; knows no model.

A CPU spends most of a small model's forward on them. `pack` is exact and serves targets and drafters alike. `Int8` rounds weights and
inputs to eight bits and serves drafters only: a drafter's precision costs acceptance, never losslessness.
"""

import warnings

import torch
import torch.nn.functional as F

ENGINES = ("x86", "fbgemm", "onednn", "qnnpack")  # torch's engines for eight-bit products, the fastest first


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


class Int8:
    """A weight `[out, in]` in eight bits, with one scale a row, and a bias `[out]` in float32. Inputs are rounded at every call.

    Raises `RuntimeError` when this torch or this processor multiplies no eight-bit matrices.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        weight = weight.detach().float().contiguous()
        able = torch.backends.quantized.supported_engines
        engine = next((each for each in ENGINES if each in able), None)
        if engine is None:
            raise RuntimeError(f"This torch multiplies no eight-bit matrices: it offers {', '.join(able)}.")
        torch.backends.quantized.engine = engine
        scale = weight.abs().amax(1).clamp(min=1e-12) / 127
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch is about to move these functions elsewhere
            quantised = torch.quantize_per_channel(
                weight, scale, torch.zeros(len(weight), dtype=torch.long), 0, torch.qint8
            )
        self.packed = torch.ops.quantized.linear_prepack(quantised, bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`x [..., N, in]` times the transposed matrix, plus the bias: `[..., N, out]` in float32."""
        return torch.ops.quantized.linear_dynamic(x, self.packed, True)
