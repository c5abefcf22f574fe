"""Batches: many sequences decoded with one target forward a round, in steps. Knows seconds; knows no curve.

A run's seconds are those of its phases, prefill included, and all its tokens count. Prompts are read one by one, and drafts grow
sequence by sequence; a serving engine would batch them too.
"""

from contextlib import closing
from dataclasses import dataclass

from engine.batch import decode_together
from engine.measure.racing import Work
from engine.models.constraint import compile_pair_constraint
from engine.models.pairs import LoadedPair
from engine.race import Settings, encode_prompt
from engine.record.quiet import WorkSignal
from engine.sampling import Sampling
from engine.systems import find


@dataclass(frozen=True)
class BatchRun:
    """What a batch wrote, sequence by sequence, in how many `rounds`, counted by sequence.

    `steps` are the seconds of every round of all sequences. `waited` are those in which this thread had no processor.
    """

    texts: list[list[int]]
    steps: list[float]
    rounds: int
    waited: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(self.steps)

    @property
    def tokens(self) -> int:
        return sum(map(len, self.texts))

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds


def sequences_of(
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
    pair: LoadedPair, setting: str, sequences: list[tuple[list[int], Sampling]], tokens: int
) -> Work[BatchRun]:
    """Returns a batch of these sequences, written by the setting. Closing it frees every cache."""
    written: list[list[int]] = [[] for _ in sequences]
    steps: list[float] = []
    last, rounds, waited = len(sequences), 0, 0.0
    prompts, samplings = [prompt for prompt, _ in sequences], [sampling for _, sampling in sequences]
    decoding = decode_together(pair, find(setting), prompts, samplings, tokens)
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
