"""Batch: how the gain shrinks when many prompts are decoded at once. Knows batches and seconds.

A run's seconds are those of its phases, prefill included, and all its tokens count. Both sides read prompts one by one. Drafts grow
sequence by sequence; a serving engine would batch them too, so where drafts are forwards the crossing is a lower bound. `auto` reckons
with the costs of the whole batch, on a straight line beyond 64 rows, until its last sequence ends.
"""

from dataclasses import dataclass
from itertools import pairwise

from tqdm import tqdm

from engine.lab.pays.rounding import rounding_threshold_of
from engine.measure.curves.batches import (
    RUNS,
    BatchRuns,
    build_prompt_noise_sequences,
    run_batches,
    split_batch_sizes_fitting_memory,
)
from engine.measure.ways import decode_plainly, iterate_rounds
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, Settings
from engine.record.quiet import WorkSignal
from engine.record.trace import first_divergence
from engine.sampling import Sampling
from engine.systems import resolve_system_name

LARGEST_BATCH = 256


@dataclass(frozen=True)
class BatchSequence:
    """A sequence to write: the prompt's tokens, its noise, and what plain decoding alone writes."""

    prompt_ids: list[int]
    sampling: Sampling
    plain_tokens: list[int]


def parse_ascending_numbers(option: str, text: str, largest: int) -> list[int]:
    """Whole numbers between 1 and `largest`, separated by commas. Raises `ValueError` unless they ascend."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} must be whole numbers separated by commas, got {text!r}.") from None
    if not all(1 <= number <= largest for number in found) or any(left >= right for left, right in pairwise(found)):
        raise ValueError(f"{option} must be ascending numbers between 1 and {largest:,}, got {text!r}.")
    return found


def build_sequences_with_plain_tokens(
    pair: LoadedPair, prompts: list[str], settings: Settings, count: int
) -> list[BatchSequence]:
    """So many sequences: the prompts in turn, with another seed every time around."""
    with pair.target.without_torch_threads():
        return [
            BatchSequence(prompt, sampling, decode_plainly(pair, prompt, settings.max_new_tokens, sampling))
            for prompt, sampling in tqdm(
                build_prompt_noise_sequences(pair, prompts, settings, count), desc="texts", unit="text"
            )
        ]


def is_rounding_difference(pair: LoadedPair, sequence: BatchSequence, batch_tokens: list[int]) -> bool:
    """Whether rounding explains the first difference from plain decoding's text: both tokens are near the best one there."""
    at = first_divergence(sequence.plain_tokens, batch_tokens)
    if at is None or at == min(len(sequence.plain_tokens), len(batch_tokens)):
        return False
    *_, last = iterate_rounds(pair, resolve_system_name(BASELINE), sequence.prompt_ids, at + 1, sequence.sampling)
    logits, sampling = last.logits[:1], sequence.sampling
    scores = sampling.scale_logits_and_add_gumbel_noise(logits, [len(sequence.prompt_ids) + at])[0].cpu().double() * (
        sampling.temperature or 1
    )
    below = max(float(scores.max() - scores[written[at]]) for written in (sequence.plain_tokens, batch_tokens))
    return below <= rounding_threshold_of(pair, logits[0].float(), [pair.dtype])


def select_best_token_exact_setting_and_auto(report_rows: list[dict]) -> list[str]:
    """The settings that decode batches, of the report's rows: the best one that writes plain decoding's tokens, and `auto`."""
    able = [row for row in report_rows if row["guarantee"] == "tokens"]
    best = max(able, key=lambda row: row["speedup"])["setting"] if able else None
    return [setting for setting in dict.fromkeys((best, "auto")) if setting in {row["setting"] for row in able}]


def measure_throughput_by_batch_size(
    pair: LoadedPair, prompts: list[str], system_settings: list[str], batch_sizes: list[int], race_settings: Settings
) -> dict:
    """Tokens a second of plain decoding and of every setting at every size that fits."""
    tokens, points = race_settings.max_new_tokens, {setting: list[dict]() for setting in system_settings}
    batch_sizes, refused = split_batch_sizes_fitting_memory(pair, prompts, batch_sizes, tokens)
    texts = build_sequences_with_plain_tokens(pair, prompts, race_settings, max(batch_sizes, default=0))
    sequences = [(text.prompt_ids, text.sampling) for text in texts]
    with tqdm(total=len(batch_sizes) * (RUNS + 1) * (1 + len(system_settings)), desc="batches", unit="run") as bar:
        for each in run_batches(pair, system_settings, sequences, batch_sizes, tokens):
            bar.update(each is WorkSignal.PIECE)
            if isinstance(each, BatchRuns):
                for setting in system_settings:
                    points[setting].append(compute_batch_speed_and_text_differences(pair, each, setting, texts))
    return {
        "repeats": RUNS,
        "tokens": tokens,
        "prompts": len(prompts),
        "cycled": max(batch_sizes, default=0) > len(prompts),
        "settings": [
            {"setting": setting} | points_and_first_losing_batch_size(points[setting]) for setting in system_settings
        ],
        "refused": [{"batch": size, "why": why} for size, why in refused.items()],
    }


def points_and_first_losing_batch_size(points: list[dict]) -> dict:
    """A setting's points, and the first size at which it is slower than plain decoding, None when there is none."""
    crossing = next((each["batch"] for each in points if each["speedup"] < 1), None)
    return {"points": points, "crossing": crossing}


def compute_batch_speed_and_text_differences(
    pair: LoadedPair, runs: BatchRuns, setting: str, sequences: list[BatchSequence]
) -> dict:
    """A setting's figures at one size.

    `unlike` counts sequences with another text than alone, on either side and in any run; `near_ties` those that rounding explains.
    """
    unlike = {}
    for each in runs.by_setting[BASELINE] + runs.by_setting[setting]:
        for number, (text, written) in enumerate(zip(sequences, each.tokens_by_sequence, strict=False)):
            if written != text.plain_tokens:
                unlike[number] = is_rounding_difference(pair, text, written) and unlike.get(number, True)
    same = {"identical": not unlike, "unlike": len(unlike), "near_ties": sum(unlike.values())}
    return {"batch": runs.batch_size} | runs.compute_figures_against_plain(setting) | same
