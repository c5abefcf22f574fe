"""Context: what guessing gains behind long contexts. Knows races and lengths.

Speedups compare the seconds of decoding a token, because all sides read the prompt alike. `auto` reckons with forwards behind 128
tokens at every length.
"""

from dataclasses import replace
from itertools import product
from operator import attrgetter

from tqdm import tqdm

from engine.measure.racing import PromptResult, add_results, race_undisturbed, run_to_end
from engine.measure.verdict import compute_ratios, geometric_mean
from engine.models.cache_memory import describe_excess_size
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, Settings, encode_prompt
from engine.record.race_file import worst_verdict_of
from engine.record.trace_statistics import tau
from engine.tree import LARGEST_TREE

PROMPTS = 5  # that are raced at each length, at most
LONGEST = 1_000_000  # tokens


def lengthen_prompt(pair: LoadedPair, prompts: list[str], index: int, length: int) -> list[int]:
    """The prompt's tokens behind those of the prompts before it in the file, `length` in all: a longer prompt loses its beginning.

    A token that begins texts stays first. Raises `ValueError` when no prompt has a token.
    """
    found = [encode_prompt(pair, prompt) for prompt in prompts]
    start = found[index][:1] if found[index][0] == pair.tokenizer.bos_token_id else []
    parts = [tokens[len(start) :] for tokens in found]
    if not any(parts):
        raise ValueError("The prompts have no tokens to make a context of.")
    tokens: list[int] = []
    while len(tokens) < length - len(start):
        tokens = parts[index % len(parts)] + tokens
        index -= 1
    return start + tokens[len(tokens) - length + len(start) :]


def select_context_settings(figures: dict) -> list[str]:
    """What is raced behind contexts: the best system's setting, and `auto` where it was raced."""
    rows = {row["name"]: row["setting"] for row in figures["systems"]}
    return list(dict.fromkeys(rows[name] for name in (figures["best"], "auto") if name in rows))


def explain_unraceable_length(pair: LoadedPair, length: int, lanes: int, tokens: int) -> str:
    """Why there is no race at this length, "" when there is one."""
    if length + tokens > pair.context:
        return f"{length:,} tokens of context are left out: the window holds {pair.context:,}, and {tokens} new tokens must fit too."
    return describe_excess_size(pair, lanes, length + tokens + LARGEST_TREE)


def measure_by_context_length(
    pair: LoadedPair, prompts: list[str], settings: list[str], lengths: list[int], base_settings: Settings
) -> dict:
    """Every setting against plain decoding behind every length of context that fits."""
    lanes, count = (BASELINE, *settings), min(PROMPTS, len(prompts))
    reasons = {
        length: explain_unraceable_length(pair, length, len(lanes), base_settings.max_new_tokens) for length in lengths
    }
    fits = [length for length, why in reasons.items() if not why]
    raced: dict[int, dict[str, list[PromptResult]]] = {length: {setting: [] for setting in settings} for length in fits}
    for length, index in tqdm([*product(raced, range(count))], desc="contexts", unit="race"):
        named = replace(base_settings, prompt=f"a context of {length} tokens", systems=lanes)
        tokens = lengthen_prompt(pair, prompts, index, length)
        add_results(raced[length], settings, run_to_end(race_undisturbed(pair, named, tokens), int))
    return {
        "tokens": base_settings.max_new_tokens,
        "prompts": count,
        "lengths": [
            {"context": length, "settings": [compute_figures(name, of_name) for name, of_name in found.items()]}
            for length, found in raced.items()
        ],
        "refused": [{"context": length, "why": why} for length, why in reasons.items() if why],
    }


def compute_figures(setting: str, results: list[PromptResult]) -> dict:
    """A setting's figures at one length. Speedups are geometric means over prompts. `disturbed` counts those with such clocks."""
    traces, plain, identical, disturbed = map(list, zip(*results, strict=True))
    without, whole = (
        compute_ratios([*map(seconds, plain)], [*map(seconds, traces)])
        for seconds in (attrgetter("decode_seconds_per_token"), attrgetter("seconds_per_token"))
    )
    return {
        "setting": setting,
        "plain_tokens_per_s": 1 / geometric_mean([trace.decode_seconds_per_token for trace in plain]),
        "speedup": geometric_mean(without),
        "speedup_with_prefill": geometric_mean(whole),
        "tau": tau(traces),
        "identical": worst_verdict_of(identical),
        "disturbed": sum(map(bool, disturbed)),
    }
