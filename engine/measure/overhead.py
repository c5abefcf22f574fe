"""`python -m engine overhead`: where a round's time goes, forwards apart from the rest; medians in ms, JSON on the last line.

Forwards are the target's (mask, embedding, layers, head) and the drafter's answers. The rest is growing the tree (ranking every
answer's vocabulary, choosing, Python), the rule, and the two commits. Where one compiled call grows all levels, the processor's ticks
tell the share of forwards in it. Where a program may not read the ticks, the whole call counts as forwards.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from engine.kernels.expansion import Expansion
from engine.measure.options import add_pair, first_prompts, load_given, refusals
from engine.models.chat import prompt_tokens
from engine.models.pairs import LoadedPair
from engine.race import Lane, Settings
from engine.sampling import Sampling
from engine.systems import find

PARTS = ("target forward", "draft forwards", "growing", "rule", "commit", "verify's rest")


def share_of_forwards(expansion: Expansion, *rest: object) -> float:
    """The share of forwards in the time that growing the tree took."""
    counts = expansion.counts
    return counts["ticks_in_forwards"] / counts["ticks"] if counts["ticks"] else 1.0


@contextmanager
def clocked(
    owner: object, name: str, spent: dict[str, float], part: str, share: Callable[..., float] = lambda *_: 1.0
) -> Iterator[None]:
    """Add the seconds of every call of `owner.name` to `spent[part]`, times `share` of the call's arguments."""
    inner: Callable = getattr(owner, name)

    def outer(*args, **keywords):
        start = time.perf_counter()
        found = inner(*args, **keywords)
        spent[part] += (time.perf_counter() - start) * share(*args)
        return found

    setattr(owner, name, outer)
    try:
        yield
    finally:
        setattr(owner, name, inner)


def rounds(pair: LoadedPair, system: str, prompt: str, tokens: int, temperature: float) -> list[dict[str, float]]:
    """Milliseconds by part of every round of one text, and its number of nodes."""
    settings = Settings(prompt, ("vanilla", system), max_new_tokens=tokens, temperature=temperature)
    lane = Lane(pair, find(system), settings, Sampling(temperature=temperature), prompt_tokens(pair, prompt))
    spent: dict[str, float] = defaultdict(float)
    with ExitStack() as clocks:
        clocks.enter_context(clocked(lane.rounds.target.session, "forward", spent, "target forward"))
        clocks.enter_context(clocked(lane.rounds.drafter, "log_q", spent, "draft forwards"))
        if lane.rounds.drafter.grows:
            clocks.enter_context(clocked(lane.rounds.drafter, "grow", spent, "draft forwards", share_of_forwards))
        found = list(timed(lane, spent))
    lane.close()
    return found


def timed(lane: Lane, spent: dict[str, float]) -> Iterator[dict[str, float]]:
    """All rounds but the first, which includes the prefill."""
    while not lane.finished:
        spent.clear()
        step = lane.step()
        if "prefill" in step.seconds:
            continue
        yield {
            "nodes": len(step.tokens),
            "target forward": 1000 * spent["target forward"],
            "draft forwards": 1000 * spent["draft forwards"],
            "growing": 1000 * (step.seconds["draft"] - spent["draft forwards"]),
            "rule": 1000 * step.seconds["accept"],
            "commit": 1000 * step.seconds["commit"],
            "verify's rest": 1000 * (step.seconds["verify"] - spent["target forward"]),
        }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m engine overhead", description=__doc__)
    add_pair(parser)
    parser.add_argument("--systems", default="vanilla,tree,eagle,auto", help="names, separated by commas")
    parser.add_argument("--prompts", type=int, default=4, help="held-out stories to write on")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args(arguments)
    figures = {}
    with refusals(parser):
        prompts = first_prompts("stories", options.prompts)
        pair = load_given(options)
        print(f"{'ms a round':<12}{'nodes':>8}" + "".join(f"{part:>16}" for part in PARTS) + f"{'outside':>10}")
        for system in options.systems.split(","):
            rounds(pair, system, prompts[0], 16, options.temperature)  # first calls
            found = [
                each for prompt in prompts for each in rounds(pair, system, prompt, options.tokens, options.temperature)
            ]
            row = {part: statistics.median(each[part] for each in found) for part in ("nodes", *PARTS)}
            row["outside"] = statistics.median(sum(each[part] for part in PARTS[2:]) for each in found)
            figures[system] = row
            print(f"{system:<12}{row['nodes']:>8.0f}" + "".join(f"{row[part]:>16.3f}" for part in (*PARTS, "outside")))
    print(json.dumps({"machine": pair.hardware, "ms": figures}))
