"""Speculative sampling for chains (Leviathan et al. 2023; Chen et al. 2023): accept with min(1, p/q), else draw from the residual.

Keeps the target's distribution exactly, but not the very tokens that plain decoding draws with the same seed.
"""

import torch

from engine.acceptance.verdict import Verdict
from engine.sampling import Sampling
from engine.tree import DraftTree


class Speculative:
    proposal = "drawn"
    guarantee = "law"

    def decide(self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling, position: int) -> Verdict:
        path, node = [], 0
        p = sampling.probabilities(logits[0].cpu())
        while children := tree.children(node):
            [child] = children
            token, q, depth = tree.tokens[child], tree.q_rows[node].cpu(), tree.depth[child]
            if not sampling.accept(float(p[token] / q[token]), "accept", position, depth):
                residual = (p - q).clamp(min=0)
                if float(residual.sum()) == 0:  # p and q are equal but for rounding
                    residual = p
                return Verdict(path, sampling.choose(residual, "residual", position, depth))
            path.append(child)
            node = child
            p = sampling.probabilities(logits[node].cpu())
        return Verdict(path, sampling.choose(p, "bonus", position, tree.depth[node]))
