"""A step in plain words: what was guessed, what was kept, why it ended there. Knows no page and no model."""

from engine.record.trace import ACCEPTED, FAILED, REJECTED, Step

ENDINGS = {
    "": "",
    "stop": " The stop token ended the text.",
    "length": " The length limit ended the text.",
    "context": " The context window was full.",
    FAILED: "",
}
VISIBLE = str.maketrans({"\n": "⏎", "\t": "⇥", "\r": "␍"})


def quoted(text: str) -> str:
    """The text in quotes. Line breaks, tabs and a text of spaces get visible signs; “…” stands for an incomplete character."""
    if not text:
        return "“…”"
    inner = text.strip(" ") or "␣" * len(text)
    return f"“{inner.translate(VISIBLE)}”"


def sentence(step: Step) -> str:
    """What happened in this step, for a reader who has never seen a tree."""
    ending = again(step) + ENDINGS.get(step.end, f" It ended here: {step.end}.")
    if not step.tokens:
        return piece(step, ending)
    if len(step.tokens) == 1:
        return f"No guesses: one forward of the target, one token, {quoted(step.bonus_text)}.{ending}"
    if len(step.burst) <= len(step.path):
        return f"{kept(step)}.{ending}"
    return f"{kept(step)}, then the target's own {quoted(step.bonus_text)}. {reason(step)}{ending}"


def again(step: Step) -> str:
    """What layers with states read a second time, "" for nothing."""
    if not step.replayed:
        return ""
    count = "1 token was" if step.replayed == 1 else f"{step.replayed} tokens were"
    return f" {count} replayed, because the target's state stood behind other guesses."


def piece(step: Step, ending: str) -> str:
    """A step that another server took."""
    text = "".join(step.pieces)
    arrived = (
        f"The server sent {quoted(text)} after {1000 * step.total_seconds:.0f} ms." if text else "No more text came."
    )
    return f"{arrived} {step.bonus_text}".rstrip() + ending


def kept(step: Step) -> str:
    guesses = len(step.tokens) - 1
    count = f"{guesses} guess" if guesses == 1 else f"{guesses} guesses"
    if not step.path:
        return f"{count}, none accepted"
    text = quoted("".join(step.texts[node] for node in step.path[: len(step.burst)]))
    cut = f", {len(step.burst)} kept" if len(step.burst) < len(step.path) else ""
    return f"{count}, {len(step.path)} accepted{cut}: {text}"


def reason(step: Step) -> str:
    """Why the accepted path went no further."""
    last = step.path[-1] if step.path else 0
    rivals = [node for node, parent in enumerate(step.parents) if parent == last]
    if not rivals:
        depths = depths_of(step)
        at_end = depths[last] == max(depths)
        return "The path reached the tree's last level." if at_end else "The path reached the end of its branch."
    if any(step.tokens[node] == step.bonus for node in rivals):
        return "The rule turned down every branch and the target drew for itself."
    return f"The target wanted {quoted(step.bonus_text)} and no branch had it."


def estimate(step: Step) -> str:
    """Of the guesses that the target came to judge, the one about which drafter and target agreed least."""
    reached = [node for node, verdict in enumerate(step.verdicts) if verdict in (ACCEPTED, REJECTED)]
    if not reached:
        return "Nothing was guessed in this step."
    node = max(reached, key=lambda node: abs(step.q[node] - step.p[node]))
    return f"The drafter gave {quoted(step.texts[node])} {percent(step.q[node])}, the target {percent(step.p[node])}."


def percent(share: float) -> str:
    """The share as "61 %". It never reads 0 % or 100 % where that is only rounding."""
    if 0 < share < 0.005:
        return "under 1 %"
    if 0.995 <= share < 1:
        return "over 99 %"
    return f"{100 * share:.0f} %"


def depths_of(step: Step) -> list[int]:
    depths = [0]
    for parent in step.parents[1:]:
        depths.append(depths[parent] + 1)
    return depths
