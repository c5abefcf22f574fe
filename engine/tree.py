"""DraftTree: candidate tokens as flat arrays. Knows shape; knows no model, no probabilities' meaning, no device.

Invariant: node 0 is the root and every parent stands before its children, so one pass in array order sees ancestors first.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from engine.kernels.expansion import ancestor_mask_of

LARGEST_TREE = 400  # nodes, the root included; caches keep room for one such tree behind the context


@dataclass
class DraftTree:
    """Node i is `tokens[i]` after `parents[i]`; `parents[0]` is -1. The root is the last committed token.

    - `score[i]`: the estimated probability that the whole path to i is accepted
    - `q[i]`: the draft probability of the token given its parent, 1 for the root
    - `creation_indices[i]`: the index that the node was created under. Pruning does not change it, so a drafter recognises its nodes.

    Two more are filled where an acceptance rule needs them:

    - `q_rows[i]`: the distribution `[V]` that node i's children were drawn from
    - `draws[i]`: those children in the order of the draws. One that was drawn twice stands there twice.
    """

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    depth: list[int] = field(default_factory=lambda: [0])
    score: list[float] = field(default_factory=lambda: [1.0])
    q: list[float] = field(default_factory=lambda: [1.0])
    creation_indices: list[int] = field(default_factory=lambda: [0])
    q_rows: dict[int, torch.Tensor] = field(default_factory=dict)
    draws: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def from_root_token(cls, token: int) -> "DraftTree":
        return cls(tokens=[token])

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, score: float, q: float) -> int:
        """Append a node and return its index. Raises `IndexError` when the parent is not in the tree."""
        node = len(self.tokens)
        if not 0 <= parent < node:
            raise IndexError(f"Parent {parent} is not in a tree of {node} nodes.")
        self.tokens.append(token)
        self.parents.append(parent)
        self.depth.append(self.depth[parent] + 1)
        self.score.append(score)
        self.q.append(q)
        self.creation_indices.append(node)
        return node

    def record_drawn_child(self, parent: int, token: int, q: float) -> int:
        """Note that `token` was drawn behind `parent`, and return its node. A token that was drawn before keeps its node."""
        drawn = self.draws.setdefault(parent, [])
        node = next((node for node in drawn if self.tokens[node] == token), None)
        if node is None:
            node = self.add(parent, token, self.score[parent] * q, q)
        drawn.append(node)
        return node

    def path_below_root(self, node: int) -> list[int]:
        """The nodes from the root down to `node`, the root left out."""
        nodes = []
        while node > 0:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def find_child_with_token(self, node: int, token: int) -> int | None:
        """The child of `node` that carries `token`, or None."""
        for index in range(node + 1, len(self)):
            if self.parents[index] == node and self.tokens[index] == token:
                return index
        return None

    def children(self, node: int) -> list[int]:
        return [index for index in range(node + 1, len(self)) if self.parents[index] == node]

    def select_highest_scored_nodes(self, count: int, candidates: list[int] | None = None) -> list[int]:
        """The `count` nodes with the highest scores, best first, of all below the root or of `candidates` (ascending).

        Ties go to the earlier node. Where a score never grows with depth, ancestors therefore come before their children.
        """
        worst_last = [-score for score in self.score]
        return sorted(range(1, len(self)) if candidates is None else candidates, key=worst_last.__getitem__)[:count]

    def ancestor_mask(self) -> torch.Tensor:
        """bool `[N, N]`: whether row i may attend to column j, which must be i itself or one of its ancestors."""
        return torch.from_numpy(ancestor_mask_of(np.array(self.parents)))

    def positions(self, root_position: int) -> list[int]:
        """The position id of every node when the root stands at `root_position`: base + depth, never the array index."""
        return [root_position + depth for depth in self.depth]

    def subtree(self, nodes_parents_first: list[int]) -> "DraftTree":
        """The subtree of these nodes, parents first. Raises `KeyError` when a parent or a drawn child is missing: that would bias."""
        at = {node: index for index, node in enumerate(nodes_parents_first)}

        def of(column: list) -> list:
            return [column[node] for node in nodes_parents_first]

        parents = [-1 if node == 0 else at[self.parents[node]] for node in nodes_parents_first]
        q_rows = {at[node]: row for node, row in self.q_rows.items() if node in at}
        draws = {at[node]: [at[child] for child in each] for node, each in self.draws.items() if node in at}
        return DraftTree(
            of(self.tokens),
            parents,
            of(self.depth),
            of(self.score),
            of(self.q),
            of(self.creation_indices),
            q_rows,
            draws,
        )
