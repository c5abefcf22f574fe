"""Small OpenAI-compatible servers for tests: one that a test scripts, and one that runs transformers' `generate()`."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, TextIteratorStreamer

STREAM = "text/event-stream"


@dataclass(frozen=True)
class Reply:
    """What the server answers: its parts are sent one by one, and the connection closes behind the last one."""

    parts: Any
    status: int = 200
    kind: str = STREAM


@dataclass
class Served:
    """A server that runs: its address, the requests so far, and whether a client went away before the end."""

    address: str
    requests: list[tuple[str, dict]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)


Script = Callable[[str, dict], Reply]


def event(value: object) -> bytes:
    """A server-sent event with this JSON value."""
    return f"data: {json.dumps(value)}\n\n".encode()


def text(piece: str, finish: str | None = None) -> bytes:
    """A piece as the completions endpoint sends it."""
    return event({"choices": [{"index": 0, "text": piece, "finish_reason": finish}]})


def chat(piece: str, finish: str | None = None) -> bytes:
    """A piece as the chat endpoint sends it."""
    return event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": finish}]})


@contextmanager
def serving(script: Script, pages: Callable[[str], Reply] = lambda path: Reply([b""], 404)) -> Iterator[Served]:
    """A server on a free port of this machine. `script` gets the path behind /v1/ and the request's body; `pages` a whole path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(pages(self.path))

        def do_POST(self) -> None:
            path = self.path.removeprefix("/v1/")
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.requests.append((path, body))
            self.answer(script(path, body))

        def answer(self, reply: Reply) -> None:
            try:
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.kind)
                self.end_headers()
                for part in reply.parts:
                    self.wfile.write(part)
                    self.wfile.flush()
            except OSError:
                served.left.set()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        served = Served(f"http://127.0.0.1:{server.server_port}/v1")
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield served
        finally:
            server.shutdown()


def generating(folder: str) -> Script:
    """Greedy completions of a checkpoint by transformers' own `generate()` and streamer."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

    def parts(body: dict) -> Iterator[bytes]:
        streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
        inputs = tokenizer(body["prompt"], return_tensors="pt")
        asked = {"max_new_tokens": body["max_tokens"], "do_sample": False, "streamer": streamer}
        threading.Thread(target=model.generate, kwargs={**inputs, **asked}, daemon=True).start()
        for piece in streamer:
            yield text(piece)
        yield text("", "length")
        yield b"data: [DONE]\n\n"

    def script(path: str, body: dict) -> Reply:
        return Reply(parts(body)) if path == "completions" else Reply([b"{}"], 404, "application/json")

    return script
