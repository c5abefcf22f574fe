"""`python -m engine bench --by part`: where a round's time goes, forwards apart from the rest; medians in ms.

Forwards are the target's (mask, embedding, layers, head) and the drafter's answers. The rest is growing the tree (ranking every
answer's vocabulary, choosing, Python), the rule, and the two commits. Where one compiled call grows all levels, the processor's ticks
tell the share of forwards in it. Where a program may not read the ticks, the whole call counts as forwards.
"""

import statistics
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable

from tqdm import tqdm

from engine.kernels.expansion import Expansion
from engine.measure.options import first_prompts, load_given
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


def clock(
    owner: object, name: str, spent: dict[str, float], part: str, share: Callable[..., float] = lambda *_: 1.0
) -> None:
    """From now on the seconds of every call of `owner.name` are added to `spent[part]`, times `share` of the call's arguments."""
    inner: Callable = getattr(owner, name)

    def outer(*args, **keywords):
        start = time.perf_counter()
        found = inner(*args, **keywords)
        spent[part] += (time.perf_counter() - start) * share(*args)
        return found

    setattr(owner, name, outer)


def rounds(pair: LoadedPair, system: str, prompt: str, tokens: int, temperature: float) -> list[dict[str, float]]:
    """Milliseconds by part of every round of one text but the first, which includes the prefill; and its number of nodes."""
    settings = Settings(prompt, ("vanilla", system), max_new_tokens=tokens, temperature=temperature)
    lane = Lane(pair, find(system), settings, Sampling(temperature=temperature), prompt_tokens(pair, prompt))
    spent: dict[str, float] = defaultdict(float)
    drafter, found = lane.rounds.drafter, []
    clock(lane.rounds.target.session, "forward", spent, "target forward")
    clock(drafter, "log_q", spent, "draft forwards")
    if drafter.grows:
        clock(drafter, "grow", spent, "draft forwards", share_of_forwards)
    while not lane.finished:
        spent.clear()
        step = lane.step()
        seconds = {
            "target forward": spent["target forward"],
            "draft forwards": spent["draft forwards"],
            "growing": step.seconds["draft"] - spent["draft forwards"],
            "rule": step.seconds["accept"],
            "commit": step.seconds["commit"],
            "verify's rest": step.seconds["verify"] - spent["target forward"],
        }
        if "prefill" not in step.seconds:
            found.append({"nodes": len(step.tokens)} | {part: 1000 * each for part, each in seconds.items()})
    lane.close()
    return found


def main(options: Namespace) -> dict:
    figures = {}
    prompts, systems = first_prompts("stories", options.prompts), options.systems.split(",")
    Settings("a prompt", tuple(systems), temperature=options.temperature, max_new_tokens=options.tokens)
    pair = load_given(options)
    print(f"{'ms a round':<12}{'nodes':>8}" + "".join(f"{part:>16}" for part in PARTS) + f"{'outside':>10}")
    for system in tqdm(systems, desc="systems", unit="system"):
        rounds(pair, system, prompts[0], 16, options.temperature)  # first calls
        found = [each for text in prompts for each in rounds(pair, system, text, options.tokens, options.temperature)]
        figures[system] = row = {part: statistics.median(each[part] for each in found) for part in ("nodes", *PARTS)}
        row["outside"] = statistics.median(sum(each[part] for part in PARTS[2:]) for each in found)
        tqdm.write(f"{system:<12}{row['nodes']:>8.0f}" + "".join(f"{row[part]:>16.3f}" for part in (*PARTS, "outside")))
    return {"machine": pair.hardware, "ms": figures}
