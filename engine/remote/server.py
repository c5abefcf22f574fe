"""Server: an OpenAI-compatible streaming server, and its answer piece by piece.

Whatever the server does becomes pieces of text and, where it fails, a sentence. Text, pieces, lines and seconds are bounded.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import httpx

from engine.record.chat_turns import ChatTurns, build_chat_messages
from engine.record.parsing import HALVES, LONGEST_TEXT, parse_json
from engine.record.trace import FAILED, STEPS

CONNECT, SILENCE, LONGEST = 5.0, 60.0, 120.0  # seconds: to connect, without a byte, of a whole answer
MOST_LINE = 1_000_000  # bytes of a line
MOST_ERROR = 16_000  # bytes that are read of an error's body
SHOWN = 200  # characters of an error that are quoted
TOLD = ("usage", "timings", "metrics", "sglext")  # what engines say of an answer, beside its text
MISSING = (404, 405)  # what a server without the completions endpoint answers
BY_CHAT = "The server has no completions endpoint, so it was asked by chat. Its template changes the prompt, so the text may differ."


@dataclass(frozen=True)
class OpenAICompatibleServer:
    """Where a remote lane's text comes from, and what is said of it. `model` is what the server is asked for, "" for its own.

    Raises `ValueError` for an address that is none.
    """

    address: str  # with its path, such as http://127.0.0.1:8000/v1
    model: str = ""

    name = "remote"  # of its system
    guarantee = "text"

    def __post_init__(self):
        try:
            parts = urlsplit(self.address)
            whole = parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment
            _ = parts.port
        except ValueError:
            whole = False
        if not whole:
            got = self.address[:80]
            raise ValueError(f"A server's address must be one such as http://127.0.0.1:8000/v1, got {got!r}.")

    @property
    def label(self) -> str:
        """The model's name where one was given, else host and port. The address's path and password are not told."""
        parts = urlsplit(self.address)
        return self.model or f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    @property
    def title(self) -> str:
        return f"remote: {self.label}"

    @property
    def clock_description(self) -> str:
        """What the record says in the place of the hardware."""
        return f"{self.title}, its own clock, network included"

    @property
    def idea(self) -> str:
        return (
            f"Another server writes this text: {self.label}. Its clock is its own: seconds since the request, network included. "
            "There is no tree to look into. Its tokens are counted with this pair's tokenizer."
        )


@dataclass(frozen=True)
class TimedTextPiece:
    """Text that arrived `seconds_since_request` after the request. `end_reason` is "" while more may come. `server_note` is a sentence
    about the server.
    """

    text: str
    seconds_since_request: float
    end_reason: str = ""
    server_note: str = ""


class AnswerFailure(Exception):
    """Ends an answer with a sentence."""


class AnswerStream:
    """One streamed answer of a server, read by a thread of its own, so that no caller waits for the network."""

    def __init__(
        self,
        server: OpenAICompatibleServer,
        prompt: str | list[int],
        sampling_fields: dict[str, Any],
        is_chat: bool = False,
        reads_past_text_end: bool = False,
        turns: ChatTurns = (),
    ):
        """`sampling_fields` holds `max_tokens`, `temperature` and `seed`. With `is_chat` the prompt is a user's message in the
        server's template, behind those of the `turns`. A prompt of token ids is for the completions endpoint alone.

        With `reads_past_text_end` the answer is read on behind the end of its text, because engines say there what it took;
        `reported_fields` keeps it by name.
        """
        self.server, self.prompt, self.sampling_fields, self.turns = server, prompt, sampling_fields, turns
        self.is_chat, self.reads_past_text_end = is_chat, reads_past_text_end
        self.pieces: SimpleQueue[TimedTextPiece] = SimpleQueue()
        self.reported_fields: dict[str, Any] = {}
        self.end = ""  # of the text, where more is read behind it
        self.note = ""  # that the next piece carries
        self.characters = self.count = 0
        self.begun = 0.0

    def start_request_in_reader_thread(self) -> None:
        """Sends the request."""
        self.loop = asyncio.new_event_loop()
        self.task = self.loop.create_task(self.request_text_and_note_failure())
        Thread(target=self.run_reader_thread, name="remote", daemon=True).start()

    def wait_for_pieces(self) -> list[TimedTextPiece]:
        """All pieces, as soon as the last one arrives, which has an `end_reason`."""
        found = [self.pieces.get()]
        while not found[-1].end_reason:
            found.append(self.pieces.get())
        return found

    def close(self) -> None:
        """Closes the connection at once."""
        with suppress(AttributeError, RuntimeError):  # it has not begun, or has ended
            self.loop.call_soon_threadsafe(self.task.cancel)

    # ---- in the thread

    def run_reader_thread(self) -> None:
        with suppress(asyncio.CancelledError):
            self.loop.run_until_complete(self.task)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    async def request_text_and_note_failure(self) -> None:
        self.begun = time.perf_counter()
        label = self.server.label
        try:
            await asyncio.wait_for(self.request_completions_or_else_chat(), LONGEST)
        except AnswerFailure as failure:
            self.end_with_failure_sentence(str(failure))
        except asyncio.TimeoutError:
            self.end_with_failure_sentence(f"{label} did not end its answer within {LONGEST:g} s.")
        except httpx.ConnectTimeout:
            self.end_with_failure_sentence(f"{label} could not be reached within {CONNECT:g} s. Is the address right?")
        except httpx.ConnectError:
            self.end_with_failure_sentence(
                f"{label} cannot be reached. Is the server running, and is the address right?"
            )
        except httpx.TimeoutException:
            self.end_with_failure_sentence(f"{label} said nothing for {SILENCE:g} s.")
        except httpx.HTTPError as error:
            self.end_with_failure_sentence(
                f"The connection to {label} broke: {shorten_to_one_line(str(error) or type(error).__name__)}"
            )
        except ValueError as error:
            self.end_with_failure_sentence(f"{label} sent what cannot be read. {shorten_to_one_line(str(error))}")
        except Exception as error:  # the race waits for an end, whatever happens here
            self.end_with_failure_sentence(f"Reading the answer of {label} failed ({type(error).__name__}).")

    async def request_completions_or_else_chat(self) -> None:
        wait = httpx.Timeout(SILENCE, connect=CONNECT)
        identity = {"Accept-Encoding": "identity"}
        async with httpx.AsyncClient(
            timeout=wait, trust_env=False, headers=identity, verify=load_trusted_certificates()
        ) as client:
            if not self.is_chat and await self.stream_endpoint_answer_if_it_exists(
                client, "completions", {"prompt": self.prompt}
            ):
                return
            if not isinstance(self.prompt, str):
                raise AnswerFailure(f"{self.server.label} has no completions endpoint, which alone takes token ids.")
            self.note = "" if self.is_chat else BY_CHAT
            await self.stream_endpoint_answer_if_it_exists(
                client, "chat/completions", {"messages": build_chat_messages(self.turns, self.prompt)}
            )

    async def stream_endpoint_answer_if_it_exists(
        self, client: httpx.AsyncClient, endpoint: str, prompt_fields: dict[str, Any]
    ) -> bool:
        """Reads the endpoint's whole answer. False when the server has no completions; the clock then begins anew."""
        model = {"model": self.server.model} if self.server.model else {}
        url, body = (
            f"{self.server.address.rstrip('/')}/{endpoint}",
            {**model, **prompt_fields, **self.sampling_fields, "stream": True},
        )
        self.begun = time.perf_counter()
        async with client.stream("POST", url, json=body) as response:
            if endpoint == "completions" and response.status_code in MISSING:
                return False
            if response.status_code != 200:
                raise AnswerFailure(
                    f"{self.server.label} answered {response.status_code}: {await parse_error_body(response)}"
                )
            kind = response.headers.get("content-type", "nothing")
            if not kind.startswith("text/event-stream"):
                raise AnswerFailure(
                    f"{self.server.label} answered with {shorten_to_one_line(kind)} where a stream of text was asked for."
                )
            async for line in read_lines(response):
                if self.queue_pieces_of_line_and_detect_end(line):
                    return True
        if self.end:
            self.queue_received_piece("", self.end)
            return True
        raise AnswerFailure(f"The answer of {self.server.label} broke off before its end.")

    def queue_pieces_of_line_and_detect_end(self, event_line: str) -> bool:
        """Takes one line of the stream. Lines that carry no data are comments and signs of life."""
        if not event_line.startswith("data:"):
            return False
        data = event_line[5:].strip()
        if data == "[DONE]":
            self.queue_received_piece("", self.end or "stop")
            return True
        chunk = parse_json(data, MOST_LINE, "A piece")
        if not isinstance(chunk, dict):
            raise ValueError("A piece must be an object.")
        if chunk.get("error"):
            raise AnswerFailure(f"{self.server.label} failed: {shorten_to_one_line(error_message_of(chunk))}")
        self.reported_fields |= {name: chunk[name] for name in TOLD if chunk.get(name)}
        text, finish = parse_chunk_text_and_finish_reason(chunk)
        end = "" if finish is None else "length" if finish == "length" else "stop"
        if self.reads_past_text_end:
            self.end, end = end or self.end, ""
        if text or end:
            self.queue_received_piece(text, end)
        return bool(end)

    def queue_received_piece(self, text: str, end_reason: str) -> None:
        """Raises `AnswerFailure` for more text or pieces than a race file holds."""
        text = HALVES.sub("\ufffd", text)
        self.characters, self.count = self.characters + len(text), self.count + 1
        if self.characters > LONGEST_TEXT:
            raise AnswerFailure(
                f"{self.server.label} sent more than {LONGEST_TEXT:,} characters, the most that are read."
            )
        if self.count >= (most := STEPS[1]):
            raise AnswerFailure(
                f"{self.server.label} sent its text in more than {most:,} pieces, the most that are read."
            )
        self.pieces.put(TimedTextPiece(text, time.perf_counter() - self.begun, end_reason, self.note))
        self.note = ""

    def end_with_failure_sentence(self, sentence: str) -> None:
        self.pieces.put(TimedTextPiece("", time.perf_counter() - self.begun, FAILED, sentence))


