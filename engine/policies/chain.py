"""Chain policy: K tokens in a row, the classic draft (Leviathan et al. 2023; Chen et al. 2023)."""

from engine.contracts import Counterpart, Drafter, Policy
from engine.policies.shared.asking import guesses
from engine.policies.shared.ranking import favourites
from engine.sampling import Sampling
from engine.tree import DraftTree


class Chain(Policy):
    title = "chain"
    about = "One guess after another, no branches."
    source = "Leviathan et al. 2023, Chen et al. 2023"
    counterpart = Counterpart("chain of guesses")
    branches = False
    proposals = frozenset({"ranked", "one draw", "with replacement", "without replacement", "whole chains"})

    @classmethod
    def shapes(cls, width: int) -> list[tuple[int, int, int]]:
        return [(depth, 1, depth + 1) for depth in (1, 2, 3, 4, 6, 8)]

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, ranked = DraftTree.rooted(root), self.proposal == "ranked"
        for node in range(min(self.depth, room)):
            log_q = guesses(drafter, tree, [node], to_draw=not ranked)
            if log_q is None:
                break
            if ranked:
                [[token]], _, [[q]] = favourites(log_q, position + node + 1, 1, sampling)
                tree.add(node, token, tree.score[node] * q, q)
            else:
                tree.q_rows[node] = sampling.probabilities(log_q[0])
                token = sampling.choose(tree.q_rows[node], "draft", position, node)
                tree.draw(node, token, float(tree.q_rows[node][token]))
        return tree
