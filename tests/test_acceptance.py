"""Output laws by exact enumeration: every random outcome of several rounds, through the real policy and acceptance code.

A rule that is wrong by any of the known traps (bonus from p where the residual is due, q of another temperature, a row off by one)
shifts the joint law of three tokens by at least 0.01; the limit is 1e-9.
"""

import random
from collections import defaultdict

import pytest
import torch

from engine.acceptance.speculative import Speculative
from engine.policies.chain import Chain
from engine.sampling import Sampling
from engine.tree import DraftTree

VOCAB, LENGTH = 3, 3


class Branching(Sampling):
    """Follows a script of decisions; behind its end takes the first possible one and notes the others."""

    def start(self, script: list[int]) -> None:
        self.__dict__.update(script=script, taken=[], weight=1.0, open=[])

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

    def choose(self, weights: torch.Tensor, *key) -> int:
        return self.decide(weights.tolist())

    def accept(self, probability: float, *key) -> bool:
        probability = min(1.0, probability)
        return bool(self.decide([1 - probability, probability]))


class Tables:
    """Random next-token logits by context, for the target and the draft."""

    def __init__(self, seed: int):
        self.rng, self.rows = random.Random(seed), {}

    def logits(self, kind: str, context: tuple[int, ...]) -> torch.Tensor:
        if (kind, context) not in self.rows:
            self.rows[kind, context] = torch.tensor([self.rng.gauss(0, 1.5) for _ in range(VOCAB)], dtype=torch.float64)
        return self.rows[kind, context]


class TableDrafter:
    def __init__(self, tables: Tables, context: list[int]):
        self.tables, self.context = tables, context

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        return torch.stack(
            [self.tables.logits("q", tuple(self.context + path_to(tree, node))).log_softmax(-1) for node in nodes]
        )


def path_to(tree: DraftTree, node: int) -> list[int]:
    tokens = []
    while node > 0:
        tokens.insert(0, tree.tokens[node])
        node = tree.parents[node]
    return tokens


def write(tables: Tables, sampling: Sampling, depth: int, rule) -> tuple[int, ...]:
    """Rounds of drafting and deciding until LENGTH tokens are out; several rounds when drafts are rejected."""
    context: list[int] = []
    while len(context) < LENGTH:
        tree = Chain(depth, 1, 2, "drawn").grow(TableDrafter(tables, context), 0, len(context), sampling, room=9)
        logits = torch.stack([tables.logits("p", tuple(context + path_to(tree, node))) for node in range(len(tree))])
        verdict = rule.decide(tree, logits, sampling, len(context))
        context += [tree.tokens[node] for node in verdict.path] + [verdict.bonus]
    return tuple(context[:LENGTH])


def law_of(tables: Tables, temperature: float, depth: int, rule) -> dict[tuple[int, ...], float]:
    sampling, law, scripts = Branching(temperature=temperature), defaultdict(float), [[]]
    while scripts:
        sampling.start(scripts.pop())
        law[write(tables, sampling, depth, rule)] += sampling.weight
        scripts += sampling.open
    return law


def target_law(tables: Tables, temperature: float) -> dict[tuple[int, ...], float]:
    laws = {(): 1.0}
    for _ in range(LENGTH):
        laws = {
            (*context, token): weight * float(p)
            for context, weight in laws.items()
            for token, p in enumerate((tables.logits("p", context) / temperature).softmax(-1))
        }
    return laws


def distance(a: dict, b: dict) -> float:
    return sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in {*a, *b}) / 2


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_speculative_sampling_keeps_the_targets_joint_law(seed, depth):
    tables = Tables(seed)
    law = law_of(tables, 0.8, depth, Speculative())
    assert abs(sum(law.values()) - 1) < 1e-9
    assert distance(law, target_law(tables, 0.8)) < 1e-9


class BonusFromTarget(Speculative):
    """The planted bug: on a rejection the bonus is drawn from p instead of from the residual."""

    def decide(self, tree, logits, sampling, position):
        class Deaf(type(sampling)):
            def choose(self, weights, purpose, *key):
                return super().choose(self.target if purpose == "residual" else weights, purpose, *key)

        sampling.__class__, kept = Deaf, sampling.__class__
        sampling.__dict__["target"] = sampling.probabilities(logits[0])
        verdict = super().decide(tree, logits, sampling, position)
        sampling.__class__ = kept
        return verdict


def test_the_enumeration_sees_a_biased_bonus():
    assert distance(law_of(Tables(0), 0.8, 1, BonusFromTarget()), target_law(Tables(0), 0.8)) > 0.01
