"""Recycling drafter: guesses the target's own runners-up, by token, out of the verifications of this text. Needs no model.

Source: Token Recycling (Luo et al. 2024). Every verification ranks the tokens behind each of its nodes, rejected ones too. A table
keeps the ranking behind each token, the latest one. A child in the tree is its parent's entry of a rank. With all entries there the
tree always has the same shape. A token that was never verified has no entries; its share of the tree goes to others, where the paper
has token 0.
"""

import heapq
import math

import torch

from engine.contracts import COPIES, OWN_TREE, Drafter, Features
from engine.tree import DraftTree

# How often the target takes a rank; measured on the small embedded pair
SHARES = (0.54, 0.125, 0.05, 0.03, 0.025, 0.015, 0.012, 0.012)


class TokenRecyclingDrafter(Drafter):
    title = "token recycling"
    about = "Guesses what the target itself ranked highest after the same token before."
    source = "Token Recycling (Luo et al. 2024)"
    guess_origin = COPIES
    no_guess_reason = "The target has not been asked yet what follows this token."
    capabilities = frozenset({OWN_TREE})

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.table: dict[int, list[int]] = {}

    def build_own_tree(self, root_token: int, max_levels: int, width: int, max_nodes: int) -> DraftTree:
        """The most valuable entries first. A score is the product of `SHARES` along the path."""
        tree, heap = DraftTree.from_root_token(root_token), []

        def push_child_of_rank(node: int, rank: int) -> None:
            entries = self.table.get(tree.tokens[node], [])[:width]
            if rank < len(entries) and tree.depth[node] < max_levels:
                heapq.heappush(heap, (-tree.score[node] * SHARES[rank], node, rank, entries[rank]))

        push_child_of_rank(0, 0)
        while heap and len(tree) < max_nodes:
            score, above, rank, token = heapq.heappop(heap)
            push_child_of_rank(tree.add(above, token, -score, SHARES[rank]), 0)
            push_child_of_rank(above, rank + 1)
        return tree

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """`SHARES` of the table's entries alone. A token without entries rules nothing out."""
        found = [self.table.get(tree.tokens[node]) for node in nodes]
        if not any(found):
            return None
        rows = torch.full((len(nodes), self.vocab), -math.inf)
        for row, entries in zip(rows, found, strict=True):
            if entries:
                row[entries] = torch.tensor(SHARES[: len(entries)]).log()
            else:
                row.fill_(-math.log(self.vocab))
        return rows

    def observe_target_logits(self, tree: DraftTree, logits: torch.Tensor, path: list[int]) -> None:
        """Of nodes with the same token the last one counts, and accepted ones count last."""
        ranked = logits.topk(min(len(SHARES), logits.shape[-1])).indices.tolist()
        kept = [0, *path]
        for node in [*(node for node in range(len(tree)) if node not in kept), *kept]:
            self.table[tree.tokens[node]] = ranked[node]
