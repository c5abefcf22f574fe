"""What a curve says, in words, from its lines and points alone. Knows no race and no page."""

from collections.abc import Callable
from typing import Any

from engine.record.headline import is_speed_ratio_a_tie

CurveLineDicts = list[dict[str, Any]]


def format_ratio(ratio: float) -> str:
    return f"{ratio:.1f}×"


def point_of_highest_speedup(line: dict[str, Any]) -> dict[str, Any]:
    """The point of the highest speed."""
    return max(line["points"], key=lambda point: point["speedup"])


def describe_node_count_finding(lines: CurveLineDicts) -> str:
    """Where more nodes stop paying."""
    [line] = lines
    peak, last = point_of_highest_speedup(line), line["points"][-1]
    said = f"Speed peaks at {peak['x']} nodes with {format_ratio(peak['speedup'])} plain decoding’s."
    if peak is last:
        return f"{said} It still climbs there."
    return (
        f"{said} From there to {last['x']} nodes tokens a pass still go from {peak['tau']:.1f} to {last['tau']:.1f}, "
        f"but a pass takes so much longer that {format_ratio(last['speedup'])} is left."
    )


def describe_temperature_finding(lines: CurveLineDicts) -> str:
    """From which temperature on a wide tree writes more a pass than the chain of as many nodes. Tokens a pass have no clock's noise."""
    chain, shallow, deep = lines
    pairs = list(zip(chain["points"], shallow["points"], deep["points"], strict=True))
    heats = [straight["x"] for straight, *_ in pairs]
    ahead = [straight["x"] for straight, bushy, _ in pairs if bushy["tau"] > straight["tau"]]
    ends = [
        f"at T = {straight['x']:g} {straight['tau']:.1f} against {bushy['tau']:.1f}"
        for straight, bushy, _ in (pairs[0], pairs[-1])
    ]
    best = sum(tree["tau"] >= straight["tau"] for straight, _, tree in pairs)
    return (
        f"{describe_overtaking_temperature(heats, ahead, shallow['title'])} Chain against tree: {', '.join(ends)}. "
        f"The {deep['title']} writes at least as many as the chain at {best} of {len(pairs)} temperatures."
    )


def describe_overtaking_temperature(temperatures: list[float], temperatures_ahead: list[float], tree_title: str) -> str:
    """Where a tree that is ahead at some of the temperatures overtakes the chain."""
    more = f"The {tree_title} writes more tokens a pass than the chain"
    if not temperatures_ahead:
        return f"The chain writes more tokens a pass than the {tree_title} at every temperature."
    if len(temperatures_ahead) == len(temperatures):
        return f"{more} at every temperature."
    if temperatures_ahead == temperatures[-len(temperatures_ahead) :]:
        return f"They cross: {more[0].lower()}{more[1:]} from T = {temperatures_ahead[0]:g} on."
    return f"{more} at {len(temperatures_ahead)} of {len(temperatures)} temperatures."


def describe_branching_finding(lines: CurveLineDicts) -> str:
    """What branches are worth at equal nodes, on an easy and on a hard text."""
    easy, hard = (
        [line["points"][-1] for line in lines if line["text"] == text and line["points"]] for text in ("easy", "hard")
    )
    (chain, tree), (hard_chain, hard_tree) = easy, hard
    return (
        f"With {chain['x']} nodes on easy text the chain writes {chain['tau']:.1f} tokens a pass and the tree {tree['tau']:.1f}: "
        f"where the drafter is sure, a tree is a chain too. On hard text it is {hard_chain['tau']:.1f} against {hard_tree['tau']:.1f}, "
        f"and {format_ratio(hard_chain['speedup'])} against {format_ratio(hard_tree['speedup'])} plain decoding’s speed."
    )


def describe_batch_size_finding(lines: CurveLineDicts) -> str:
    """At how many sequences the gain vanishes."""
    first = lines[0]["points"][0]
    begun = f"Alone, the {lines[0]['title']} has {format_ratio(first['speedup'])} plain decoding’s speed."
    ends = []
    for line in lines:
        lost = next(
            (
                point["x"]
                for point in line["points"]
                if point["speedup"] < 1 and not is_speed_ratio_a_tie(point["speedup"])
            ),
            None,
        )
        last = line["points"][-1]
        gone = (
            f"is slower from {lost} sequences on"
            if lost
            else f"still has {format_ratio(last['speedup'])} at {last['x']}"
        )
        ends.append(f"the {line['title']} {gone}")
    return f"{begun} In a batch {' and '.join(ends)}: more sequences fill the pass as guesses did."


FINDINGS: dict[str, Callable[[CurveLineDicts], str]] = {
    "nodes": describe_node_count_finding,
    "temperature": describe_temperature_finding,
    "chain": describe_branching_finding,
    "batch": describe_batch_size_finding,
}
