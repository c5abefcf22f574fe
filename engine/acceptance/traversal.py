"""Traversal verification (Weng et al. 2025): from the leaves to the root, a whole path passes or fails by its joint probability.

A node whose children all failed is a leaf then, with a chance of its own. So a guess outlives its continuations. On a chain this is
block verification. Siblings are tried in the order of their draws: a sorted order biases the output.
"""

import torch

from engine.acceptance.block import lazy_target_distribution_by_node, share_of_passing_mass, unnormalised_block_residual
from engine.contracts import Acceptance, Verdict
from engine.sampling import Sampling
from engine.tree import DraftTree


class TraversalVerification(Acceptance):
    title = "traversal"
    about = "Judges whole paths, leaves first; where a branch fails, its beginning is judged again."
    source = "Traversal Verification (Weng et al. 2025)"
    required_proposal_mode = "without replacement"
    guarantee = "law"

    def decide(self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling, root_position: int) -> Verdict:
        p = lazy_target_distribution_by_node(logits, sampling)

        def last_accepted_and_bonus_weights(node: int, pass_chance: float) -> tuple[int, torch.Tensor] | None:
            """The last accepted node at or below `node` and the weights `[V]` of its bonus. None when all of them fail.

            `pass_chance` is the chance that one passes. R starts as p, D as q. When a child fails, R becomes max(reach R - D, 0),
            whose sum S makes it a distribution again; `pass_chance` becomes S / (S + 1 - reach); D loses the child's token.
            """
            r, drawn = p(node), tree.draws.get(node, [])
            d = tree.q_rows[node].double().clone() if drawn else r
            for child in drawn:
                token = tree.tokens[child]
                chance = min(1.0, pass_chance * float(r[token] / d[token]))
                if chance > 0 and (found := last_accepted_and_bonus_weights(child, chance)):
                    return found
                rest = unnormalised_block_residual(pass_chance, r, d)
                left = float(rest.sum())
                pass_chance, r = share_of_passing_mass(left, 1 - pass_chance), rest / left if left > 0 else p(node)
                d[token] = 0
                d /= d.sum()
            return (node, r) if sampling.draw_acceptance(pass_chance, "accept", root_position, node) else None

        last, rest = last_accepted_and_bonus_weights(0, 1.0) or (0, p(0))
        return Verdict(tree.path_below_root(last), sampling.draw_index_by_weight(rest, "bonus", root_position, last))
