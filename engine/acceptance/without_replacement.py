"""Multi-round rule for draws without replacement (Sequoia, Chen et al. 2024; DySpec, Algorithm 3).

Algorithm 3 prints N(0, 1) for its random number; the rule is exact with U(0, 1), which is used here.
"""

import torch

from engine.acceptance.walk import MultiRoundSampling


class MultiRoundWithoutReplacement(MultiRoundSampling):
    title = "draws without replacement"
    about = "Tries draws in turn; a token that failed is not drawn again."
    source = "Sequoia (Chen et al. 2024); DySpec, Algorithm 3"
    required_proposal_mode = "without replacement"

    def distribution_of_next_draw(self, draw_law: torch.Tensor, drawn_token: int) -> torch.Tensor | None:
        draw_law = draw_law.clone()
        draw_law[drawn_token] = 0
        total = draw_law.sum()
        return draw_law / total if total > 0 else None
