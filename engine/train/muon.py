"""Muon: momentum, orthogonalised. For weight matrices of hidden layers (Jordan et al. 2024; scaling of Liu et al. 2025).

`torch.optim.Muon` computes the same in bfloat16, which a CPU without bfloat16 units emulates three times slower than float32.
Here the arithmetic stays in the parameters' dtype, and matrices of one shape are orthogonalised in one batch.
"""

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalised(matrices: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """`[n, rows, cols]` with all singular values pushed towards 1 by Newton-Schulz steps."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr: float, momentum: float = 0.95, weight_decay: float = 0.1):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # takes no closure: the gradients exist already
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[torch.Tensor]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(tuple(parameter.shape), []).append(parameter)
            for (rows, cols), parameters in by_shape.items():
                directions = []
                for parameter in parameters:
                    state = self.state[parameter]
                    if not state:
                        state["momentum"] = torch.zeros_like(parameter)
                    state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                    directions.append(parameter.grad.lerp(state["momentum"], group["momentum"]))  # type: ignore[union-attr]  # Nesterov
                updates = orthogonalised(torch.stack(directions))
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(update, alpha=-group["lr"] * 0.2 * max(rows, cols) ** 0.5)
