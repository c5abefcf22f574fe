"""Steady: what policies share that grow by the same rule whatever came of their trees."""

from engine.tree import DraftTree


class Steady:
    def learn(self, tree: DraftTree, path: list[int]) -> None:
        """Nothing: the rule stays as it is."""
