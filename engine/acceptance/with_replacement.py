"""Multi-round rule for independent draws: every draw of a node comes from the same q (SpecInfer, Miao et al. 2024)."""

import torch

from engine.acceptance.walk import MultiRoundSampling


class MultiRoundWithReplacement(MultiRoundSampling):
    title = "draws with replacement"
    about = "Tries several draws from one q in turn, each against what is left of p."
    source = "SpecInfer (Miao et al. 2024)"
    required_proposal_mode = "with replacement"

    def distribution_of_next_draw(self, draw_law: torch.Tensor, drawn_token: int) -> torch.Tensor:
        return draw_law
