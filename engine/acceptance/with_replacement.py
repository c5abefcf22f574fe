"""Multi-round rule for independent draws: every draw of a node comes from the same q (SpecInfer, Miao et al. 2024)."""

import torch

from engine.acceptance.walk import MultiRound


class WithReplacement(MultiRound):
    title = "draws with replacement"
    about = "Tries several draws from one q in turn, each against what is left of p."
    source = "SpecInfer (Miao et al. 2024)"
    proposal = "with replacement"

    def next_law(self, d: torch.Tensor, token: int) -> torch.Tensor:
        return d
