"""`python -m engine examples`: records what Lab and Grand prix begin with, as the messages that a page gets of such a run.

python -m engine examples                  all of assets/results/examples.json anew
python -m engine examples --only sweep     one of them; the others stay as they are
"""

from argparse import Namespace
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any

from tqdm import tqdm

from engine.measure.options import ASSETS, load_page_prompts
from engine.measure.recordings import record_named_runs_into_json_file
from engine.models.pairs import LoadedPair
from engine.page.screens.cards import FIELDS
from engine.page.screens.requests import build_request_within_token_limit
from engine.record.quiet import Message

EXAMPLES = ASSETS / "results" / "examples.json"
STORY = load_page_prompts()["stories"][0]["prompt"]
REQUESTS: dict[str, dict[str, Any]] = {
    "sweep": {"prompts": [STORY], "temperature": (0.0,)},
    "prix": {"prompt": STORY, "systems": list(next(iter(FIELDS.values()))), "max_new_tokens": 64},
    "pays": {
        "prompts": [each["prompt"] for each in load_page_prompts()["stories"]],
        "systems": ["chain", "tree", "eagle", "auto"],
        "max_new_tokens": 48,
    },
}


def merge_into_two_messages(messages: list[Message]) -> list[Message]:
    """The run in as few messages as say all: the first, and the last with all steps of those between."""
    first, *_, last = messages
    steps = [step for message in messages for step in message.get("steps", [])]
    cells = {name: value for name, value in first.items() if name != "steps"}
    return [cells, {**last, "steps": steps} if steps else last]


def run_example_request_to_messages(
    pair: LoadedPair, example_name: str, on_message: Callable[[], object]
) -> list[Message]:
    """The messages of that request, run on the pair. `on_message` is called at each."""
    messages = []
    for message in build_request_within_token_limit(pair, example_name, REQUESTS[example_name]).run(pair):
        if isinstance(message, dict):
            messages.append(message)
            on_message()
    return merge_into_two_messages(messages)


def run_example_and_add_provenance(pair: LoadedPair, example_name: str, command: str) -> dict[str, Any]:
    """The messages of that request, with the day, the command, the pair and the hardware."""
    with tqdm(desc=example_name, unit="message", mininterval=2) as bar:
        messages = run_example_request_to_messages(pair, example_name, bar.update)
    made = {"messages": messages, "recorded": date.today().isoformat(), "command": command}
    return made | {"pair": pair.title, "hardware": pair.hardware}


def main(options: Namespace) -> None:
    record = partial(run_example_and_add_provenance, command=options.command)
    for name, _, path in record_named_runs_into_json_file(options, REQUESTS, "example", EXAMPLES, record):
        print(f"{name}: {path.stat().st_size / 1000:.0f} kB so far", flush=True)
