"""Speculative sampling for chains (Leviathan et al. 2023; Chen et al. 2023): accept with min(1, p/q), else draw from the residual."""

import torch

from engine.acceptance.walk import MultiRoundSampling


class ChainSpeculativeSampling(MultiRoundSampling):
    title = "speculative sampling"
    about = "Keeps a guess with probability min(1, p/q), else draws from the rest of p."
    source = "Leviathan et al. 2023, Chen et al. 2023"
    required_proposal_mode = "one draw"

    def distribution_of_next_draw(self, draw_law: torch.Tensor, drawn_token: int) -> None:
        return None