@cache
def load_trusted_certificates() -> ssl.SSLContext:
    """What is trusted of a server's certificate. It is read once, because that takes longer than a short answer."""
    return httpx.create_ssl_context(trust_env=False)


async def read_lines(response: httpx.Response) -> AsyncIterator[str]:
    """The body's lines. Raises `ValueError` for a line that is too long or no UTF-8."""
    rest = b""
    async for chunk in response.aiter_raw():
        *whole, rest = (rest + chunk).split(b"\n")
        if max(map(len, [rest, *whole])) > MOST_LINE:
            raise ValueError(f"A line has more than {MOST_LINE / 1e6:.0f} MB.")
        for line in whole:
            yield line.decode("utf-8").rstrip("\r")


def parse_chunk_text_and_finish_reason(chunk: dict[str, Any]) -> tuple[str, str | None]:
    """The text of a piece and why the answer ends with it, if it does. Raises `ValueError` for another form."""
    choices = chunk.get("choices", [])
    if not isinstance(choices, list) or not all(isinstance(each, dict) for each in choices):
        raise ValueError("The choices of a piece must be a list of objects.")
    if not choices:  # usage figures
        return "", None
    choice = choices[0]
    delta = choice.get("delta")
    if isinstance(delta, dict):  # of a chat: a model that thinks aloud does so in a field of its own, named in two ways
        text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
    else:
        text = choice.get("text") if delta is None else 0  # which is no text
    finish = choice.get("finish_reason")
    if not isinstance(text, str | None) or not isinstance(finish, str | None):
        raise ValueError("The text and the finish reason of a piece must be texts.")
    return text or "", finish


async def parse_error_body(response: httpx.Response) -> str:
    """What an error's body says, in a few words."""
    body = b""
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MOST_ERROR:
            break
    text = body[:MOST_ERROR].decode("utf-8", "replace")
    with suppress(ValueError):
        found = parse_json(text, 4 * MOST_ERROR)
        text = error_message_of(found) if isinstance(found, dict) else text
    return shorten_to_one_line(text) if text.strip() else "it says no more."


def error_message_of(error_body: dict[str, Any]) -> str:
    """The message in an error as OpenAI's, vLLM's and FastAPI's servers write it."""
    error = error_body.get("error") or error_body.get("message") or error_body.get("detail") or ""
    return str(error.get("message", error) if isinstance(error, dict) else error)


def shorten_to_one_line(text: str) -> str:
    """A few words of it on one line."""
    line = HALVES.sub("\ufffd", " ".join(text.split()))
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
