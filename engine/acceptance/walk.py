"""Walk: goes from the root down and chooses at every node between what was drawn there and a token of the target's own.

The papers' lossless rules differ only in that choice. They keep the target's distribution exactly. They do not keep the very tokens
that plain decoding draws with the same seed. Arithmetic is float32 or better.
"""

import torch

from engine.contracts import Acceptance, Verdict
from engine.sampling import Sampling
from engine.tree import DraftTree


class RootDownWalk(Acceptance):
    guarantee = "law"

    def decide(self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling, root_position: int) -> Verdict:
        path, node = [], 0
        logits = logits.cpu()  # all at once, because the host waits for every copy
        while True:
            p = sampling.probabilities(logits[node])
            child, rest = (
                self.select_child_or_bonus_weights(tree, node, p, sampling, root_position)
                if node in tree.draws
                else (None, p)
            )
            if child is None:
                return Verdict(path, sampling.draw_index_by_weight(rest, "bonus", root_position, node))
            path.append(child)
            node = child

    def select_child_or_bonus_weights(
        self, tree: DraftTree, node: int, p: torch.Tensor, sampling: Sampling, root_position: int
    ) -> tuple[int | None, torch.Tensor]:
        """The accepted child of `node`, or None with the weights `[V]` that the bonus is drawn from. `p [V]` is the target's."""
        raise NotImplementedError


class MultiRoundSampling(RootDownWalk):
    """Multi-round speculative sampling: one draw after another is accepted with min(1, R / D).

    D is what the draw comes from. R starts as p and becomes the residual norm(max(R - D, 0)) after each rejection.
    """

    def select_child_or_bonus_weights(
        self, tree: DraftTree, node: int, p: torch.Tensor, sampling: Sampling, root_position: int
    ) -> tuple[int | None, torch.Tensor]:
        r, d = p, tree.q_rows[node]
        for number, child in enumerate(tree.draws[node]):
            token = tree.tokens[child]
            if sampling.draw_acceptance(float(r[token] / d[token]), "accept", root_position, node, number):
                return child, r
            r, law = normalised_residual(r, d, p), self.distribution_of_next_draw(d, token)
            if law is None:
                break
            d = law
        return None, r

    def distribution_of_next_draw(self, draw_law: torch.Tensor, drawn_token: int) -> torch.Tensor | None:
        """What the next draw came from, given that `drawn_token` came from `draw_law [V]`. None when that has no mass left."""
        raise NotImplementedError


def normalised_residual(remaining_p: torch.Tensor, draw_law: torch.Tensor, fallback_p: torch.Tensor) -> torch.Tensor:
    """norm(max(r - d, 0)). Only rounding can make that zero everywhere; then it is `fallback_p`."""
    rest = (remaining_p - draw_law).clamp(min=0)
    total = rest.sum()
    return rest / total if total > 0 else fallback_p
