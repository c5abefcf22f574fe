"""Batch: how the gain shrinks when many prompts are decoded at once. Knows batches and seconds.

A run's seconds are those of its phases, prefill included, and all its tokens count. Both sides read prompts one by one. Drafts grow
sequence by sequence; a serving engine would batch them too, so where drafts are forwards the crossing is a lower bound. `auto` reckons
with the costs of the whole batch, on a straight line beyond 64 rows, until its last sequence ends.
"""

from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from tqdm import tqdm

from engine.lab.pays.rounding import rounding_threshold_of
from engine.measure.curves.batches import BatchRun, decode_batch_in_steps, sequences_of
from engine.measure.racing import run_to_end
from engine.measure.ways import decode_plainly, iterate_rounds, rotate_names
from engine.models.cache_memory import describe_excess_size
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, Settings, encode_prompt
from engine.record.disturbance import BUSY, describe_batch_disturbance
from engine.record.trace import first_divergence
from engine.sampling import Sampling
from engine.systems import find
from engine.tree import LARGEST_TREE

REPEATS = 3  # runs of everything that is compared
WARM_UP_TOKENS = 4
LARGEST_BATCH = 256


@dataclass(frozen=True)
class BatchRequest:
    """A sequence to write: the prompt's tokens, its noise, and what plain decoding alone writes."""

    prompt: list[int]
    sampling: Sampling
    alone: list[int]


def parse_numbers(option: str, text: str, most: int) -> list[int]:
    """Whole numbers between 1 and `most`, separated by commas. Raises `ValueError` unless they ascend."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} must be whole numbers separated by commas, got {text!r}.") from None
    if not all(1 <= number <= most for number in found) or any(left >= right for left, right in pairwise(found)):
        raise ValueError(f"{option} must be ascending numbers between 1 and {most:,}, got {text!r}.")
    return found


def build_batch_requests(pair: LoadedPair, prompts: list[str], settings: Settings, count: int) -> list[BatchRequest]:
    """So many sequences: the prompts in turn, with another seed every time around."""
    with pair.target.without_torch_threads():
        return [
            BatchRequest(prompt, sampling, decode_plainly(pair, prompt, settings.max_new_tokens, sampling))
            for prompt, sampling in tqdm(sequences_of(pair, prompts, settings, count), desc="texts", unit="text")
        ]


def run_batch(pair: LoadedPair, setting: str, requests: list[BatchRequest], tokens: int) -> BatchRun:
    """A batch of these sequences, written by the setting."""
    return run_to_end(
        decode_batch_in_steps(pair, setting, [(text.prompt, text.sampling) for text in requests], tokens), int
    )


def is_rounding_difference(pair: LoadedPair, text: BatchRequest, tokens: list[int]) -> bool:
    """Whether rounding explains the first difference from plain decoding's text: both tokens are near the best one there."""
    at = first_divergence(text.alone, tokens)
    if at is None or at == min(len(text.alone), len(tokens)):
        return False
    *_, last = iterate_rounds(pair, find(BASELINE), text.prompt, at + 1, text.sampling)
    logits, sampling = last.logits[:1], text.sampling
    scores = sampling.add_gumbel_noise(logits, [len(text.prompt) + at])[0].cpu().double() * (sampling.temperature or 1)
    below = max(float(scores.max() - scores[written[at]]) for written in (text.alone, tokens))
    return below <= rounding_threshold_of(pair, logits[0].float(), [pair.dtype])


def select_batch_settings(rows: list[dict]) -> list[str]:
    """The settings that decode batches, of the report's rows: the best one that writes plain decoding's tokens, and `auto`."""
    able = [row for row in rows if row["guarantee"] == "tokens"]
    best = max(able, key=lambda row: row["speedup"])["setting"] if able else None
    return [setting for setting in dict.fromkeys((best, "auto")) if setting in {row["setting"] for row in able}]


def measure_batch_curve(
    pair: LoadedPair, prompts: list[str], settings: list[str], sizes: list[int], base_settings: Settings
) -> dict:
    """Tokens a second of plain decoding and of every setting at every size that fits."""
    tokens = base_settings.max_new_tokens
    rows = min(pair.context, max(len(encode_prompt(pair, prompt)) for prompt in prompts) + tokens) + LARGEST_TREE
    refused = [{"batch": size, "why": why} for size in sizes if (why := describe_excess_size(pair, size, rows))]
    sizes = [size for size in sizes if size not in {each["batch"] for each in refused}]
    texts, lanes = build_batch_requests(pair, prompts, base_settings, max(sizes, default=0)), [BASELINE, *settings]
    by_size: dict[int, dict[str, list[BatchRun]]] = {size: {lane: [] for lane in lanes} for size in sizes}
    work = [
        (size, again, lane) for size in sizes for again in range(REPEATS + 1) for lane in rotate_names(lanes, again)
    ]
    for size, again, lane in tqdm(work, desc="batches", unit="run"):
        found = run_batch(pair, lane, texts[:size], tokens if again else min(WARM_UP_TOKENS, tokens))
        by_size[size][lane] += [found] if again else []
    return {
        "repeats": REPEATS,
        "tokens": tokens,
        "prompts": len(prompts),
        "cycled": max(sizes, default=0) > len(prompts),
        "settings": [
            {"setting": setting}
            | summarise_setting([build_batch_point(pair, size, by_size[size], setting, texts) for size in sizes])
            for setting in settings
        ],
        "refused": refused,
    }


def summarise_setting(points: list[dict]) -> dict:
    """A setting's points, and the first size at which it is slower than plain decoding, None when there is none."""
    crossing = next((each["batch"] for each in points if each["speedup"] < 1), None)
    return {"points": points, "crossing": crossing}


def build_batch_point(
    pair: LoadedPair, size: int, runs: dict[str, list[BatchRun]], setting: str, requests: list[BatchRequest]
) -> dict:
    """A setting's figures at one size: of each side the run of the median speed counts, and `disturbed` is about it.

    `unlike` counts sequences with another text than alone, on either side and in any run; `near_ties` those that rounding explains.
    """
    plain, mine = (sorted(runs[lane], key=attrgetter("speed"))[len(runs[lane]) // 2] for lane in (BASELINE, setting))
    unlike = {}
    for each in runs[BASELINE] + runs[setting]:
        for number, (text, written) in enumerate(zip(requests, each.texts, strict=False)):
            if written != text.alone:
                unlike[number] = is_rounding_difference(pair, text, written) and unlike.get(number, True)
    return {
        "batch": size,
        "plain_tokens_per_s": plain.speed,
        "tokens_per_s": mine.speed,
        "speedup": mine.speed / plain.speed,
        "tau": mine.tokens / mine.rounds,
        "identical": not unlike,
        "unlike": len(unlike),
        "near_ties": sum(unlike.values()),
        "disturbed": describe_disturbance(BASELINE, plain, runs[BASELINE])
        or describe_disturbance(setting, mine, runs[setting]),
    }


def describe_disturbance(setting: str, run: BatchRun, runs: list[BatchRun]) -> str:
    """Why the clocks of the run that counts do not show its cost, "" where nothing disturbed them."""
    return describe_batch_disturbance(
        setting, run.steps, [each.steps for each in runs], run.waited > BUSY * run.seconds
    )
