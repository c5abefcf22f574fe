"""Lookup drafter: guesses what followed the same few tokens earlier in the context (prompt lookup). Needs no model.

Source: prompt lookup decoding (A. Saxena, 2023). Here every earlier match votes, so a tree can hold several continuations.
"""

import math
from collections import Counter, defaultdict

import numpy as np
import torch

from engine.contracts import COPIES, Drafter, Features
from engine.tree import DraftTree

LONGEST = 3  # n-gram length tried first
KNOWN_SHARE = 0.9  # probability given to what was seen; the rest is spread over the vocabulary


class LookupDrafter(Drafter):
    title = "prompt lookup"
    about = "Copies what followed the same words earlier in the text."
    source = "prompt lookup decoding (Saxena 2023)"
    guess_origin = COPIES
    no_guess_reason = "The last words have not stood in the text before, so there was nothing to copy."

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.context: list[int] = []
        self.followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        self.append_and_count_followers(prompt)

    def append_and_count_followers(self, tokens: list[int]) -> None:
        for token in tokens:
            for length in range(1, min(LONGEST, len(self.context)) + 1):
                self.followers[tuple(self.context[-length:])][token] += 1
            self.context.append(token)

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        found = [
            self.followers_of_longest_suffix([tree.tokens[each] for each in tree.path_below_root(node)])
            for node in nodes
        ]
        if not any(found):
            return None
        rows = np.empty((len(nodes), self.vocab), np.float32)  # NumPy writes a single number sooner than torch
        for row, seen in zip(rows, found, strict=True):
            total = sum(seen.values())
            row.fill(math.log((1 - KNOWN_SHARE if seen else 1) / self.vocab))
            for token, count in seen.items():
                row[token] = math.log(KNOWN_SHARE * count / total + (1 - KNOWN_SHARE) / self.vocab)
        return torch.from_numpy(rows)

    def followers_of_longest_suffix(self, drafted_tokens: list[int]) -> Counter[int]:
        """What followed the text's last tokens with the drafted ones, of the longest such run that was followed before."""
        tail = (self.context[-LONGEST:] + drafted_tokens)[-LONGEST:]
        for length in range(len(tail), 0, -1):
            if seen := self.followers.get(tuple(tail[-length:])):
                return seen
        return Counter()

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        self.append_and_count_followers([*(tree.tokens[node] for node in path), bonus])
