"""Block verification (Sun et al. 2024): a chain is judged as a whole. No rule that keeps the law accepts more of one chain."""

from collections.abc import Callable
from functools import cache

import torch

from engine.contracts import Acceptance, Verdict
from engine.sampling import Sampling
from engine.tree import DraftTree

DistributionByNode = Callable[[int], torch.Tensor]  # the target's distribution `[V]` behind a node, float64


class BlockVerification(Acceptance):
    """Keeps the longest beginning of the chain that passes, whatever became of shorter ones (Algorithm 2).

    With p and q behind the first i guesses, r_i = min(1, r_(i-1) p(x_i) / q(x_i)) and Z = sum max(r_i p - q, 0). That beginning passes
    with Z / (Z + 1 - r_i), and the whole chain with its r. The bonus comes from max(r_i p - q, 0), behind the whole chain from p.
    """

    title = "block"
    about = "Judges a chain as a whole: likely later guesses can save an earlier one."
    source = "Block Verification (Sun et al. 2024)"
    required_proposal_mode = "one draw"
    guarantee = "law"

    def decide(self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling, root_position: int) -> Verdict:
        p = lazy_target_distribution_by_node(logits, sampling)
        chain, laws = self.select_chain_and_draft_distributions(tree, p)
        reach, kept, rest = 1.0, 0, unnormalised_block_residual(1.0, p(0), laws[0]) if chain else p(0)
        for count, node in enumerate(chain, 1):
            token = tree.tokens[node]
            reach = min(1.0, reach * float(p(tree.parents[node])[token] / laws[count - 1][token]))
            if count < len(chain):
                weights = unnormalised_block_residual(reach, p(node), laws[count])
                chance = share_of_passing_mass(float(weights.sum()), 1 - reach)
            else:
                weights, chance = p(node), reach
            if sampling.draw_acceptance(chance, "accept", root_position, node):
                kept, rest = count, weights
        last = chain[kept - 1] if kept else 0
        return Verdict(
            chain[:kept],
            sampling.draw_index_by_weight(rest if rest.sum() > 0 else p(last), "bonus", root_position, last),
        )

    def select_chain_and_draft_distributions(
        self, tree: DraftTree, p_of_node: DistributionByNode
    ) -> tuple[list[int], list[torch.Tensor]]:
        """Selects the chain to verify. Returns its nodes, and for each node the distribution `[V]` that its token was drawn from."""
        chain: list[int] = []
        while drawn := tree.draws.get(chain[-1] if chain else 0):
            chain.append(drawn[0])
        return chain, [tree.q_rows[tree.parents[node]].double() for node in chain]


def lazy_target_distribution_by_node(logits: torch.Tensor, sampling: Sampling) -> DistributionByNode:
    """The target's distributions behind the nodes of `logits [N, V]`, each computed when it is asked for."""
    logits = logits.cpu()  # all at once, because the host waits for every copy
    return cache(lambda node: sampling.probabilities(logits[node]).double())


def unnormalised_block_residual(prefix_chance: float, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """max(prefix_chance p - q, 0) `[V]`: what the draws from q leave over of p."""
    return (prefix_chance * p - q).clamp(min=0)


def share_of_passing_mass(passing_mass: float, failing_mass: float) -> float:
    """passing_mass / (passing_mass + failing_mass): the chance that a prefix is kept. It is 1 where both are 0, because only rounding
    can reject there.
    """
    return passing_mass / (passing_mass + failing_mass) if passing_mass + failing_mass > 0 else 1.0
