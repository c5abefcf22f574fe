"""Requests that a user might send: short ones, those around the texts in a data folder, and a person's own prompts.

Knows texts and the words around them; knows no tokens and no model. What is held out comes from the texts' held-out parts.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from engine.lab.train.data import (
    STORIES,
    load_functions_of_installed_packages,
    read_jsonl,
    read_texts_of_existing_jsonl_files,
)
from engine.lab.train.self_written.short_requests import draw_one, draw_short_request

# Shares of all requests: around texts of a data folder where there is one, and a person's own prompts. Of the others `SHORT_SHARE`
# are short ones, and the target writes the rest by itself
DATA_SHARE, PROMPTS_SHARE, SHORT_SHARE = 0.2, 0.75, 0.85
KINDS = {"sums": 0.35, "code": 0.25, "rewriting": 0.25, "stories": 0.15}
WORDS = {
    "sums": ("{}", "{}\nShow how you get there.", "Solve this: {}", "{} Answer with the number alone."),
    "code": (
        "Explain this function.\n\n```python\n{}\n```",
        "Write a docstring for this function:\n{}",
        "Is there a mistake in this code?\n\n{}",
        "Write tests for this Python function:\n{}",
        "Rewrite this code so that it is easier to read:\n{}",
    ),
    "rewriting": (
        "Say this in simpler words: {}",
        "Sum this up in one sentence:\n{}",
        "Rewrite this in the past tense: {}",
        "Make a list of what happens here:\n{}",
        "Make this sound more formal: {}",
        "Correct the mistakes in this text: {}",
    ),
    "stories": ("Go on with this story: {}", "Write a short story that begins so: {}", "Write a poem about this: {}"),
}
LONGEST = {"sums": 600, "code": 600, "rewriting": 400, "stories": 80}  # characters of the text in a request
MOST = 6000  # texts of a kind

RequestDrawer = Callable[[np.random.Generator], str | None]  # draws one, or None where the target writes it


def draw_no_request(rng: np.random.Generator) -> None:
    """No request is given."""


def short_request_drawer(held_out: bool) -> RequestDrawer:
    """Short requests for `SHORT_SHARE` of the turns. Those that are held out are never drawn for training."""

    def draw_request(rng: np.random.Generator) -> str | None:
        return draw_short_request(rng, held_out) if rng.random() < SHORT_SHARE else None

    return draw_request


def request_drawer_from_data(data_folder: Path, held_out: bool, draw_other_request: RequestDrawer) -> RequestDrawer:
    """Requests by kind around the folder's texts for `DATA_SHARE` of the turns. Raises `ValueError` where it holds none of them."""
    sums = data_folder / "gsm8k" / ("test.jsonl" if held_out else "train.jsonl")
    stories = read_texts_of_existing_jsonl_files(data_folder, *(("tinystories/valid.jsonl",) if held_out else STORIES))[
        :MOST
    ]
    texts = {
        "sums": [row["question"].strip() for row in read_jsonl(sums)] if sums.exists() else [],
        "code": [text for text in load_functions_of_installed_packages(held_out) if len(text) <= LONGEST["code"]],
        "rewriting": stories,
        "stories": stories,
    }
    if not (texts["sums"] or stories):
        raise ValueError(
            f"The folder {str(data_folder)!r} holds neither gsm8k/ nor tinystories/. Name the folder with the texts as --data, "
            "or leave it out: then short requests are drawn without texts."
        )
    kinds = [kind for kind in KINDS if texts[kind]]
    shares = np.array([KINDS[kind] for kind in kinds])

    def draw_request(rng: np.random.Generator) -> str | None:
        if rng.random() >= DATA_SHARE:
            return draw_other_request(rng)
        kind = kinds[rng.choice(len(kinds), p=shares / shares.sum())]
        text = draw_one(texts[kind], rng)
        return draw_one(WORDS[kind], rng).format(shorten_text_at_word(text, LONGEST[kind]))

    return draw_request


def shorten_text_at_word(text: str, max_characters: int) -> str:
    """The beginning of a text, up to the end of its last word within `max_characters` characters."""
    return (
        text if len(text) <= max_characters else text[: max_characters + 1].rpartition(" ")[0] or text[:max_characters]
    )


def request_drawer_from_prompts(prompts: Sequence[str], prompt_share: float = PROMPTS_SHARE) -> RequestDrawer:
    """A person's own prompts, at this `prompt_share` of all requests."""
    return lambda rng: draw_one(prompts, rng) if rng.random() < prompt_share else None
