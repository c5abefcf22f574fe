"""Expand-and-rerank policy (EAGLE-2, Li et al. 2024): expand the top-k of k beam nodes a level, then keep the best nodes of all levels.

Values are joint probabilities, which never grow with depth, so the best nodes include their ancestors. Ties go to the earlier node,
which is the ancestor. Unlike best_first it expands k nodes a level, no more, even where fewer would do. One draft forward per level.
"""

from engine.kernels.expansion import TreeExpansion
from engine.policies.shared.growing import ExpansionPolicy


class ExpandRerank(ExpansionPolicy):
    title = "expand-and-rerank"
    about = "Expands the best few nodes of a level, then keeps the best of all levels."
    source = "EAGLE-2 (Li et al. 2024)"
    is_budget_filling_substitute = True

    def validate_and_precompute(self) -> None:
        self.expansion = TreeExpansion(self.depth, self.width, beam_width=self.width, max_kept=self.nodes - 1)
