"""Batches: many sequences decoded with one target forward a round, in steps. Knows seconds; knows no curve.

A run's seconds are those of its phases, prefill included, and all its tokens count. Prompts are read one by one, and drafts grow
sequence by sequence; a serving engine would batch them too.
"""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from engine.batch import decode_batch_round_by_round
from engine.measure.racing import median_run_of
from engine.measure.ways import rotate_names
from engine.models.cache_memory import explain_cache_overflow
from engine.models.constraint import compile_pair_constraint
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, Settings, encode_prompt
from engine.record.disturbance import BUSY, describe_batch_disturbance
from engine.record.quiet import WorkSignal
from engine.sampling import Sampling
from engine.systems import resolve_system_name
from engine.tree import LARGEST_TREE

RUNS = 3  # of every batch, behind one that warms up
WARM_UP_TOKENS = 4


@dataclass(frozen=True)
class BatchRun:
    """What a batch wrote, sequence by sequence, in how many `sequence_rounds`, counted by sequence.

    `round_seconds` are those of every round of all sequences. In `seconds_without_processor` this thread had no processor.
    """

    tokens_by_sequence: list[list[int]]
    round_seconds: list[float]
    sequence_rounds: int
    seconds_without_processor: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(self.round_seconds)

    @property
    def token_count(self) -> int:
        return sum(map(len, self.tokens_by_sequence))

    @property
    def tokens_per_second(self) -> float:
        return self.token_count / self.seconds


def build_prompt_noise_sequences(
    pair: LoadedPair, prompts: list[str], settings: Settings, count: int
) -> list[tuple[list[int], Sampling]]:
    """So many sequences, each its prompt's tokens and its noise: the prompts in turn, with another seed every time around."""
    bound, device = compile_pair_constraint(pair, settings.constraint), pair.target.noise_place
    return [
        (
            encode_prompt(pair, prompts[index % len(prompts)]),
            Sampling(settings.temperature, seed=settings.seed + index // len(prompts), device=device, constraint=bound),
        )
        for index in range(count)
    ]


def decode_batch_in_steps(
    pair: LoadedPair, system_setting: str, sequences: list[tuple[list[int], Sampling]], max_tokens: int
) -> Generator[WorkSignal, None, BatchRun]:
    """Returns a batch of these sequences, written by the setting. Closing it frees every cache."""
    written: list[list[int]] = [[] for _ in sequences]
    steps: list[float] = []
    last, rounds, waited = len(sequences), 0, 0.0
    prompts, samplings = [prompt for prompt, _ in sequences], [sampling for _, sampling in sequences]
    decoding = decode_batch_round_by_round(pair, resolve_system_name(system_setting), prompts, samplings, max_tokens)
    with closing(decoding):  # type: ignore[type-var]  # a generator, which `Iterator` does not say
        while True:
            with pair.target.without_torch_threads():
                before = pair.target.seconds_without_processor()
                found = next(decoding, None)
                waited += pair.target.seconds_without_processor() - before
            if found is None:
                return BatchRun(written, steps, rounds, waited)
            number, done = found
            written[number] += done.burst
            steps += [0.0] if number <= last else []  # the first sequence that still runs begins a round of all
            steps[-1] += sum(done.seconds.values())
            last, rounds = number, rounds + 1
            yield WorkSignal.STEP


class BatchRuns(NamedTuple):
    """All runs of one size, by setting; plain decoding's too."""

    batch_size: int
    by_setting: dict[str, list[BatchRun]]

    def median_run(self, system_setting: str) -> BatchRun:
        return median_run_of(self.by_setting[system_setting], "tokens_per_second")

    def compute_figures_against_plain(self, system_setting: str) -> dict:
        """A setting's figures: of each side the run of the median speed counts, and `disturbed` is about it."""
        plain, mine = self.median_run(BASELINE), self.median_run(system_setting)
        return {
            "plain_tokens_per_s": plain.tokens_per_second,
            "tokens_per_s": mine.tokens_per_second,
            "speedup": mine.tokens_per_second / plain.tokens_per_second,
            "tau": mine.token_count / mine.sequence_rounds,
            "disturbed": self.describe_disturbance(BASELINE) or self.describe_disturbance(system_setting),
        }

    def describe_disturbance(self, system_setting: str) -> str:
        """Why the clocks of the run that counts do not show its cost, "" where nothing disturbed them."""
        run, runs = self.median_run(system_setting), [each.round_seconds for each in self.by_setting[system_setting]]
        return describe_batch_disturbance(
            system_setting, run.round_seconds, runs, run.seconds_without_processor > BUSY * run.seconds
        )


def split_batch_sizes_fitting_memory(
    pair: LoadedPair, prompts: list[str], batch_sizes: list[int], max_tokens: int
) -> tuple[list[int], dict[int, str]]:
    """The sizes whose caches fit the memory, and of each other one why not."""
    rows = min(pair.context, max(len(encode_prompt(pair, prompt)) for prompt in prompts) + max_tokens) + LARGEST_TREE
    refused = {size: why for size in batch_sizes if (why := explain_cache_overflow(pair, size, rows))}
    return [size for size in batch_sizes if size not in refused], refused


def run_batches(
    pair: LoadedPair,
    system_settings: list[str],
    sequences: list[tuple[list[int], Sampling]],
    batch_sizes: list[int],
    max_tokens: int,
) -> Generator[WorkSignal | BatchRuns, None, None]:
    """Plain decoding and every setting in turn write the first sequences of each size; yields all runs of a size at its end.

    A `WorkSignal.PIECE` follows each run, of which there are `RUNS` and one that warms up. Closing it frees every cache.
    """
    for size in batch_sizes:
        runs: dict[str, list[BatchRun]] = {setting: [] for setting in (BASELINE, *system_settings)}
        for turn in range(RUNS + 1):
            for setting in rotate_names(runs, turn):
                most = max_tokens if turn else min(WARM_UP_TOKENS, max_tokens)
                run = yield from decode_batch_in_steps(pair, setting, sequences[:size], most)
                runs[setting] += [run] if turn else []
                yield WorkSignal.PIECE
        yield BatchRuns(size, runs)
