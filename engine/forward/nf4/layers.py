"""FourBitLayers: linear layers of bitsandbytes in NF4 that multiply few rows at once by our kernel. Knows no model's family."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from engine.forward.nf4.product import BLOCK, MOST

HALVES = torch.float16, torch.bfloat16


class Nf4FewRowsForward:
    """The forward of a `bitsandbytes.nn.Linear4bit` whose weights are NF4 on a GPU: few rows at once, else as bitsandbytes has it."""

    def __init__(self, linear: Any):
        from engine.forward.nf4.product_triton import multiply_nf4  # imported here, because it needs Triton

        self.linear, self.whole, self.product = linear, linear.forward, multiply_nf4

    def __call__(self, x: Tensor) -> Tensor:
        flat, weight = x.flatten(0, -2), self.linear.weight
        if len(flat) > MOST or x.dtype not in HALVES or torch.is_grad_enabled():
            return self.whole(x)
        state = weight.quant_state
        found = self.product(flat.contiguous(), weight.data, state.absmax, state.code, self.linear.out_features)
        if self.linear.bias is not None:
            found = found + self.linear.bias.to(found.dtype)
        return found.view(*x.shape[:-1], -1)


def install_nf4_few_rows_kernel(model: torch.nn.Module) -> int:
    """Let linear layers of the model in NF4, on a GPU, multiply few rows by the kernel. Returns how many do: none without Triton."""
    found = 0
    if find_spec("triton") is None:
        return found
    for module in model.modules():
        state: Any = getattr(getattr(module, "weight", None), "quant_state", None)
        plain = state is not None and state.quant_type == "nf4" and state.blocksize == BLOCK and not state.nested
        if plain and module.weight.is_cuda and state.shape[1] % BLOCK == 0:
            module.forward, found = Nf4FewRowsForward(module), found + 1
    return found
