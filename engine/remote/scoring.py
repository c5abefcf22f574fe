"""Scoring: how likely a server that decodes plainly finds a text that another one wrote. Knows HTTP and logarithms; knows no arm.

Asked to repeat a prompt with log-probabilities (`echo` with `logprobs`, as in OpenAI's completions), vLLM tells that of every token.
"""

from typing import Any

from engine.record.parsing import parse_json
from engine.remote.server import OpenAICompatibleServer
from engine.remote.telling import MOST_BODY, look_up_nested, open_client


def request_mean_log_probability_of_text(server: OpenAICompatibleServer, prompt: str, text: str) -> float | None:
    """The mean log-probability, in nats, of the tokens of `text` behind `prompt`; None where the server does not tell.

    Raises `ValueError` where it cannot be reached.
    """
    wanted = {"prompt": prompt + text, "echo": True, "logprobs": 0, "max_tokens": 1, "temperature": 0.0}
    model = {"model": server.model} if server.model else {}
    with open_client(server) as client:
        answer = client.post(f"{server.address.rstrip('/')}/completions", json=model | wanted)
    if answer.status_code != 200:
        return None
    try:
        choices = look_up_nested(parse_json(answer.text, MOST_BODY), "choices")
    except ValueError:
        return None
    told = look_up_nested(choices[0], "logprobs") if isinstance(choices, list) and choices else None
    return mean_log_probability_of_ending(
        look_up_nested(told, "text_offset"), look_up_nested(told, "token_logprobs"), len(text)
    )


def mean_log_probability_of_ending(
    text_offsets: Any, token_log_probabilities: Any, ending_characters: int
) -> float | None:
    """The mean over the tokens that stand in the last `ending_characters` characters before the last token, which the server wrote
    itself.

    None for other values than so many places and numbers. The first token of all has no probability.
    """
    if (
        not isinstance(text_offsets, list)
        or not isinstance(token_log_probabilities, list)
        or len(text_offsets) != len(token_log_probabilities)
    ):
        return None
    if not text_offsets or any(type(each) is not int for each in text_offsets):
        return None
    end = text_offsets[-1]  # a token that the server puts before a text has characters too
    pairs = zip(text_offsets, token_log_probabilities, strict=True)
    found = [value for at, value in pairs if end - ending_characters <= at < end and isinstance(value, int | float)]
    return sum(found) / len(found) if found else None
