"""`python -m engine bench --by change`: one SpecBlock drafter over a stream of prompts whose subject changes, frozen against adapting.

Both drafters live through the whole stream, first stories, then code. They take turns at each prompt, so that both see the machine in
the same state. The texts are the target's own and equal in both.
"""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
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


class Rates(NamedTuple):
    """Tokens a round and a second."""

    tau: float
    speed: float


def run(
    pair: LoadedPair, parts: tuple[Drafter, Policy, Acceptance], prompt: list[int], sampling: Sampling, tokens: int
) -> Decoded:
    """One prompt, decoded with a drafter that keeps what it learned before."""
    target, text, spent = Target(pair.target, len(prompt) + tokens + LARGEST_TREE, True), [], []
    for each in decode(HostRounds(target, *parts, sampling), prompt, tokens, pair.stop_ids, pair.context):
        text += each.burst
        spent.append(sum(seconds for phase, seconds in each.seconds.items() if phase != "prefill"))
    return Decoded(text, len(spent), sum(spent))


def rates(prompts: list[Decoded]) -> Rates:
    """Over several prompts together."""
    tokens = sum(len(each.text) for each in prompts)
    return Rates(tokens / sum(each.rounds for each in prompts), tokens / sum(each.seconds for each in prompts))


def with_net(pair: LoadedPair, folder: Path | None) -> LoadedPair:
    """The pair. A SpecBlock net in `folder` replaces the pair's own."""
    if folder is None:
        return pair
    model = pair.target.model
    net = SpecBlock.load(folder, model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    return replace(pair, learned={**pair.learned, "specblock": net})


def changing(pair: LoadedPair, counts: dict[str, int]) -> list[tuple[str, list[int]]]:
    """(domain, prompt ids) of a stream: `counts` prompts of each domain, one domain after another. Held-out prompts repeat as needed.

    Raises `ValueError` when that is no prompt at all.
    """
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
    pair = with_net(load_given(options), options.net)
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
            frozen, adapting = (rates(found[lane][first:]) for lane in LANES)
            name, ratio = f"{first + 1}-{index + 1}", adapting.speed / frozen.speed
            tqdm.write(f"{name:>9} {domain:>8} {frozen.tau:12.2f} {adapting.tau:10.2f} {ratio:12.2f}")
    bandit, figures = lanes["adapting"][0].bandit, {}  # type: ignore[attr-defined]
    for domain in dict.fromkeys(domain for domain, _ in stream):
        at = [index for index, (each, _) in enumerate(stream) if each == domain]
        frozen, adapting = (rates([found[lane][index] for index in at]) for lane in LANES)
        figures[domain] = {
            "tau frozen": frozen.tau, "tau adapting": adapting.tau, "speed ratio": adapting.speed / frozen.speed,
        }  # fmt: skip
        print(f"{domain}: tau {frozen.tau:.2f} -> {adapting.tau:.2f}, tokens/s x {adapting.speed / frozen.speed:.2f}")
    for arm, made in bandit.updates.items():
        cost = 1e3 * bandit.seconds[arm] / made if made else 0.0
        print(f"{arm}: {made} updates of {bandit.choices} choices, {cost:.1f} ms each")
    updates = {"choices": bandit.choices, "updates": bandit.updates, "seconds": bandit.seconds}
    return {"pair": pair.title, "hardware": pair.hardware, "domains": figures, **updates}
