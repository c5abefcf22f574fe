"""FourBit: products with bitsandbytes' NF4 weights. Two numbers stand in a byte, and every `BLOCK` numbers share a factor.

Source: Dettmers et al. 2023, QLoRA, section 3. `engine.forward.four_bit_gpu` reads the packed weights once for all rows.
"""

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64  # numbers that share a factor
MOST = 64  # rows that the kernel multiplies at once
HALVES = torch.float16, torch.bfloat16
# The sixteen values of NF4, by number: quantiles of a normal distribution, scaled to -1 ... 1
VALUES = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334),
    *(-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


def widened(packed: Tensor, factors: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """The weights `shape` [out, in] in `dtype`, from bytes `packed [out * in / 2, 1]` and float32 `factors [out * in / BLOCK]`.

    Of a byte the high half comes first.
    """
    numbers = torch.stack([packed >> 4, packed & 15], -1).flatten().int()
    values = torch.tensor(VALUES, device=packed.device)[numbers].view(-1, BLOCK) * factors[:, None]
    return values.to(dtype).view(shape)


def product(x: Tensor, packed: Tensor, factors: Tensor, outputs: int) -> Tensor:
    """`x [n, in]` times the transposed weights `[outputs, in]`, as in `widened`: `[n, outputs]` in the type of x."""
    return F.linear(x, widened(packed, factors, (outputs, x.shape[1]), x.dtype))


class FewRows:
    """The forward of a `bitsandbytes.nn.Linear4bit` whose weights are NF4 on a GPU: few rows at once, else as bitsandbytes has it."""

    def __init__(self, linear: Any):
        from engine.forward.four_bit_triton import product  # imported here, because it needs Triton

        self.linear, self.whole, self.product = linear, linear.forward, product

    def __call__(self, x: Tensor) -> Tensor:
        flat, weight = x.flatten(0, -2), self.linear.weight
        if len(flat) > MOST or x.dtype not in HALVES or torch.is_grad_enabled():
            return self.whole(x)
        state = weight.quant_state
        found = self.product(flat.contiguous(), weight.data, state.absmax, state.code, self.linear.out_features)
        if self.linear.bias is not None:
            found = found + self.linear.bias.to(found.dtype)
        return found.view(*x.shape[:-1], -1)


def take_few_rows(model: torch.nn.Module) -> int:
    """Let linear layers of the model in NF4, on a GPU, multiply few rows by the kernel. Returns how many do: none without Triton."""
    found = 0
    if find_spec("triton") is None:
        return found
    for module in model.modules():
        state = getattr(getattr(module, "weight", None), "quant_state", None)
        plain = state is not None and state.quant_type == "nf4" and state.blocksize == BLOCK and not state.nested
        if plain and module.weight.is_cuda and state.shape[1] % BLOCK == 0:
            module.forward, found = FewRows(module), found + 1
    return found
