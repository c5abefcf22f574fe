"""Exact output laws: every random outcome of drafting and deciding, through the real policies and rules, in float64.

Tables of random next-token logits stand for the models. A law over `length` tokens is composed round by round, with the room that
decode leaves each round. That is right because no two rounds share randomness. Every key must name its round's position, and no key
may be drawn twice in a round; every draw checks both.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterator

import torch

from engine.contracts import Drafter
from engine.rounds.guiding import ConstraintGuidedDrafter, Mask, mask_forbidden_logits
from engine.sampling import Sampling
from engine.tree import DraftTree

Law = dict[tuple[int, ...], float]


class Branching(Sampling):
    """Follows a script of decisions. Beyond its end it takes the first possible decision and notes the others."""

    def start(self, script: list[int], position: int | None) -> None:
        self.__dict__.update(script=script, position=position, taken=[], weight=1.0, open=[], keys=set())

    def decide(self, weights: list[float]) -> int:
        at, total = len(self.taken), sum(weights)
        options = [index for index, weight in enumerate(weights) if weight > 0]
        if at < len(self.script):
            choice = self.script[at]
        else:
            choice = options[0]
            self.open.extend([*self.taken, other] for other in options[1:])
        self.taken.append(choice)
        self.__dict__["weight"] *= weights[choice] / total
        return choice

    def note(self, key: tuple) -> None:
        assert key not in self.keys and self.position in (None, key[1]), key
        self.keys.add(key)

    def draw_index_by_weight(self, weights: torch.Tensor, *key) -> int:
        self.note(key)
        return self.decide(weights.tolist())

    def draw_acceptance(self, probability: float, *key) -> bool:
        self.note(key)
        probability = min(1.0, probability)
        return bool(self.decide([1 - probability, probability]))

    def draw_with_replacement(self, q: torch.Tensor, counts: list[int], *key) -> list[list[tuple[int, float]]]:
        self.note(key)
        rows = zip(q.tolist(), counts, strict=True)
        return [[(token, row[token]) for token in (self.decide(row) for _ in range(count))] for row, count in rows]

    def draw_without_replacement(self, q: torch.Tensor, most: int, *key) -> list[Iterator[tuple[int, float]]]:
        self.note(key)
        return [self.successive(row, most) for row in q.tolist()]

    def successive(self, row: list[float], most: int) -> Iterator[tuple[int, float]]:
        left = row[:]
        for _ in range(most):
            if sum(left) <= 0:
                return
            token = self.decide(left)
            left[token] = 0.0
            yield token, row[token]


class Tables:
    """Random next-token logits by context, for the target ("p") and the draft ("q").

    Behind a guess of a `silent` token the draft has no guess. Texts end with the tokens `stop_ids`.
    """

    silent: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset()

    def __init__(self, seed: int, vocab: int = 3):
        self.seed, self.vocab, self.rows = seed, vocab, {}

    def logits(self, kind: str, context: tuple[int, ...]) -> torch.Tensor:
        if (kind, context) not in self.rows:
            rng = random.Random(f"{self.seed} {kind} {context}")
            self.rows[kind, context] = torch.tensor([rng.gauss(0, 1.5) for _ in range(self.vocab)], dtype=torch.float64)
        return self.rows[kind, context]

    def right(self, context: tuple[int, ...]) -> torch.Tensor:
        """The logits that the next token's own law is made of."""
        return self.logits("p", context)

    def drafter(self, context: tuple[int, ...]) -> Drafter:
        return TableDrafter(self, context)

    def verify(self, tree: DraftTree, context: tuple[int, ...]) -> torch.Tensor:
        return torch.stack([self.logits("p", (*context, *tokens_to(tree, node))) for node in range(len(tree))])


class TableDrafter(Drafter):
    title, draft_forward_count = "table", 0

    def __init__(self, tables: Tables, context: tuple[int, ...]):
        self.tables, self.context, self.stop_ids = tables, context, tables.stop_ids

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        if all(node and tree.tokens[node] in self.tables.silent for node in nodes):
            return None
        rows = [self.tables.logits("q", (*self.context, *tokens_to(tree, node))) for node in nodes]
        return torch.stack(rows).log_softmax(-1)


def tokens_to(tree: DraftTree, node: int) -> list[int]:
    return [tree.tokens[each] for each in tree.path_below_root(node)]


