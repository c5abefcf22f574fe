"""K-SEQ (SpecTr, Sun et al. 2023): of k independent draws each is accepted with min(1, p / (rho q)), whatever became of the others.

Behind an accepted token, the draws are those of the chains that share it.
"""

import torch

from engine.acceptance.walk import RootDownWalk
from engine.kernels.compiling import compiled_assuming_no_nan
from engine.sampling import Sampling
from engine.tree import DraftTree

HALVINGS = 20


class KSeq(RootDownWalk):
    title = "K-SEQ"
    about = "Tries several draws, each with a p/q scaled for their number."
    source = "SpecTr (Sun et al. 2023)"
    required_proposal_mode = "with replacement"

    def select_child_or_bonus_weights(
        self, tree: DraftTree, node: int, p: torch.Tensor, sampling: Sampling, root_position: int
    ) -> tuple[int | None, torch.Tensor]:
        q, draws = tree.q_rows[node], tree.draws[node]
        rho = solve_kseq_division_factor(p.numpy(), q.numpy(), len(draws))
        for number, child in enumerate(draws):
            token = tree.tokens[child]
            if sampling.draw_acceptance(float(p[token] / (rho * q[token])), "accept", root_position, node, number):
                return child, p
        common = torch.minimum(q, p / rho)
        beta = float(common.sum())
        if beta == 0:  # p and q share no token
            return None, p
        rest = (p - common * ((1 - max(0.0, 1 - beta) ** len(draws)) / beta)).clamp(min=0)
        return None, rest if rest.sum() > 0 else p


@compiled_assuming_no_nan
def solve_kseq_division_factor(p, q, draw_count):
    """The rho in [1, k] that solves 1 - (1 - beta)^k = rho beta, with beta = sum min(q, p / rho).

    What is returned is not below the solution: the rule is exact from there on.
    """
    low, high = 1.0, float(draw_count)
    for _ in range(HALVINGS if draw_count > 1 else 0):
        rho = (low + high) / 2
        beta, share = p[0] - p[0], p.dtype.type(1 / rho)
        for token in range(len(p)):
            beta += min(q[token], p[token] * share)
        if 1 - max(0.0, 1 - beta) ** draw_count > rho * beta:
            low = rho
        else:
            high = rho
    return high
