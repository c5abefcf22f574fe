"""Token match: the target draws its own token behind every node, and a child survives when it carries that token.

Noise is keyed by (seed, position), so the draw behind a node is the one that plain decoding makes there. The output is therefore plain
decoding's, token for token, at every temperature and for every tree.
"""

import torch

from engine.contracts import Acceptance, Verdict
from engine.sampling import Sampling
from engine.tree import DraftTree


class TokenMatch(Acceptance):
    title = "token match"
    about = "Keeps a guess if the target draws that very token."
    source = "ours: noise by seed and position, which plain decoding draws with too"
    required_proposal_mode = "any"
    guarantee = "tokens"

    def decide(self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling, root_position: int) -> Verdict:
        draw = sampling.build_lazy_token_drawer(logits, [root_position + depth + 1 for depth in tree.depth])
        path, node = [], 0
        while (child := tree.find_child_with_token(node, token := draw(node))) is not None:
            path.append(child)
            node = child
        return Verdict(path, token)
