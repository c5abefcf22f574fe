"""Typical acceptance (Medusa, Cai et al. 2024): a token passes when the target finds it likely enough for its own entropy.

Lossy: what comes out is typical of the target, not distributed like it. At temperature 0 only the target's own token passes, and the
output is the target's.
"""

import torch

from engine.contracts import Acceptance, Verdict
from engine.sampling import Sampling
from engine.tree import DraftTree

EPSILON, DELTA = 0.09, 0.3


class LossyTypicalAcceptance(Acceptance):
    """Accepts x where p(x) > min(epsilon, delta exp(-H(p))). The longest path wins; of several such paths, the most probable."""

    title = "typical acceptance"
    about = "Keeps what the target finds likely enough, whatever it would have drawn."
    source = "Medusa (Cai et al. 2024)"
    required_proposal_mode = "any"
    guarantee = "lossy"

    def decide(self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling, root_position: int) -> Verdict:
        p = sampling.probabilities(logits.cpu())
        limit = (DELTA * (-torch.special.entr(p).sum(-1)).exp()).clamp(max=EPSILON).tolist()
        weight = {0: 1.0}  # the joint probability of every accepted node
        for node in range(1, len(tree)):
            parent = tree.parents[node]
            if parent in weight:
                chance = float(p[parent, tree.tokens[node]])
                if chance > limit[parent]:
                    weight[node] = weight[parent] * chance
        last = max(weight, key=lambda node: (tree.depth[node], weight[node]))
        return Verdict(tree.path_below_root(last), sampling.draw_index_by_weight(p[last], "bonus", root_position, last))
