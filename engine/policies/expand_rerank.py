"""Expand-and-rerank policy (EAGLE-2, Li et al. 2024): expand the top-k of k beam nodes a level, then keep the best nodes of all levels.

Values are joint probabilities, which never grow with depth, so the best nodes include their ancestors. Ties go to the earlier node,
which is the ancestor. Unlike best_first it expands k nodes a level, no more, even where fewer would do. One draft forward per level.
"""

from engine.kernels.expansion import Expansion
from engine.policies.shared.growing import ExpansionPolicy


class ExpandRerank(ExpansionPolicy):
    title = "expand-and-rerank"
    about = "Expands the best few nodes of a level, then keeps the best of all levels."
    source = "EAGLE-2 (Li et al. 2024)"
    fills = True

    def precompute_for_all_rounds(self) -> None:
        self.expansion = Expansion(self.depth, self.width, beams=self.width, max_kept=self.nodes - 1)
