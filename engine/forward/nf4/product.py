"""FourBit: products with bitsandbytes' NF4 weights. Two numbers stand in a byte, and every `BLOCK` numbers share a factor.

Source: Dettmers et al. 2023, QLoRA, section 3. `engine.forward.nf4.product_triton` reads the packed weights once for all rows.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64  # numbers that share a factor
MOST = 64  # rows that the kernel multiplies at once
# The sixteen values of NF4, by number: quantiles of a normal distribution, scaled to -1 ... 1
VALUES = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334),
    *(-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


def dequantise_nf4(packed: Tensor, factors: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """The weights `shape` [out, in] in `dtype`, from bytes `packed [out * in / 2, 1]` and float32 `factors [out * in / BLOCK]`.

    Of a byte the high half comes first.
    """
    numbers = torch.stack([packed >> 4, packed & 15], -1).flatten().int()
    values = torch.tensor(VALUES, device=packed.device)[numbers].view(-1, BLOCK) * factors[:, None]
    return values.to(dtype).view(shape)


def multiply_nf4(x: Tensor, packed: Tensor, factors: Tensor, outputs: int) -> Tensor:
    """`x [n, in]` times the transposed weights `[outputs, in]`, as in `dequantise_nf4`: `[n, outputs]` in the type of x."""
    return F.linear(x, dequantise_nf4(packed, factors, (outputs, x.shape[1]), x.dtype))
