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
from engine.systems import resolve_system_name

JUDGEMENTS = 6  # of each tree by each rule, with random numbers of their own


class TextCounts(NamedTuple):
    """Of one text. `tokens` are those written, or those expected of a rule that judges another system's trees."""

    tokens: float
    target_forwards: int
    nodes: int = 0
    draft_forwards: int = 0


def sum_counts(counts: Sequence[TextCounts]) -> TextCounts:
    return TextCounts(*map(sum, zip(*counts, strict=True)))


def decode_prompts_untimed(
    pair: LoadedPair, prompts: list[str], system: str, max_tokens: int, temperature: float, constraint: str = ""
) -> list[Trace]:
    """What one system does behind each prompt."""
    settings = Settings("a prompt", temperature=temperature, max_new_tokens=max_tokens, constraint=constraint)
    runs = run_to_result(run_races(pair, prompts, [system], settings, lanes_in_every_race=(), is_timed=False))
    return [each.results_by_setting[system][0].trace for each in runs]


def counts_of_trace(trace: Trace) -> TextCounts:
    nodes = sum(len(step.tokens) for step in trace.steps)
    return TextCounts(len(trace.tokens), trace.target_forwards, nodes, trace.draft_forwards)


def expected_tokens_of_rules_on_same_trees(
    pair: LoadedPair,
    prompts: list[str],
    tree_system: str,
    acceptance_rules: Sequence[str],
    max_tokens: int,
    temperature: float,
) -> dict[str, list[list[float]]]:
    """The rules on the very same trees, those of the system's run: by rule, text and round the expected tokens of the round."""
    mix, sampling = resolve_system_name(tree_system), Sampling(temperature)
    found: dict[str, list[list[float]]] = {rule: [] for rule in acceptance_rules}
    for prompt in prompts:
        for texts in found.values():
            texts.append([])
        for done in iterate_rounds(pair, mix, encode_prompt(pair, prompt), max_tokens, sampling):
            for rule, texts in found.items():
                tries = (Sampling(temperature, seed=seed) for seed in range(1, JUDGEMENTS + 1))
                part = ACCEPTANCES[rule]()
                texts[-1].append(
                    mean(1 + len(part.decide(done.tree, done.logits, each, done.position).path) for each in tries)
                )
    return found


def write_self_repeating_prompts(pair: LoadedPair, prompts: list[str], answer_tokens: int) -> list[str]:
    """Texts that repeat themselves: each prompt, what the target writes behind it at temperature 0, and the prompt once more.

    Raises `ValueError` where that does not fit the context.
    """
    answers = decode_prompts_untimed(pair, prompts, BASELINE, answer_tokens, 0.0)
    texts = [f"{prompt}{answer.text}\n\n{prompt}" for prompt, answer in zip(prompts, answers, strict=True)]
    for text in texts:
        encode_prompt(pair, text)
    return texts


class CachedStudyCounts:
    """All counts of a study over the same prompts. What two claims need is counted once."""

    def __init__(self, pair: LoadedPair, prompts: list[str], max_tokens: int):
        self.pair, self.prompts, self.max_tokens = pair, prompts, max_tokens
        self.known: dict[tuple, list[TextCounts]] = {}

    @cached_property
    def self_repeating_prompts(self) -> list[str]:
        return write_self_repeating_prompts(self.pair, self.prompts, self.max_tokens)

    def counts_of_system(
        self,
        system: str,
        temperature: float,
        on_repeating_texts: bool = False,
        with_answer_memory: bool = False,
        constraint: str = "",
    ) -> list[TextCounts]:
        """With `with_answer_memory` a drafter may copy from what it wrote for earlier prompts; their order then counts."""
        key = (system, temperature, on_repeating_texts, with_answer_memory, constraint)
        if key not in self.known:
            pair = replace(self.pair, memory=AnswerMemory()) if with_answer_memory else self.pair
            prompts = self.self_repeating_prompts if on_repeating_texts else self.prompts
            traces = decode_prompts_untimed(pair, prompts, system, self.max_tokens, temperature, constraint)
            self.known[key] = [*map(counts_of_trace, traces)]
        return self.known[key]

    def counts_of_rules(
        self, tree_system: str, acceptance_rules: tuple[str, ...], temperature: float
    ) -> list[list[TextCounts]]:
        """By rule and text, on the trees of the system `tree_system`."""
        if missing := [rule for rule in acceptance_rules if (tree_system, rule, temperature) not in self.known]:
            found = expected_tokens_of_rules_on_same_trees(
                self.pair, self.prompts, tree_system, missing, self.max_tokens, temperature
            )
            for rule, texts in found.items():
                self.known[tree_system, rule, temperature] = [TextCounts(sum(rounds), len(rounds)) for rounds in texts]
        return [self.known[tree_system, rule, temperature] for rule in acceptance_rules]
