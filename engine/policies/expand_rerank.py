"""Expand-and-rerank policy (EAGLE-2, Li et al. 2024): expand the top-k of k beam nodes a level, then keep the best nodes of all levels.

Values are joint probabilities, which never grow with depth, so the best nodes include their ancestors. Ties go to the earlier node,
which is the ancestor. Unlike best_first it expands k nodes a level, no more, even where fewer would do. One draft forward per level.
"""

from engine.contracts import Counterpart, Drafter, Policy
from engine.kernels.expansion import Expansion
from engine.policies.shared.growing import grow
from engine.record.calibration import Calibration
from engine.sampling import Sampling
from engine.tree import DraftTree


class ExpandRerank(Policy):
    title = "expand-and-rerank"
    about = "Expands the best few nodes of a level, then keeps the best of all levels."
    source = "EAGLE-2 (Li et al. 2024)"
    counterpart = Counterpart("tree of guesses")
    proposals = frozenset({"ranked"})

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: Calibration | None = None):
        self.depth = depth
        self.expansion = Expansion(depth, width, beams=width, keep=nodes - 1)

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        return grow(self.expansion, drafter, root, position, sampling, min(self.depth, room))
