"""How the page asks for a race and what comes of it, as plain values. Knows no HTTP client and nothing of the engine."""

import json
from typing import Any

LABELS = {"seed": "Seed", "temperature": "Temperature", "tokens": "New tokens"}  # of the page's fields


def find_race(config: dict) -> tuple[int, list[dict]]:
    """The number of the page's race in Gradio's configuration, and the properties of its inputs."""
    parts = {each["id"]: each["props"] for each in config["components"]}
    race = next(each for each in config["dependencies"] if each["api_name"] == "race_on_page")
    return race["id"], [parts[at] for at in race["inputs"]]


def fill_inputs(parts: list[dict], fields: dict[str, Any]) -> list:
    """Values of the inputs. Fields that are not given keep what the page begins with."""
    given = {LABELS.get(name, name): value for name, value in fields.items()}
    values = [given.get(part.get("elem_id") or part.get("label"), part.get("value")) for part in parts]
    return ["" if value is None else value for value in values]


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
