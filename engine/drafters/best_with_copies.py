"""Best drafter: the one that promises the most on this machine, and copies from the text so far as free guesses. Ours.

EAGLE, the draft model and DSpark are tried, as far as the pair has them; lookup stands in where it has none. `engine.rounds.timing`
finds out what each promises. When the last tokens stood in the text before, the tokens that followed them are a free chain of guesses.
The policy decides whether that chain replaces drafting or extends it.
"""

from collections import defaultdict

from engine.contracts import SMALL_MODEL, Features
from engine.drafters import DRAFTERS
from engine.drafters.shared.wrapping import DrafterWrapper
from engine.models.pairs import LoadedPair
from engine.tree import DraftTree

GRAM = 3  # tokens that must have stood in the text before
LONGEST_MATCH = 8  # tokens that two places are compared over
CHAIN = 12  # tokens copied at most
RECENT = 8  # earlier places that are looked at
TRUST = 3.0  # weight of the first estimate, in copied tokens


class HitCountingLongestMatchCopier:
    """Copies what followed the longest earlier match of the last tokens. Counts by match length how often copies came true."""

    def __init__(self):
        self.context: list[int] = []
        self.places: dict[tuple[int, ...], list[int]] = defaultdict(list)
        self.true, self.wrong = defaultdict(int), defaultdict(int)

    def append_and_index(self, tokens: list[int]) -> None:
        for token in tokens:
            if len(self.context) >= GRAM:
                self.places[tuple(self.context[-GRAM:])].append(len(self.context))
            self.context.append(token)

    def find_match_length_and_copies(self, drafted_tokens: list[int]) -> tuple[int, list[int]]:
        """What may follow the text and the `drafted_tokens`: the longest match's length, and `CHAIN` tokens from behind it.

        Without a match these are 0 and []. Where the text ends too early, the tokens repeat from the match on.
        """
        tail = (self.context[-LONGEST_MATCH:] + drafted_tokens)[-LONGEST_MATCH:]
        context, found = self.context, (0, 0)
        for place in self.places.get(tuple(tail[-GRAM:]), ())[-RECENT:]:
            length = GRAM
            while length < min(len(tail), place) and context[place - length - 1] == tail[-length - 1]:
                length += 1
            found = max(found, (length, place))
        length, place = found
        if not length:
            return 0, []
        rest = context[place : place + CHAIN] + drafted_tokens
        return length, (rest * CHAIN)[:CHAIN]

    def estimate_copy_hit_chance(self, match_length: int) -> float:
        """The probability that the next token copied behind a match of this length comes true, given that those before it did."""
        true, wrong = self.true[match_length], self.wrong[match_length]
        return (true + TRUST * (match_length - GRAM + 1) / (match_length + 1)) / (true + wrong + TRUST)

    def count_copy_hits_and_first_miss(self, match_length: int, copied: list[int], committed: list[int]) -> None:
        """Counts what came true: `committed` is what the text got where `copied` was suggested."""
        for ours, theirs in zip(copied, committed, strict=False):
            if ours != theirs:
                self.wrong[match_length] += 1
                return
            self.true[match_length] += 1


class BestDrafterWithCopies(DrafterWrapper):
    title = "best, with copies"
    about = "The drafter that promises the most on this machine, and free copies from the text."
    source = "ours: measured costs, calibrated acceptance, and prompt lookup (Saxena 2023)"
    guess_origin = SMALL_MODEL

    def __init__(self, pair: LoadedPair, capacity: int, drafter_name: str = ""):
        """`drafter_name` is one of the `inner_drafter_candidates`, the first when left out."""
        super().__init__(DRAFTERS[drafter_name or self.inner_drafter_candidates(pair)[0]](pair, capacity))
        self.compiled_tree_grower = (
            self.inner.compiled_tree_grower
        )  # copies come in later, where a policy asks for them

    @classmethod
    def inner_drafter_candidates(cls, pair: LoadedPair) -> list[str]:
        there = [*pair.learned, *(["model"] if pair.draft is not None else [])]
        return [name for name in ("eagle", "model", "dspark", "mtp") if name in there] or ["lookup"]

    def begin(self, prompt: list[int], features: Features = None) -> None:
        super().begin(prompt, features)
        self.copier = HitCountingLongestMatchCopier()
        self.copier.append_and_index(prompt)
        self.behind_root = self.copier.find_match_length_and_copies([])

    def draft_free_chain_and_token_chance(self, tree: DraftTree, node: int) -> tuple[list[int], float]:
        length, chain = self.behind_root
        if node:
            length, chain = self.copier.find_match_length_and_copies(
                [tree.tokens[each] for each in tree.path_below_root(node)]
            )
        return chain, self.copier.estimate_copy_hit_chance(length) if chain else 0.0

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        burst = [tree.tokens[node] for node in path] + [bonus]
        length, chain = self.behind_root
        if chain:
            self.copier.count_copy_hits_and_first_miss(length, chain, burst)
        super().commit(tree, path, bonus, features)
        self.copier.append_and_index(burst)
        self.behind_root = self.copier.find_match_length_and_copies([])
