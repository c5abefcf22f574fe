"""Suffix drafter: copies what followed the same ending before, weighed by how often it did, in this text and in earlier ones.

Source: SuffixDecoding (Oliaro et al. 2024). The longer the match, the more is guessed. Of all lengths of the match and both sources,
the one whose guesses promise the most tokens is taken. A text's own end counts as a place, so one earlier place gives the chance 1/2.
Earlier texts are those of the pair's memory, which is None but in measurements.

The counts are those of a suffix tree of the text. They are read off the places where an ending stood, so a text needs no other memory
than its tokens.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count, islice

import numpy as np
import torch

from engine.contracts import COPIES, OWN_TREE, Drafter, Features
from engine.models.pairs import LoadedPair
from engine.tree import DraftTree

FACTOR = 1.0  # guesses for every token of the match
LONGEST_ENDING = 32  # tokens that are compared
LEAST_CHANCE = 0.1  # of a path; less likely ones are no guesses
SEPARATOR = -1  # behind each of several texts; no token


class SuffixIndex:
    """One text, or several with `SEPARATOR` behind each. A place is the index behind an occurrence; the text's end is one, too."""

    def __init__(self, tokens: Iterable[int] = ()):
        self.room, self.length = np.empty(256, np.int64), 0
        self.append_tokens(list(tokens))

    @property
    def token_ids(self) -> np.ndarray:
        """Token ids int64 `[length]`."""
        return self.room[: self.length]

    def append_tokens(self, tokens: list[int]) -> None:
        more = self.length + len(tokens)
        if more > len(self.room):
            self.room = np.concatenate([self.token_ids, np.empty(more, np.int64)])
        self.room[self.length : more] = tokens
        self.length = more

    def iter_match_lengths_with_end_indices(self, last_tokens: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        """The lengths at which the ending stood in the text, with its places there, ascending.

        Of lengths with the same places only the longest is given: it has the same counts and the larger budget.
        """
        text, length = self.token_ids, 0
        places = np.arange(1, len(text) + 1)
        for token in last_tokens[: -LONGEST_ENDING - 1 : -1]:
            longer = places[places > length]
            longer = longer[text[longer - length - 1] == token]
            if length and 0 < len(longer) < len(places):
                yield length, places
            if not len(longer):
                break
            places, length = longer, length + 1
        if length:
            yield length, places

    def rank_followers_with_counts(self, match_ends: np.ndarray) -> tuple[list[int], list[int]]:
        """The tokens that stood at the places, the most frequent first and of equals the latest, and how often each did."""
        latest = self.token_ids[match_ends[match_ends < self.length]][::-1]
        tokens, first, counts = np.unique(latest[latest != SEPARATOR], return_index=True, return_counts=True)
        order = np.lexsort((first, -counts))
        return tokens[order].tolist(), counts[order].tolist()

    def build_likeliest_tree(
        self, match_ends: np.ndarray, root_token: int, max_guesses: int, width: int, max_levels: int
    ) -> DraftTree:
        """The tree of the likeliest continuations behind the places, of at most so many guesses.

        A node's q is its share of its parent's places. Its score is their product along the path, `LEAST_CHANCE` at least.
        """
        tree, order, heap = DraftTree.from_root_token(root_token), count(), []

        def push_likely_followers(node: int, places: np.ndarray) -> None:
            for token, often in islice(zip(*self.rank_followers_with_counts(places), strict=True), width):
                chance = tree.score[node] * (often / len(places))
                if chance < LEAST_CHANCE:
                    break
                heappush(heap, (-chance, next(order), node, token, often / len(places), places))

        push_likely_followers(0, match_ends)
        while heap and len(tree) <= max_guesses:
            chance, _, parent, token, q, before = heappop(heap)
            node = tree.add(parent, token, -chance, q)
            if tree.depth[node] < max_levels:
                before = before[before < self.length]
                push_likely_followers(node, before[self.token_ids[before] == token] + 1)
        return tree


class SuffixDrafter(Drafter):
    title = "suffix tree"
    about = "Copies what followed the same words most often; the longer the match, the more."
    source = "SuffixDecoding (Oliaro et al. 2024)"
    guess_origin = COPIES
    no_guess_reason = "The last words have not stood in the text before, so there was nothing to copy."
    capabilities = frozenset({OWN_TREE})

    def __init__(self, pair: LoadedPair, capacity: int):
        self.vocab, self.memory = pair.target.vocab, pair.memory

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.prompt, self.answer = prompt, list[int]()
        self.own, self.others = SuffixIndex(prompt), SuffixIndex()
        for each in self.memory.answers_to_other_prompts(prompt) if self.memory else ():
            self.others.append_tokens([*each, SEPARATOR])

    def build_own_tree(self, root_token: int, max_levels: int, width: int, max_nodes: int) -> DraftTree:
        best, most = DraftTree.from_root_token(root_token), (0.0, 0, 0)
        for counts in (self.own, self.others):
            for length, places in counts.iter_match_lengths_with_end_indices(
                self.own.token_ids[-LONGEST_ENDING:].tolist()
            ):
                guesses = min(max_nodes - 1, int(FACTOR * length))
                tree = counts.build_likeliest_tree(places, root_token, guesses, width, max_levels)
                promised = sum(tree.score[1:]), length, counts is self.own
                if promised > most:
                    best, most = tree, promised
        return best

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """Shares behind the longest match of each node's path. What they leave is spread over the vocabulary."""
        found = [
            self.followers_and_shares_of_longest_match([tree.tokens[each] for each in tree.path_below_root(node)])
            for node in nodes
        ]
        rows = torch.empty(len(nodes), self.vocab)
        for row, (tokens, shares) in zip(rows, found, strict=True):
            left = 1 - sum(shares)
            row.fill_(left / self.vocab if left > 1e-6 else 0)
            row[tokens] += torch.tensor(shares)
        return rows.log() if any(tokens for tokens, _ in found) else None

    def followers_and_shares_of_longest_match(self, drafted_tokens: list[int]) -> tuple[list[int], list[float]]:
        """The tokens that followed the longest match of the text and the `drafted_tokens` tokens, and their shares of its places."""
        ending, longest = [*self.own.token_ids[-LONGEST_ENDING:].tolist(), *drafted_tokens], 0
        answer: tuple[list[int], list[float]] = ([], [])
        for counts in (self.own, self.others):
            for length, places in counts.iter_match_lengths_with_end_indices(ending):
                tokens, often = counts.rank_followers_with_counts(places)
                if tokens and length > longest:
                    answer, longest = (tokens, [each / len(places) for each in often]), length
        return answer

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        burst = [*(tree.tokens[node] for node in path), bonus]
        self.own.append_tokens(burst)
        if self.memory:
            self.answer += burst
            self.memory.remember_newest_answer(self.prompt, self.answer)
