"""`python -m engine examples`: records what Lab and Grand prix begin with, as the messages that a page gets of such a run.

python -m engine examples                  all of assets/results/examples.json anew
python -m engine examples --only sweep     one of them; the others stay as they are
"""

import json
from argparse import Namespace
from collections.abc import Callable
from datetime import date
from typing import Any

from tqdm import tqdm

from engine.measure.options import ASSETS, gallery, given_pair, load_given, own_place
from engine.models.pairs import LoadedPair, one_of
from engine.page.screens.cards import FIELDS
from engine.page.screens.orders import order
from engine.record.compact_json import to_json
from engine.record.quiet import Message

EXAMPLES = ASSETS / "results" / "examples.json"
STORY = gallery()["stories"][0]["prompt"]
ORDERS: dict[str, dict[str, Any]] = {
    "sweep": {"prompts": [STORY], "temperature": (0.0,)},
    "prix": {"prompt": STORY, "systems": list(next(iter(FIELDS.values()))), "max_new_tokens": 64},
    "pays": {
        "prompts": [each["prompt"] for each in gallery()["stories"]],
        "systems": ["chain", "tree", "eagle", "auto"],
        "max_new_tokens": 48,
    },
}


def whole(messages: list[Message]) -> list[Message]:
    """The run in as few messages as say all: the first, and the last with all steps of those between."""
    first, *_, last = messages
    steps = [step for message in messages for step in message.get("steps", [])]
    cells = {name: value for name, value in first.items() if name != "steps"}
    return [cells, {**last, "steps": steps} if steps else last]


def recorded(pair: LoadedPair, name: str, tell: Callable[[], object]) -> list[Message]:
    """The messages of that order, carried out on the pair. `tell` is called at each."""
    messages = []
    for message in order(pair, name, ORDERS[name]).steps():
        if isinstance(message, dict):
            messages.append(message)
            tell()
    return whole(messages)


def main(given: Namespace) -> None:
    only = given.only and one_of(ORDERS, given.only, "example")
    named = given_pair(given)
    path = own_place(given.out, EXAMPLES if named.name == "embedded" else None, named.title)
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    pair = load_given(given, named)
    for name in [only] if only else ORDERS:
        with tqdm(desc=name, unit="message", mininterval=2) as bar:
            messages = recorded(pair, name, bar.update)
        kept[name] = {"messages": messages, "recorded": date.today().isoformat(), "command": given.command}
        kept[name] |= {"pair": pair.title, "hardware": pair.hardware}
        lines = (f"{json.dumps(name)}: {to_json(each)}" for name, each in kept.items())
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        print(f"{name}: {path.stat().st_size / 1000:.0f} kB so far", flush=True)
