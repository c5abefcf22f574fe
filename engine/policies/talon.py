"""Talon policy (Liu et al. 2026): a fixed budget of nodes, spent level by level on all that is nearly as likely as a level's best.

Right behind the root `width` guesses enter whatever their chances, because the first level decides most. On deeper levels a guess
enters when its path is at least `NEAR` times as likely as the level's likeliest. Where the drafter is sure, levels are narrow and the
tree grows deep. Where it is not, they are wide and the budget is soon spent. One draft forward per level.

`best_first` spends the same budget on the likeliest nodes of all levels, and may leave a part of it.
"""

from functools import partial

from engine.contracts import Counterpart, Drafter, Policy
from engine.policies.shared.ahead import Reach
from engine.policies.shared.asking import candidates
from engine.sampling import Sampling
from engine.tree import DraftTree

NEAR = 0.03  # of the likeliest path of the level, as published


class Talon(Policy):
    title = "Talon"
    about = "Level by level, all that is nearly as likely as its best, within a budget."
    source = "Talon (Liu et al. 2026)"
    counterpart = Counterpart("tree that adapts")
    proposals = frozenset({"ranked"})

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, frontier = DraftTree.rooted(root), [0]
        for level in range(1, min(self.depth, room) + 1):
            left = self.nodes - len(tree)
            reach = partial(Reach, min(self.depth, room) - level + 1, self.nodes - 1)
            found = candidates(drafter, tree, frontier, position + level, self.width, sampling, reach) if left else None
            if found is None:
                break
            least = NEAR * found[0][0] if level > 1 else 0.0
            entering = [each for each in found if each[0] >= least][:left]
            frontier = [tree.add(node, token, score, q) for score, _, node, token, q in entering]
        return tree
