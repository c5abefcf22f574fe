"""Best drafter: the strongest that the pair has, and copies from the text so far where they promise as much for nothing. Ours.

EAGLE where one was trained, else the draft model, else lookup alone. When the last tokens stood in the text before, what followed them
there is a free chain of guesses; it replaces a round of draft forwards when such chains came true for about as long as drafted paths
do, less the forwards' share of a round.
"""

import math
from collections import defaultdict

import torch

from engine.drafters.eagle import EagleDrafter
from engine.drafters.lookup import LookupDrafter
from engine.drafters.model import ModelDrafter
from engine.models import LoadedPair
from engine.tree import DraftTree

GRAM = 3  # tokens that must have stood in the text before
LONGEST_MATCH = 8  # tokens that two places are compared over
CHAIN = 10  # tokens copied at most
RECENT = 8  # earlier places that are looked at
VERIFY_SHARE = 0.65  # of a round with draft forwards: what a copying round costs
TRUST, FADE = 2.0, 0.9  # chains that a first estimate counts for; weight of the past in a running mean


class Copier:
    """What followed the longest earlier occurrence of the last tokens, and how long such copies stayed true, by length of the match."""

    def __init__(self):
        self.context: list[int] = []
        self.places: dict[tuple[int, ...], list[int]] = defaultdict(list)
        self.true, self.tried = defaultdict(float), defaultdict(float)

    def extend(self, tokens: list[int]) -> None:
        for token in tokens:
            if len(self.context) >= GRAM:
                self.places[tuple(self.context[-GRAM:])].append(len(self.context))
            self.context.append(token)

    def suggestion(self) -> tuple[int, list[int]]:
        """The length of the longest match, 0 without one, and up to `CHAIN` tokens that followed it."""
        context, found = self.context, (0, 0)
        for place in self.places.get(tuple(context[-GRAM:]), ())[-RECENT:]:
            length = GRAM
            while length < min(LONGEST_MATCH, place) and context[place - length - 1] == context[-length - 1]:
                length += 1
            found = max(found, (length, place))
        return found[0], context[found[1] : found[1] + CHAIN] if found[0] else []

    def expected(self, length: int) -> float:
        """Copied tokens that come true behind a match of this length."""
        return (self.true.get(length, 0.0) + TRUST * (length - GRAM) / 2) / (self.tried.get(length, 0.0) + TRUST)

    def learn(self, length: int, came_true: int) -> None:
        self.true[length] += came_true
        self.tried[length] += 1


class BestDrafter:
    def __init__(self, pair: LoadedPair, capacity: int):
        if "eagle" in pair.learned:
            self.inner = EagleDrafter(pair, capacity)
        else:
            self.inner = LookupDrafter(pair, capacity) if pair.draft is None else ModelDrafter(pair, capacity)
        self.vocab, self.reads_features = pair.target.vocab, self.inner.reads_features

    @property
    def forwards(self) -> int:
        return self.inner.forwards

    def begin(self, prompt: list[int], features: torch.Tensor | None = None) -> None:
        self.inner.begin(prompt, features)
        self.copier, self.burst = Copier(), 3.0  # mean length of drafted bursts
        self.copier.extend(prompt)
        self.look()

    def look(self) -> None:
        """What could be copied next, and whether to."""
        self.length, self.chain = self.copier.suggestion()
        expected = self.copier.expected(self.length) if self.chain else 0.0
        self.copying = bool(self.chain) and 1 + expected >= VERIFY_SHARE * self.burst
        self.sure = expected / (1 + expected)  # each token's chance when `expected` of them come true in a row
        self.asked = False

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        self.asked = True
        return self.copied(tree, nodes) if self.copying else self.inner.log_q(tree, nodes)

    def copied(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """Behind the nodes on the copied path its next token; None where it ends or where no node is on it."""
        rows = torch.full((len(nodes), self.vocab), math.log((1 - self.sure) / self.vocab))
        found = False
        for row, node in zip(rows, nodes, strict=True):
            drafted = [tree.tokens[each] for each in tree.path(node)]
            if len(drafted) < len(self.chain) and drafted == self.chain[: len(drafted)]:
                row[self.chain[len(drafted)]] = math.log(self.sure + (1 - self.sure) / self.vocab)
                found = True
        return rows if found else None

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: torch.Tensor | None = None) -> None:
        burst = [tree.tokens[node] for node in path] + [bonus]
        if self.chain:
            agree = [ours == theirs for ours, theirs in zip(self.chain, burst, strict=False)]
            came_true = agree.index(False) if False in agree else len(agree)
            if came_true < len(burst) or self.copying:  # else the burst ended before the copy went wrong
                self.copier.learn(self.length, came_true)
        if self.asked and not self.copying:
            self.burst = FADE * self.burst + (1 - FADE) * len(burst)
        self.inner.commit(tree, path, bonus, features)
        self.copier.extend(burst)
        self.look()
