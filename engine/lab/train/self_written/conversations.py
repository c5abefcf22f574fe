"""Conversations that a chat model writes by itself: requests out of an empty user turn, and its own answers to them.

A chat model that is shown its template up to where a user's message begins writes such a message at temperature 1 (Magpie, arXiv
2406.08464). A target without a template writes texts from its beginning token on. Knows a tokenizer, its template and the order of
turns; knows no forward and no net.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from engine.models.chat import STAND_IN, build_messages, render_chat

REQUEST_TEMPERATURE = 1.0
LONGEST_ANSWER = 128  # tokens, behind which the next request follows: a small model that goes on repeats itself
LONGEST_REQUEST = 96  # tokens, behind which a request ends: some templates end it by no single token
OPENING = 16  # tokens of a text without requests that are sampled as these are, or greedy texts would all be one

RequestTokenDrawer = Callable[[], list[int] | None]  # the tokens of a given request, or None where the target writes it


@dataclass(frozen=True)
class ChatMarkers:
    """What stands around messages, as token ids.

    `before_first_request` ends where the first request begins, `before_answer` stands between a request and its answer, and
    `before_next_request` between an answer and the next request. `message_end_ids` are the tokens that end a message. With
    `has_requests` False nobody asks: texts follow each other, and the beginning of each stands for its request.
    """

    before_first_request: list[int]
    before_answer: list[int]
    before_next_request: list[int]
    message_end_ids: frozenset[int]
    has_requests: bool = True


def chat_markers_of(tokenizer: PreTrainedTokenizerBase, stop_ids: Collection[int], raw: bool = False) -> ChatMarkers:
    """The turns of the tokenizer's template, or those of plain texts where it has none and with `raw`.

    `stop_ids` are the ids that end the target's text. Raises `ValueError` for a template that does not hold the messages once, and
    for a target without any token to begin or end a text.
    """
    if raw or not tokenizer.chat_template:
        known = (tokenizer.bos_token_id, tokenizer.eos_token_id, *sorted(stop_ids))
        begin = next((token for token in known if token is not None), None)
        if begin is None:
            raise ValueError("The target names no token that begins or ends a text. Give texts with --prompts FILE.")
        return ChatMarkers([begin], [], [begin], frozenset(stop_ids), has_requests=False)
    first, second, reply = STAND_IN, STAND_IN + "2", STAND_IN + "1"
    alone = split_around_message(render_chat(tokenizer, first), first)
    try:
        messages = [*build_messages(first), {"role": "assistant", "content": reply}, *build_messages(second)]
        whole = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        between = split_around_message(whole.partition(reply)[2], second)[0]
    except Exception:  # a template is a program, and may refuse a second request in any way
        between = ""
    opening, answering, asking = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (*alone, between))
    ends = {*stop_ids, *(piece[0] for piece in (answering, asking) if piece and is_control_token(tokenizer, piece[0]))}
    return ChatMarkers(opening, answering, asking or opening, frozenset(ends))


def split_around_message(text: str, message: str) -> tuple[str, str]:
    """What stands before and behind the message. Raises `ValueError` unless it stands there once."""
    if (times := text.count(message)) != 1:
        raise ValueError(
            f"The target's chat template holds a message {times:,} times and must hold it once. Use --raw."
        )
    before, _, behind = text.partition(message)
    return before, behind


def is_control_token(tokenizer: PreTrainedTokenizerBase, token: int) -> bool:
    return token in tokenizer.added_tokens_decoder and tokenizer.added_tokens_decoder[token].special


def tokenise_request_ending(tokenizer: PreTrainedTokenizerBase, request: str, max_tokens: int) -> list[int]:
    """The tokens of a given request, the last `max_tokens` of them. A control token's name in it is text."""
    return tokenizer(request, add_special_tokens=False, split_special_tokens=True)["input_ids"][-max_tokens:]


class Conversation:
    """One row. It says which token comes next, given what the target would write there, and how the target writes now."""

    def __init__(self, markers: ChatMarkers, answer_temperature: float, draw_request_tokens: RequestTokenDrawer):
        """Answers come at this `answer_temperature`."""
        self.markers, self.answer_temperature, self.draw_request_tokens = (
            markers,
            answer_temperature,
            draw_request_tokens,
        )
        self.forced: deque[int] = deque()
        self.queue_next_request(markers.before_first_request)

    @property
    def is_next_token_from_target(self) -> bool:
        """Whether the target writes the next token."""
        return not self.forced

    @property
    def current_temperature(self) -> float:
        """The temperature at which the target writes now."""
        return REQUEST_TEMPERATURE if self.requesting else self.answer_temperature

    def queue_next_request(self, tokens_before_request: list[int]) -> None:
        """A new request follows `tokens_before_request`."""
        self.forced += tokens_before_request
        given = self.draw_request_tokens()
        self.requesting, self.written = given is None, 0
        if given is not None:
            self.forced += [*given, *self.markers.before_answer]

    def take_forced_or_target_token(self, target_token: int) -> int:
        """The next token of the row; `target_token` is what the target writes there, if it may."""
        if self.is_next_token_from_target:
            self.written += 1
            if target_token in self.markers.message_end_ids:
                self.end_message(target_token)
            elif self.requesting and self.written > (LONGEST_REQUEST if self.markers.has_requests else OPENING):
                self.queue_answer_start()
            elif not self.requesting and self.markers.has_requests and self.written > LONGEST_ANSWER:
                self.end_message(min(self.markers.message_end_ids))
        return target_token if self.is_next_token_from_target else self.forced.popleft()

    def queue_answer_start(self) -> None:
        """The target's answer follows."""
        self.forced += self.markers.before_answer
        self.requesting, self.written = False, 0

    def end_message(self, end_token: int) -> None:
        """The message ends by the target's token `end_token`. What follows brings the template's own end, if it has one."""
        if self.requesting and self.markers.before_answer:
            self.queue_answer_start()
        else:
            asking = self.markers.before_next_request
            self.queue_next_request(asking if asking[0] in self.markers.message_end_ids else [end_token, *asking])
