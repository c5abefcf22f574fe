"""Suffix drafter: copies what followed the same ending before, weighed by how often it did, in this text and in earlier ones.

Source: SuffixDecoding (Oliaro et al. 2024). The longer the match, the more is guessed. Of all lengths of the match and both sources,
the one whose guesses promise the most tokens is taken. A text's own end counts as a place, so one earlier place gives the chance 1/2.
Earlier texts are those of the pair's memory, which is None but in measurements.
"""

import torch

from engine.contracts import OWN_TREE, Counterpart, Drafter
from engine.drafters.shared.suffix_counts import LONGEST_ENDING, SEPARATOR, SuffixCounts
from engine.models.pairs import LoadedPair
from engine.tree import DraftTree

FACTOR = 1.0  # guesses for every token of the match


class SuffixDrafter(Drafter):
    title = "suffix tree"
    about = "Copies what followed the same words most often; the longer the match, the more."
    source = "SuffixDecoding (Oliaro et al. 2024)"
    counterpart = Counterpart("suffix tree")
    offers = frozenset({OWN_TREE})

    def __init__(self, pair: LoadedPair, capacity: int):
        self.vocab, self.memory = pair.target.vocab, pair.memory

    def begin(self, prompt: list[int], features: torch.Tensor | None = None) -> None:
        self.prompt, self.answer = prompt, list[int]()
        self.own, self.others = SuffixCounts(prompt), SuffixCounts()
        for each in self.memory.others(prompt) if self.memory else ():
            self.others.extend([*each, SEPARATOR])

    def own_tree(self, root: int, levels: int, width: int, nodes: int) -> DraftTree:
        best, most = DraftTree.rooted(root), (0.0, 0, 0)
        for counts in (self.own, self.others):
            for length, places in counts.matches(self.own.text[-LONGEST_ENDING:].tolist()):
                guesses = min(nodes - 1, int(FACTOR * length))
                tree = counts.likeliest(places, root, guesses, width, levels)
                promised = sum(tree.score[1:]), length, counts is self.own
                if promised > most:
                    best, most = tree, promised
        return best

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """Shares behind the longest match of each node's path. What they leave is spread over the vocabulary."""
        rows, found = torch.empty(len(nodes), self.vocab), False
        for row, node in zip(rows, nodes, strict=True):
            tokens, shares = self.shares([tree.tokens[each] for each in tree.path(node)])
            left = 1 - sum(shares)
            row.fill_(left / self.vocab if left > 1e-6 else 0)
            row[tokens] += torch.tensor(shares)
            found |= bool(tokens)
        return rows.log() if found else None

    def shares(self, drafted: list[int]) -> tuple[list[int], list[float]]:
        """The tokens that followed the longest match of the text and the `drafted` tokens, and their shares of its places."""
        ending, longest = [*self.own.text[-LONGEST_ENDING:].tolist(), *drafted], 0
        answer: tuple[list[int], list[float]] = ([], [])
        for counts in (self.own, self.others):
            for length, places in counts.matches(ending):
                tokens, often = counts.followers(places)
                if tokens and length > longest:
                    answer, longest = (tokens, [each / len(places) for each in often]), length
        return answer

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: torch.Tensor | None = None) -> None:
        burst = [*(tree.tokens[node] for node in path), bonus]
        self.own.extend(burst)
        if self.memory:
            self.answer += burst
            self.memory.keep(self.prompt, self.answer)