class Bound(Tables):
    """Tables under a constraint that forbids tokens at random by the text so far, never all. Some texts leave one token alone.

    `mask` is what `engine.rounds.guiding` does with the target's logits; `guesses` says how drafts are guided.
    """

    def __init__(self, seed: int, vocab: int = 3, guesses: str = "masked", mask: Mask = mask_forbidden_logits):
        super().__init__(seed, vocab)
        self.guesses, self.mask, self.allowed = guesses, mask, {}

    def row(self, context: tuple[int, ...]) -> torch.Tensor:
        if context not in self.allowed:
            rng = random.Random(f"{self.seed} allowed {context}")
            one = rng.randrange(self.vocab)
            self.allowed[context] = torch.tensor([token == one or rng.random() < 0.5 for token in range(self.vocab)])
        return self.allowed[context]

    def right(self, context: tuple[int, ...]) -> torch.Tensor:
        return super().right(context).masked_fill(~self.row(context), -math.inf)

    def drafter(self, context: tuple[int, ...]) -> Drafter:
        inner = super().drafter(context)
        return inner if self.guesses == "free" else ConstraintGuidedDrafter(inner, BoundText(self, context))

    def verify(self, tree: DraftTree, context: tuple[int, ...]) -> torch.Tensor:
        return self.mask(BoundText(self, context), tree, super().verify(tree, context))


class BoundText:
    """A `ConstraintGuide` behind a context, out of tables."""

    def __init__(self, tables: Bound, context: tuple[int, ...]):
        self.tables, self.context, self.draft_masking = tables, context, tables.guesses

    def allowed_mask(self, path: tuple[int, ...] = ()) -> torch.Tensor:
        return self.tables.row((*self.context, *path))

    def forced_tokens_after(self, path: tuple[int, ...] = (), max_tokens: int = 1) -> list[int]:
        return []

    def advance(self, tokens: list[int]) -> None:
        self.context = (*self.context, *tokens)


def one_round(tables: Tables, context: tuple[int, ...], policy, rule, sampling: Sampling, room: int) -> tuple[int, ...]:
    """The context behind one real round of drafting and deciding."""
    tree = policy.grow(tables.drafter(context), 0, len(context), sampling, room)
    verdict = rule.decide(tree, tables.verify(tree, context), sampling, len(context))
    return (*context, *(tree.tokens[node] for node in verdict.path), verdict.bonus)


def law_of(
    tables: Tables,
    policy,
    rule,
    temperature: float,
    length: int,
    sampling: type[Branching] = Branching,
    stop: int | None = None,
) -> Law:
    """The law of the first `length` tokens, composed from the laws of single rounds. A text ends with the token `stop`."""
    law, rounds = defaultdict(float, {(): 1.0}), sampling(temperature=temperature)
    for written in range(length):
        for context in [context for context in law if len(context) == written and context[-1:] != (stop,)]:
            reached, scripts = law.pop(context), [[]]
            while scripts:
                rounds.start(scripts.pop(), position=written)
                text = one_round(tables, context, policy, rule, rounds, length - written - 1)
                law[text[: text.index(stop) + 1] if stop in text else text] += reached * rounds.weight
                scripts += rounds.open
    return law


def joint_law_of(tables: Tables, policy, rule, temperature: float, length: int, sampling: type[Branching]) -> Law:
    """The same over whole texts at once, so that rounds may share randomness."""
    law, rounds, scripts = defaultdict(float), sampling(temperature=temperature), [[]]
    while scripts:
        rounds.start(scripts.pop(), position=None)
        context: tuple[int, ...] = ()
        while len(context) < length:
            context = one_round(tables, context, policy, rule, rounds, length - len(context) - 1)
        law[context] += rounds.weight
        scripts += rounds.open
    return law


def target_law(tables: Tables, temperature: float, length: int, stop: int | None = None) -> Law:
    laws: Law = {(): 1.0}
    sampling = Sampling(temperature=temperature)
    for _ in range(length):
        ended = {context: weight for context, weight in laws.items() if context[-1:] == (stop,)}
        laws = ended | {
            (*context, token): weight * p
            for context, weight in laws.items()
            if context not in ended
            for token, p in enumerate(sampling.probabilities(tables.right(context)).tolist())
        }
    return laws


def distance(a: Law, b: Law) -> float:
    """The total variation distance of two laws."""
    return sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in {*a, *b}) / 2
