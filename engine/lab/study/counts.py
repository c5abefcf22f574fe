"""Counts: what a system writes and spends on each text, and what a rule keeps of another system's trees. Times nothing."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from statistics import mean
from typing import NamedTuple

from engine.acceptance import ACCEPTANCES
from engine.measure.racing import run_races, run_to_result
from engine.measure.ways import iterate_rounds
from engine.models.earlier_texts import AnswerMemory
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, Settings, encode_prompt
from engine.record.trace import Trace
from engine.sampling import Sampling
from engine.systems import find_system

JUDGEMENTS = 6  # of each tree by each rule, with random numbers of their own


class TextCounts(NamedTuple):
    """Of one text. `tokens` are those written, or those expected of a rule that judges another system's trees."""

    tokens: float
    forwards: int
    nodes: int = 0
    draft_forwards: int = 0


def sum_counts(counts: Sequence[TextCounts]) -> TextCounts:
    return TextCounts(*map(sum, zip(*counts, strict=True)))


def write_texts(
    pair: LoadedPair, prompts: list[str], system: str, tokens: int, temperature: float, constraint: str = ""
) -> list[Trace]:
    """What one system does behind each prompt."""
    settings = Settings("a prompt", temperature=temperature, max_new_tokens=tokens, constraint=constraint)
    runs = run_to_result(run_races(pair, prompts, [system], settings, beside=(), timed=False))
    return [each.raced[system][0].trace for each in runs]


def count_text(trace: Trace) -> TextCounts:
    nodes = sum(len(step.tokens) for step in trace.steps)
    return TextCounts(len(trace.tokens), trace.forwards, nodes, trace.draft_forwards)


def count_rules_on_same_trees(
    pair: LoadedPair, prompts: list[str], system: str, rules: Sequence[str], tokens: int, temperature: float
) -> dict[str, list[list[float]]]:
    """The rules on the very same trees, those of the system's run: by rule, text and round the expected tokens of the round."""
    mix, sampling = find_system(system), Sampling(temperature)
    found: dict[str, list[list[float]]] = {rule: [] for rule in rules}
    for prompt in prompts:
        for texts in found.values():
            texts.append([])
        for done in iterate_rounds(pair, mix, encode_prompt(pair, prompt), tokens, sampling):
            for rule, texts in found.items():
                tries = (Sampling(temperature, seed=seed) for seed in range(1, JUDGEMENTS + 1))
                part = ACCEPTANCES[rule]()
                texts[-1].append(
                    mean(1 + len(part.decide(done.tree, done.logits, each, done.position).path) for each in tries)
                )
    return found


def write_self_repeating_prompts(pair: LoadedPair, prompts: list[str], tokens: int) -> list[str]:
    """Texts that repeat themselves: each prompt, what the target writes behind it at temperature 0, and the prompt once more.

    Raises `ValueError` where that does not fit the context.
    """
    answers = write_texts(pair, prompts, BASELINE, tokens, 0.0)
    texts = [f"{prompt}{answer.text}\n\n{prompt}" for prompt, answer in zip(prompts, answers, strict=True)]
    for text in texts:
        encode_prompt(pair, text)
    return texts


class StudyCounts:
    """All counts of a study over the same prompts. What two claims need is counted once."""

    def __init__(self, pair: LoadedPair, prompts: list[str], tokens: int):
        self.pair, self.prompts, self.tokens = pair, prompts, tokens
        self.known: dict[tuple, list[TextCounts]] = {}

    @cached_property
    def repeated_prompts(self) -> list[str]:
        return write_self_repeating_prompts(self.pair, self.prompts, self.tokens)

    def counts_of_system(
        self, name: str, temperature: float, repeated: bool = False, memory: bool = False, constraint: str = ""
    ) -> list[TextCounts]:
        """With `memory` a drafter may copy from what it wrote for earlier prompts; their order then counts."""
        key = (name, temperature, repeated, memory, constraint)
        if key not in self.known:
            pair = replace(self.pair, memory=AnswerMemory()) if memory else self.pair
            prompts = self.repeated_prompts if repeated else self.prompts
            traces = write_texts(pair, prompts, name, self.tokens, temperature, constraint)
            self.known[key] = [*map(count_text, traces)]
        return self.known[key]

    def counts_of_rules(self, drafts: str, rules: tuple[str, ...], temperature: float) -> list[list[TextCounts]]:
        """By rule and text, on the trees of the system `drafts`."""
        if missing := [rule for rule in rules if (drafts, rule, temperature) not in self.known]:
            found = count_rules_on_same_trees(self.pair, self.prompts, drafts, missing, self.tokens, temperature)
            for rule, texts in found.items():
                self.known[drafts, rule, temperature] = [TextCounts(sum(rounds), len(rounds)) for rounds in texts]
        return [self.known[drafts, rule, temperature] for rule in rules]
