"""Suffix counts: how often what followed the end of a text. Knows numbers; knows no model and no request.

The counts are those of a suffix tree of the text. They are read off the places where an ending stood, so a text needs no other memory
than its tokens.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count, islice

import numpy as np

from engine.tree import DraftTree

LONGEST_ENDING = 32  # tokens that are compared
LEAST_CHANCE = 0.1  # of a path; less likely ones are no guesses
SEPARATOR = -1  # behind each of several texts; no token


class SuffixCounts:
    """One text, or several with `SEPARATOR` behind each. A place is the index behind an occurrence; the text's end is one, too."""

    def __init__(self, tokens: Iterable[int] = ()):
        self.room, self.length = np.empty(256, np.int64), 0
        self.extend(list(tokens))

    @property
    def text(self) -> np.ndarray:
        """Token ids int64 `[length]`."""
        return self.room[: self.length]

    def extend(self, tokens: list[int]) -> None:
        more = self.length + len(tokens)
        if more > len(self.room):
            self.room = np.concatenate([self.text, np.empty(more, np.int64)])
        self.room[self.length : more] = tokens
        self.length = more

    def matches(self, ending: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        """The lengths at which the ending stood in the text, with its places there, ascending.

        Of lengths with the same places only the longest is given: it has the same counts and the larger budget.
        """
        text, length = self.text, 0
        places = np.arange(1, len(text) + 1)
        for token in ending[: -LONGEST_ENDING - 1 : -1]:
            longer = places[places > length]
            longer = longer[text[longer - length - 1] == token]
            if length and 0 < len(longer) < len(places):
                yield length, places
            if not len(longer):
                break
            places, length = longer, length + 1
        if length:
            yield length, places

    def followers(self, places: np.ndarray) -> tuple[list[int], list[int]]:
        """The tokens that stood at the places, the most frequent first and of equals the latest, and how often each did."""
        latest_first = self.text[places[places < self.length]][::-1]
        tokens, first, counts = np.unique(
            latest_first[latest_first != SEPARATOR], return_index=True, return_counts=True
        )
        order = np.lexsort((first, -counts))
        return tokens[order].tolist(), counts[order].tolist()

    def likeliest(self, places: np.ndarray, root: int, guesses: int, width: int, levels: int) -> DraftTree:
        """The tree of the likeliest continuations behind the places, of at most so many guesses.

        A node's q is its share of its parent's places, and its score the product of these along the path. No node scores less than
        `LEAST_CHANCE`.
        """
        tree, order, heap = DraftTree.rooted(root), count(), []

        def offer(node: int, places: np.ndarray) -> None:
            for token, often in islice(zip(*self.followers(places), strict=True), width):
                chance = tree.score[node] * (often / len(places))
                if chance < LEAST_CHANCE:
                    break
                heappush(heap, (-chance, next(order), node, token, often / len(places), places))

        offer(0, places)
        while heap and len(tree) <= guesses:
            chance, _, parent, token, q, before = heappop(heap)
            node = tree.add(parent, token, -chance, q)
            if tree.depth[node] < levels:
                before = before[before < self.length]
                offer(node, before[self.text[before] == token] + 1)
        return tree
