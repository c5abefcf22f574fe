"""How the page asks for a race and what comes of it, as plain values. Knows no HTTP client and nothing of the engine."""

import json
import uuid
from typing import Any

RACE = {"kind": "race", "systems": ["vanilla", "tree"]}


def find_race(config: dict) -> tuple[int, list[int]]:
    """The number of the page's one run in Gradio's configuration, and the numbers of its inputs."""
    run = next(each for each in config["dependencies"] if each["api_name"] == "run")
    return run["id"], run["inputs"]


def fill_inputs(inputs: list[int], fields: dict[str, Any]) -> list:
    """Values of the inputs for a race of these settings: a request in the first one, as the page's script sends it."""
    given = {"max_new_tokens" if name == "tokens" else name: value for name, value in fields.items()}
    return [json.dumps({"run": uuid.uuid4().hex, **RACE, **given}), *[None] * (len(inputs) - 1)]


def read_line(line: str) -> tuple[dict | None, bool]:
    """The event in a line of a race's stream, if there is one, and whether the stream ends with it.

    Raises `ValueError` with the sentence of a refusal.
    """
    message = json.loads(line[5:]) if line.startswith("data:") else {}
    kind = message.get("msg")
    if kind == "process_completed" and not message["success"]:
        raise ValueError(message["output"].get("error"))
    if kind != "process_generating":
        return None, kind in ("process_completed", "close_stream")
    [value] = message["output"]["data"]
    if isinstance(value, list):  # what has changed since the last one
        value = "".join(part for _, _, part in value)
    return (json.loads(value) if value.startswith("{") else None), False
