"""Lookup drafter: guesses what followed the same few tokens earlier in the context (prompt lookup). Needs no model.

Source: prompt lookup decoding (A. Saxena, 2023). Here every earlier match votes, so a tree can hold several continuations.
"""

import math
from collections import Counter, defaultdict

import numpy as np
import torch

from engine.contracts import Counterpart, Drafter
from engine.tree import DraftTree

LONGEST = 3  # n-gram length tried first
KNOWN_SHARE = 0.9  # probability given to what was seen; the rest is spread over the vocabulary


class LookupDrafter(Drafter):
    title = "prompt lookup"
    about = "Copies what followed the same words earlier in the text."
    source = "prompt lookup decoding (Saxena 2023)"
    counterpart = Counterpart("n-gram lookup")

    def begin(self, prompt: list[int], features: torch.Tensor | None = None) -> None:
        self.context: list[int] = []
        self.followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for token in prompt:
            self.append(token)

    def append(self, token: int) -> None:
        for length in range(1, LONGEST + 1):
            if len(self.context) >= length:
                self.followers[tuple(self.context[-length:])][token] += 1
        self.context.append(token)

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        rows = np.empty((len(nodes), self.vocab), np.float32)  # NumPy writes a single number sooner than torch
        found = False
        for row, node in zip(rows, nodes, strict=True):
            seen = self.seen_after(self.tail(tree, node))
            total = sum(seen.values())
            row.fill(math.log((1 - KNOWN_SHARE if seen else 1) / self.vocab))
            for token, count in seen.items():
                row[token] = math.log(KNOWN_SHARE * count / total + (1 - KNOWN_SHARE) / self.vocab)
                found = True
        return torch.from_numpy(rows) if found else None

    def tail(self, tree: DraftTree, node: int) -> list[int]:
        """The last `LONGEST` tokens, the node's own included."""
        drafted: list[int] = []
        while node > 0 and len(drafted) < LONGEST:
            drafted.insert(0, tree.tokens[node])
            node = tree.parents[node]
        return (self.context[-LONGEST:] + drafted)[-LONGEST:]

    def seen_after(self, tail: list[int]) -> Counter[int]:
        for length in range(min(LONGEST, len(tail)), 0, -1):
            if seen := self.followers.get(tuple(tail[-length:])):
                return seen
        return Counter()

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: torch.Tensor | None = None) -> None:
        for node in path:
            self.append(tree.tokens[node])
        self.append(bonus)
