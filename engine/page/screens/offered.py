"""What a page says of the pairs that it offers: their names, the forward that runs, and its costs here. Knows words; runs nothing."""

from collections.abc import Sequence
from typing import Any

from engine.models.pairs import EMBEDDED, LoadedPair
from engine.record.parsing import shown
from engine.rounds.timing import verified

WAYS = {  # what the page says of the forward that runs
    "compiled": "Forwards are compiled for this processor. The logits behind a tree's node are plain decoding's, bit for bit.",
    "tensors": "Forwards run as tensor operations. Logits may differ in the last bits with the number of tokens in a forward.",
    "states": (
        "The target keeps states, out of which no guess can be cut. So a round changes no state: each node is given what its own path "
        "adds to the text's state, under the tree's mask. A tree costs what a chain of as many nodes costs. The state behind the "
        "accepted path is added up at its end. Nothing is replayed. Logits may differ in the last bits with the number of tokens "
        "in a forward."
    ),
    "transformers": "Forwards run through transformers. Logits may differ in the last bits with the number of tokens in a forward.",
}

CHAT = "The target has a chat template: a prompt is sent as a user's message, and the text below it is the reply."


def introduced(pair: LoadedPair) -> dict[str, str]:
    """What the page's head says of the pair."""
    return {
        "pair": f"{pair.title} · {pair.hardware} · {pair.dtype}, {pair.target.way}" + " · chat" * pair.chat,
        "way": " ".join([WAYS[pair.target.way], *[CHAT] * pair.chat]),
    }


def chosen(pairs: Sequence[LoadedPair], name: object) -> LoadedPair:
    """The pair of that name, the first one for "" and None. Raises `ValueError` for a name that none of them has."""
    if name is None or name == "":
        return pairs[0]
    named = {each.pair.name: each for each in pairs}
    if not isinstance(name, str) or name not in named:
        raise ValueError(f"There is no pair {shown(name)} here. Available: {', '.join(named)}.")
    return named[name]


def offered(pairs: Sequence[LoadedPair]) -> list[dict[str, Any]]:
    """The pairs that a visitor may choose from, all of them embedded, the smallest first; none where there is no choice.

    The first one is the page's own. `verify_ms` is what this machine has measured of their forwards so far. The head's words stand
    behind the switch, which says the size.
    """
    if len(pairs) < 2:
        return []
    choice = []
    for each in pairs:
        name, size, said = each.pair.name, EMBEDDED[each.pair.name], introduced(each)
        about = {"name": name, "size": size, "title": each.title, "own": each is pairs[0], "verify_ms": verified(each)}
        choice.append({**about, **said, "pair": said["pair"].removeprefix(f"{size} ")})
    return sorted(choice, key=lambda each: int(each["size"].removesuffix("M")))
