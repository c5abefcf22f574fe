"""Chat turns: the earlier turns of a chat, each a request and the answer to it, and the messages that they are. Knows no template."""

from collections.abc import Sequence

from engine.record.parsing import LONGEST_TEXT, format_value_for_error, has_lone_surrogate

ChatTurns = Sequence[Sequence[str]]  # pairs of texts: request, answer


def validate_chat_turns(value: object, prompt: str) -> tuple[tuple[str, str], ...]:
    """The turns before that prompt, () for none. An answer may be empty, a request may not.

    Raises `ValueError` for what is no list of such pairs, for text that is none, and for a chat that is too long.
    """
    if not isinstance(value, list | tuple):
        raise ValueError(f'The turns must be a list such as [["Hi", "Hello!"]], got {format_value_for_error(value)}.')
    for number, turn in enumerate(value, 1):
        if not (isinstance(turn, list | tuple) and len(turn) == 2 and all(isinstance(each, str) for each in turn)):
            raise ValueError(
                f"Turn {number} must be two texts, a request and the answer to it, got {format_value_for_error(turn)}. Write it as "
                '["Hi", "Hello!"].'
            )
        if not turn[0].strip():
            raise ValueError(f"The request of turn {number} is empty. Write what was asked, or leave the turn out.")
        if has_lone_surrogate(*turn):
            raise ValueError(
                f"Turn {number} holds half a character (a lone surrogate), which no text can. Write it anew."
            )
    characters = len(prompt) + sum(len(each) for turn in value for each in turn)
    if value and characters > LONGEST_TEXT:
        raise ValueError(
            f"The prompt and the earlier turns have {characters:,} characters together; at most {LONGEST_TEXT:,} are read. "
            "Begin a new chat."
        )
    return tuple((request, answer) for request, answer in value)


def build_chat_messages(turns: ChatTurns, prompt: str) -> list[dict[str, str]]:
    """The chat as messages, user and assistant by turns. The last one is the prompt, a user's."""
    earlier = [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    return [*earlier, {"role": "user", "content": prompt}]
