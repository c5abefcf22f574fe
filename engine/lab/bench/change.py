"""`python -m engine bench --by change`: one SpecBlock drafter over a stream of prompts whose subject changes, frozen against adapting.

Both drafters live through the whole stream, first stories, then code. They take turns at each prompt, so that both see the machine in
the same state. The texts are the target's own and equal in both.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tqdm import tqdm

from engine.contracts import Acceptance, Drafter, Policy
from engine.decode import decode
from engine.measure.options import held_out, load_given
from engine.models.chat import prompt_tokens
from engine.models.pairs import LoadedPair
from engine.nets.specblock import SpecBlock
from engine.race import SHAPE, Settings
from engine.rounds.round import HostRounds
from engine.sampling import Sampling
from engine.systems import find
from engine.target import Target
from engine.tree import LARGEST_TREE

POLICY = "rank_guided"
LANES = {"frozen": "specblock", "adapting": "specblock-adapt"}


class Decoded(NamedTuple):
    """What a lane did with one prompt: the tokens, its target forwards, and its seconds after prefill."""

    text: list[int]
    rounds: int
    seconds: float


def run(
    pair: LoadedPair, parts: tuple[Drafter, Policy, Acceptance], prompt: list[int], sampling: Sampling, tokens: int
) -> Decoded:
    """One prompt, decoded with a drafter that keeps what it learned before."""
    target, text, spent = Target(pair.target, len(prompt) + tokens + LARGEST_TREE, True), [], []
    for each in decode(HostRounds(target, *parts, sampling), prompt, tokens, pair.stop_ids, pair.context):
        text += each.burst
        spent.append(sum(seconds for phase, seconds in each.seconds.items() if phase != "prefill"))
    return Decoded(text, len(spent), sum(spent))


def rates(found: dict[str, list[Decoded]], at: Sequence[int]) -> tuple[float, float, float]:
    """Over the prompts of these numbers together: tokens a round of both lanes, and how many times as fast the adapting one is."""
    frozen, adapting = ([found[lane][index] for index in at] for lane in LANES)
    tokens = sum(len(each.text) for each in frozen)  # as many as the other's
    taus = [tokens / sum(each.rounds for each in lane) for lane in (frozen, adapting)]
    return taus[0], taus[1], sum(each.seconds for each in frozen) / sum(each.seconds for each in adapting)


def changing(pair: LoadedPair, counts: dict[str, int]) -> list[tuple[str, list[int]]]:
    """(domain, prompt ids): `counts` held-out prompts of each domain, repeated as needed, in turn. Raises `ValueError` for none."""
    if max(counts.values()) < 1:
        raise ValueError(f"One of {', '.join(f'--{domain}' for domain in counts)} must be at least 1.")
    texts = held_out()
    return [
        (domain, prompt_tokens(pair, texts[domain][index % len(texts[domain])]))
        for domain, count in counts.items()
        for index in range(count)
    ]


def main(options: Namespace) -> dict:
    systems = {lane: find(f"{drafter}/{options.policy or POLICY}/token_match") for lane, drafter in LANES.items()}
    how = {**dict(zip(SHAPE, options.shape, strict=True)), "temperature": options.temperature}
    Settings("a prompt", (), **how, max_new_tokens=options.tokens)
    if options.net and not (options.net / "config.json").is_file():
        raise ValueError(f"--net must name a folder with a SpecBlock net, and {str(options.net)!r} has no config.json.")
    pair = load_given(options)
    if options.net:
        model = pair.target.model
        net = SpecBlock.load(options.net, model.get_input_embeddings().weight, model.get_output_embeddings().weight)
        pair = replace(pair, learned={**pair.learned, "specblock": net})
    stream = changing(pair, {"stories": options.stories, "code": options.code})
    capacity = max(len(prompt) for _, prompt in stream) + options.tokens + LARGEST_TREE
    lanes = {lane: system.build(pair, capacity, *options.shape) for lane, system in systems.items()}
    found: dict[str, list[Decoded]] = {lane: [] for lane in lanes}
    print(f"{'prompts':>9} {'subject':>8}   tau frozen  adapting   tokens/s adapting / frozen")
    for index, (domain, prompt) in enumerate(tqdm(stream, desc="prompts", unit="prompt")):
        order = list(lanes) if index % 2 else list(lanes)[::-1]
        for lane in order:
            sampling = Sampling(options.temperature, seed=index)
            found[lane].append(run(pair, lanes[lane], prompt, sampling, options.tokens))
        if found["frozen"][-1].text != found["adapting"][-1].text:
            raise RuntimeError(f"The texts of prompt {index} differ, which no drafter can cause under token match.")
        first = index - index % options.window
        if index % options.window == options.window - 1 or index == len(stream) - 1:
            frozen, adapting, ratio = rates(found, range(first, index + 1))
            tqdm.write(f"{f'{first + 1}-{index + 1}':>9} {domain:>8} {frozen:12.2f} {adapting:10.2f} {ratio:12.2f}")
    bandit, figures = lanes["adapting"][0].bandit, {}  # type: ignore[attr-defined]
    for domain in dict.fromkeys(domain for domain, _ in stream):
        at = [index for index, (each, _) in enumerate(stream) if each == domain]
        frozen, adapting, ratio = rates(found, at)
        figures[domain] = {"tau frozen": frozen, "tau adapting": adapting, "speed ratio": ratio}
        print(f"{domain}: tau {frozen:.2f} -> {adapting:.2f}, tokens/s x {ratio:.2f}")
    for arm, made in bandit.updates.items():
        cost = 1e3 * bandit.seconds[arm] / made if made else 0.0
        print(f"{arm}: {made} updates of {bandit.choices} choices, {cost:.1f} ms each")
    updates = {"choices": bandit.choices, "updates": bandit.updates, "seconds": bandit.seconds}
    return {"pair": pair.title, "hardware": pair.hardware, "domains": figures, **updates}
