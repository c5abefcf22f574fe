"""Short requests as people type them: questions, stories, programs, sums, sentences to rewrite.

`assets/short_requests.json` holds their frames and the words for these. The prompts that measure drafters are about other things.
Knows English and chance; knows no tokens and no model.
"""

import json
import zlib
from collections.abc import Sequence
from functools import cache
from string import Formatter
from typing import TypedDict

import numpy as np

from engine.measure.options import ASSETS

HELD_OUT_OF = 20  # one request in so many is held out


class RequestTexts(TypedDict):
    """Frames by kind of request, such as "Tell me about {subject}.", and words by the name of a field."""

    frames: dict[str, list[str]]
    words: dict[str, list[str]]


@cache
def load_request_texts() -> RequestTexts:
    return json.loads((ASSETS / "short_requests.json").read_text(encoding="utf-8"))


def draw_short_request(rng: np.random.Generator, held_out: bool) -> str:
    """A request of any kind. A checksum of its text says whether it is held out or for training."""
    texts = load_request_texts()
    frames, words = texts["frames"], texts["words"]
    while True:
        kind = draw_one(list(frames), rng)
        pieces = (
            text + (draw_one(words[field], rng) if field else "")
            for text, field, _, _ in Formatter().parse(draw_one(frames[kind], rng))
        )
        request = "".join(pieces)
        request = request[0].upper() + request[1:]
        if (zlib.crc32(request.encode()) % HELD_OUT_OF == 0) == held_out:
            return request


def draw_one(texts: Sequence[str], rng: np.random.Generator) -> str:
    """One of the texts, each as likely as another."""
    return texts[int(rng.integers(len(texts)))]
