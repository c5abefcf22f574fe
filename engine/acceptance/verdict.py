"""Verdict: what an acceptance rule decided about a tree."""

from dataclasses import dataclass

from engine.record.trace import ACCEPTED, REJECTED, ROOT, UNREACHED
from engine.tree import DraftTree


@dataclass(frozen=True)
class Verdict:
    """`path` holds the accepted nodes from the root down, root excluded; `bonus` is the token that the target emits after them."""

    path: list[int]
    bonus: int

    def by_node(self, tree: DraftTree) -> list[str]:
        """One word a node: the root, accepted, rejected (its parent was reached and the target went elsewhere), or unreached."""
        reached = {0, *self.path}
        words = [ROOT]
        for node in range(1, len(tree)):
            words.append(ACCEPTED if node in reached else REJECTED if tree.parents[node] in reached else UNREACHED)
        return words
