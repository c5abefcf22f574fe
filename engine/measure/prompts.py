"""Prompts: reads a person's file of prompts."""

import re
from pathlib import Path
from typing import NamedTuple

from engine.record.files import MOST_BYTES, read_text_file
from engine.record.parsing import format_value_for_error, parse_json

FEWEST, MOST = 3, 1_000  # prompts; an interval over fewer says nothing
LONGEST_GROUP = 60  # characters
ENDINGS = {".jsonl": True, ".ndjson": True, ".txt": False}  # whether every line is JSON


class Prompt(NamedTuple):
    """A prompt, and the group that it is counted in: a language, a kind of text, or its file. "" is no group."""

    text: str
    group: str = ""


def read_prompt_files(paths: list[Path]) -> list[Prompt]:
    """The prompts of all files in order. Of several files a prompt without a group of its own is counted in its file's."""
    found = [(path, prompt) for path in paths for prompt in read_prompts(path)]
    return [prompt if prompt.group or len(paths) == 1 else prompt._replace(group=path.name) for path, prompt in found]


def read_prompts(path: Path, option_name: str = "--prompts", min_count: int = FEWEST) -> list[Prompt]:
    """The file's prompts in order. `option_name` is what named the file, for the sentence of a refusal.

    A line of a .jsonl or .ndjson file is a JSON string or an object with a "prompt" and perhaps a "group"; blank lines part prompts of
    a .txt file. Raises `ValueError` that names the line, and `OSError` for a file that cannot be opened.
    """
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(
            f"{option_name} must name a file that ends in {', '.join(ENDINGS)}, got {format_value_for_error(str(path))}."
        )
    text = read_text_file(path, f"Give {option_name} a file of prompts.")
    json_lines = ENDINGS[path.suffix.lower()]
    prompts = [] if json_lines else [Prompt(prompt) for prompt in split_paragraphs(text)]
    lines = text.split("\n") if json_lines else []  # `splitlines` would part prompts at rare signs
    for number, line in enumerate(lines, 1):
        if line.strip():
            prompt, group = parse_prompt_and_group(line, number)
            if not isinstance(group, str) or len(group) > LONGEST_GROUP:
                most = f"up to {LONGEST_GROUP} characters"
                raise ValueError(
                    f"The group on line {number} must be a name of {most}, got {format_value_for_error(group)}."
                )
            prompts.append(Prompt(prompt, group))
    if not min_count <= len(prompts) <= MOST:
        how = "" if json_lines else " A blank line separates prompts."
        raise ValueError(f"{path.name} has {len(prompts):,} prompts; between {min_count} and {MOST:,} are needed.{how}")
    return prompts


def split_paragraphs(text: str) -> list[str]:
    """The prompts of a plain text, which blank lines separate. Line ends inside a prompt stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return [prompt.strip("\n") for prompt in re.split(r"\n[^\S\n]*(?=\n)", text) if prompt.strip()]


def parse_prompt_and_group(line: str, line_number: int) -> tuple[str, object]:
    """The prompt on one line of JSON, and what stands there as its group. Raises `ValueError` with the line's number."""
    value, group = parse_json(line, MOST_BYTES, f"Line {line_number}"), ""
    if isinstance(value, dict):
        group = value.get("group", "")
        if "prompt" not in value:
            raise ValueError(f'Line {line_number} has no "prompt". Write {{"prompt": "..."}} or a string.')
        value = value["prompt"]
    if not isinstance(value, str):
        raise ValueError(f"The prompt on line {line_number} must be a string, got {format_value_for_error(value)}.")
    if not value.strip():
        raise ValueError(f"The prompt on line {line_number} is empty. Write a few words, or leave the line out.")
    return value, group
