"""Context: what guessing gains behind long contexts. Knows races and lengths; prints nothing.

The file's first prompts are made longer: other prompts of the file stand before them, in turn, until a prompt has exactly that many
tokens. Longer prompts lose their beginning. Speedups compare the seconds of decoding a token, because all sides read the prompt alike;
with prefill they are told too. `auto` reckons with forwards behind 128 tokens at every length.
"""

from collections.abc import Callable

from engine.measure.bench import decode_seconds_per_token, seconds_per_token
from engine.measure.pays.racing import Raced, Wish
from engine.measure.pays.verdict import mean, ratios
from engine.models.cache_memory import too_large
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, Lane, encoded, to_their_ends
from engine.record.race_file import compare, worst_of
from engine.sampling import Sampling
from engine.systems import find
from engine.tree import LARGEST_TREE

PROMPTS = 5  # that are raced at each length, at most
LONGEST = 1_000_000  # tokens


def lengthened(pair: LoadedPair, prompts: list[str], index: int, length: int) -> list[int]:
    """The prompt's tokens behind those of the prompts before it in the file, `length` in all. A token that begins texts stays first.

    Raises `ValueError` when no prompt has a token.
    """
    found = [encoded(pair, prompt) for prompt in prompts]
    start = found[index][:1] if found[index][0] == pair.tokenizer.bos_token_id else []
    parts = [tokens[len(start) :] for tokens in found]
    if not any(parts):
        raise ValueError("The prompts have no tokens to make a context of.")
    tokens: list[int] = []
    while len(tokens) < length - len(start):
        tokens = parts[index % len(parts)] + tokens
        index -= 1
    return start + tokens[len(tokens) - length + len(start) :]


def settings_for(figures: dict) -> list[str]:
    """What is raced behind contexts: the best system's setting, and `auto` where it was raced."""
    rows = {row["name"]: row["setting"] for row in figures["systems"]}
    return list(dict.fromkeys(rows[name] for name in (figures["best"], "auto") if name in rows))


def why_not(pair: LoadedPair, length: int, lanes: int, tokens: int) -> str:
    """Why there is no race at this length, "" when there is one."""
    if length + tokens > pair.context:
        return f"{length:,} tokens of context are left out: the window holds {pair.context:,}, and {tokens} new tokens must fit too."
    return too_large(pair, lanes, length + tokens + LARGEST_TREE)


def races(prompts: int, lengths: list[int]) -> int:
    """How often `by_length` tells that something is done, where every length fits."""
    return min(PROMPTS, prompts) * len(lengths)


def by_length(
    pair: LoadedPair,
    prompts: list[str],
    settings: list[str],
    lengths: list[int],
    wish: Wish,
    tell: Callable[[], object],
) -> dict:
    """Every setting against plain decoding behind every length of context, as plain values.

    A length that the window or the memory does not hold is left out with a sentence. `tell` is called after every race.
    """
    lanes, lengths_raced, refused = (BASELINE, *settings), [], []
    for length in lengths:
        if why := why_not(pair, length, len(lanes), wish.tokens):
            refused.append({"context": length, "why": why})
            continue
        raced = {setting: Raced() for setting in settings}
        for index in range(min(PROMPTS, len(prompts))):
            keep(raced, race(pair, lengthened(pair, prompts, index, length), lanes, wish))
            tell()
        lengths_raced.append({"context": length, "settings": [figures(name, raced[name]) for name in settings]})
    return {
        "tokens": wish.tokens,
        "prompts": min(PROMPTS, len(prompts)),
        "lengths": lengths_raced,
        "refused": refused,
    }


def race(pair: LoadedPair, prompt: list[int], systems: tuple[str, ...], wish: Wish) -> list[Lane]:
    """The lanes at their ends. The lane whose clock is behind goes next, as in a race."""
    device = pair.target.device if pair.target.device.type == "cuda" else None
    settings = wish.settings(f"a context of {len(prompt)} tokens", systems)
    lanes = [
        Lane(pair, find(name), settings, Sampling(wish.temperature, seed=wish.seed, device=device), prompt)
        for name in systems
    ]
    return to_their_ends(lanes)


def keep(raced: dict[str, Raced], lanes: list[Lane]) -> None:
    """Adds a race's lanes, the baseline first, to what was raced."""
    base, *others = lanes
    compared = compare([(lane.trace, lane.system.guarantee) for lane in lanes])["lanes"]
    for lane, found in zip(others, compared[1:], strict=True):
        raced[lane.system.name].traces.append(lane.trace)
        raced[lane.system.name].plain.append(base.trace)
        raced[lane.system.name].identical.append(found["identical"])


def figures(setting: str, raced: Raced) -> dict:
    """A setting's figures at one length. Speedups are geometric means over prompts."""
    without, whole = (
        ratios([seconds(trace) for trace in raced.plain], [seconds(trace) for trace in raced.traces])
        for seconds in (decode_seconds_per_token, seconds_per_token)
    )
    return {
        "setting": setting,
        "plain_tokens_per_s": 1 / mean([decode_seconds_per_token(trace) for trace in raced.plain]),
        "speedup": mean(without),
        "speedup_with_prefill": mean(whole),
        "tau": sum(len(trace.tokens) for trace in raced.traces) / sum(trace.forwards for trace in raced.traces),
        "identical": worst_of(raced.identical),
    }
