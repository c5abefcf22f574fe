"""Independent rule: every node passes on its own with min(1, p/q), and the longest path wins. Lossy: kept to show the bias.

p/q is right for one token drawn from q. Here the tokens are the most probable ones, and several siblings try in turn. Likely tokens
therefore come out too often. At temperature 0 only the target's own token passes, and the output is the target's.
"""

import torch

from engine.acceptance.walk import normalised_residual
from engine.contracts import Acceptance, Verdict
from engine.sampling import Sampling
from engine.tree import DraftTree

LEAST_Q = 1e-38  # at low temperatures q rounds to 0 even for the second favourite


class LossyIndependentNodes(Acceptance):
    title = "naive p/q"
    about = "Every guess alone with min(1, p/q): simple, and biased."
    source = "tree-based speculative decoding for nanoGPT, its own rule"
    required_proposal_mode = "top"
    guarantee = "lossy"

    def decide(self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling, root_position: int) -> Verdict:
        p = sampling.probabilities(logits.cpu())
        reached = [0]
        for node in range(1, len(tree)):
            parent = tree.parents[node]
            if parent in reached:
                ratio = float(p[parent, tree.tokens[node]]) / max(tree.q[node], LEAST_Q)
                if sampling.draw_acceptance(ratio, "accept", root_position, node):
                    reached.append(node)
        last = max(reached, key=lambda node: tree.depth[node])
        rest = normalised_residual(p[0], tree.q_rows[0], p[0]) if last == 0 and 0 in tree.q_rows else p[last]
        return Verdict(tree.path_below_root(last), sampling.draw_index_by_weight(rest, "bonus", root_position, last))
