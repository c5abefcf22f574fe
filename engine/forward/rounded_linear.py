"""Linear layers in eight bits, in PyTorch: the reference of `engine.kernels.rounded`, and what any model's layers become on a CPU.

Knows layers; knows no model. tests/kernels/test_rounded.py holds the compiled products equal, bit for bit.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.forward.spread import is_spread
from engine.kernels.rounded import GROUP, LEAST, STEPS, hadamard_rotate_groups, rotate_and_round_matrix

LARGE_HEAD = 2**15  # outputs; few of so many logits matter


def rotate_and_round_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes `[..., groups, GROUP]`, whole numbers in float32, and steps `[..., groups]` of the rotated rows `x [..., in]`."""
    groups = hadamard_rotate_groups(x.float())
    most, steps = groups.abs().amax(-1), torch.tensor(float(STEPS))
    # A number divided by a tensor would be multiplied by a reciprocal
    factors = torch.where(most > LEAST, torch.div(steps, most), 0)
    return (groups * factors[..., None]).round(), torch.div(most, steps)


class EightBitLinear(nn.Module):
    """A linear layer whose matrix `[out, in]` is kept in eight bits, as `rotate_and_round_matrix` makes it, with a bias `[out]` or
    None.
    """

    weight: nn.Parameter
    scale: Tensor

    def __init__(self, matrix: Tensor, bias: Tensor | None = None):
        super().__init__()
        self.out_features, self.in_features = matrix.shape
        codes, scale = empty_codes_like(matrix) if matrix.is_meta else rotate_and_round_matrix(matrix)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias, requires_grad=False))
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        """`x [..., in]` times the transposed matrix, plus the bias: `[..., out]` in the type of `x`."""
        codes, steps = rotate_and_round_rows(x)
        weights, total = self.weight.unflatten(1, (-1, GROUP)), x.new_zeros(self.out_features, dtype=torch.float32)
        for group, scale in enumerate(self.scale.unbind(1)):
            whole = codes[..., group, :] @ weights[:, group].float().T  # exact: no sum reaches 2 ** 24
            total = total + whole * (scale * steps[..., group, None])
        return (total if self.bias is None else total + self.bias).to(x.dtype)


def empty_codes_like(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """What `rotate_and_round_matrix` makes, without numbers: rounding a matrix without memory would take as long as any."""
    groups = -(-matrix.shape[1] // GROUP)
    return matrix.new_empty(len(matrix), groups * GROUP, dtype=torch.int8), matrix.new_empty(
        len(matrix), groups
    ).float()


def has_rounded_linear(model: PreTrainedModel) -> bool:
    """Whether the model has a `EightBitLinear`."""
    return any(isinstance(module, EightBitLinear) for module in model.modules())


def has_eight_bit_head(model: PreTrainedModel) -> bool:
    """Whether the compiled forward rounds the model's head as well: its layers are in eight bits, and the head is a `LARGE_HEAD`."""
    return has_rounded_linear(model) and model.lm_head.out_features >= LARGE_HEAD


def has_int8_matrices_on_cpu(model: PreTrainedModel) -> bool:
    """Whether the model is on a CPU, in float32 but for the matrices of `EightBitLinear`, and not spread."""
    dtypes = {parameter.dtype for parameter in model.parameters()}
    whole = model.device.type == "cpu" and not is_spread(model)
    return whole and has_rounded_linear(model) and dtypes == {torch.float32, torch.int8}
