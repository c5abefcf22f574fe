"""Multi-round rule for draws without replacement (Sequoia, Chen et al. 2024; DySpec, Algorithm 3).

Algorithm 3 prints N(0, 1) for its random number; the rule is exact with U(0, 1), which is used here.
"""

import torch

from engine.acceptance.walk import MultiRound


class WithoutReplacement(MultiRound):
    title = "draws without replacement"
    about = "Tries draws in turn; a token that failed is not drawn again."
    source = "Sequoia (Chen et al. 2024); DySpec, Algorithm 3"
    proposal = "without replacement"

    def next_law(self, d: torch.Tensor, token: int) -> torch.Tensor | None:
        d = d.clone()
        d[token] = 0
        total = d.sum()
        return d / total if total > 0 else None
