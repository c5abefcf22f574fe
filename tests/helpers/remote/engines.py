"""Stand-ins that answer as llama-server, vLLM and SGLang do: what they tell of themselves, of an answer and of its guesses.

They write the same text for a prompt at every time, at a speed that the test sets: in real seconds, or in those of a `Clock`.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from helpers.remote.streaming import Reply, Served, event, serving

OWNERS = {"llama-server": "llamacpp", "vLLM": "vllm", "SGLang": "sglang", "": "somebody"}
JSON = "application/json"


class Clock:
    """Seconds that pass only where a stand-in writes, for those who read them here in place of `time`. Streams write one by one."""

    def __init__(self) -> None:
        self.seconds, self.lock = 0.0, threading.Lock()

    def perf_counter(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        with self.lock:
            self.seconds += seconds


@dataclass
class Engine:
    """A server of one kind. `seconds` are those of a token with guesses and without.

    Of four drafted tokens `accepted` come true. With `deaf` it drafts although a request says not to.
    A vLLM tells in `metrics` of every request what `per_request` says: its times, a summary of its guesses, or its steps in detail.
    `strangers` are verifications of other people's requests beside each of ours, in which all drafts fail; its counters hold them too.
    With a `gate` no stream begins before as many as it holds are there. Where it holds more than `crowd`, guesses cost double.
    """

    clock = time  # a test may put a Clock in its place

    kind: str
    drafts: bool = True
    seconds: tuple[float, float] = (0.006, 0.016)
    accepted: int = 3
    crowd: int = 0  # 0: none is too many
    deaf: bool = False
    switch: bool = True  # whether a request may leave out guesses; else `/slots` alone tells that it drafts
    says: str = ""  # the whole text, in place of words and prompt
    mute: bool = False  # whether answers say nothing of guesses and tokens
    models: tuple[str, ...] = ("/disk/of/somebody/model.gguf",)
    words: str = "word"
    per_request: Literal["", "times", "summary", "detailed"] = ""
    strangers: int = 0
    counts: dict[str, int] = field(default_factory=lambda: {"drafts": 0, "draft_tokens": 0, "accepted_tokens": 0})
    written: int = 0  # tokens, strangers' too
    gate: threading.Barrier | None = None
    overruns: int = 0  # tokens behind the text's end that it counts where it guesses
    lock: threading.Lock = field(default_factory=threading.Lock)

    def page(self, path: str) -> Reply:
        told: Any = None
        if path == "/v1/models":
            told = {"data": [{"id": each, "owned_by": OWNERS[self.kind]} for each in self.models]}
        elif path == "/props" and self.kind == "llama-server":
            guesses = {"speculative.n_max": 16} if self.switch else {"speculative.types": "none"}
            params = guesses | {"temperature": 0.8}
            told = {"build_info": "b9001-abc", "total_slots": 4, "default_generation_settings": {"params": params}}
        elif path == "/slots" and self.kind == "llama-server" and not self.switch:
            told = [{"id": number, "speculative": self.drafts, "params": {"temperature": 0.8}} for number in range(4)]
        elif path == "/version" and self.kind == "vLLM":
            told = {"version": "0.32.0"}
        elif path == "/get_server_info" and self.kind == "SGLang":
            told = {
                "version": "0.6.1",
                "speculative_algorithm": "EAGLE3",
                "speculative_draft_model_path": "/home/x/draft",
            }
        elif path == "/metrics" and self.kind == "vLLM":
            lines = [
                f'vllm:spec_decode_num_{name}_total{{engine="{core}",model_name="m"}} {count // 2 + core * (count % 2)}.0'
                for name, count in self.counts.items()
                for core in (0, 1)
            ]
            written = f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {self.written}.0'
            return Reply(
                ["\n".join(["vllm:num_requests_running 1.0", written, *lines * self.drafts]).encode()],
                200,
                "text/plain",
            )
        return Reply([b""], 404) if told is None else Reply([json.dumps(told).encode()], 200, JSON)

    def script(self, path: str, body: dict) -> Reply:
        if body.get("echo") and self.kind == "vLLM":
            return Reply([json.dumps(self.echo(body["prompt"])).encode()], 200, JSON)
        return (
            Reply(self.parts(path, body)) if path in ("completions", "chat/completions") else Reply([b"{}"], 404, JSON)
        )

    def parts(self, path: str, body: dict) -> Iterator[bytes]:
        guessing = self.drafts and (self.deaf or body.get("speculative.n_max") != 0)
        prompt, tokens = body.get("prompt") or body["messages"][0]["content"], body["max_tokens"]
        if self.gate:
            self.gate.wait()
        crowded = guessing and self.gate is not None and 0 < self.crowd < self.gate.parties
        pace = self.seconds[0 if guessing else 1] * (2 if crowded else 1)
        self.clock.sleep(tokens * pace)
        passes = -(-tokens // (1 + self.accepted)) if guessing else tokens
        drafted, accepted = (4 * passes, tokens - passes) if guessing else (0, 0)
        with self.lock:
            others = self.strangers, 4 * self.strangers, 0
            self.written += tokens + (self.strangers if guessing else 0)
            for name, count, beside in zip(self.counts, (passes, drafted, accepted), others, strict=True):
                self.counts[name] += count + beside if guessing else 0
        said = self.says or f" {self.words} of {prompt}"
        piece = {"text": said} if path == "completions" else {"delta": {"content": said}}
        yield event({"choices": [{"index": 0, **piece, "finish_reason": None}]})
        last = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
        counted = tokens + (self.overruns if guessing else 0)
        usage = {"choices": [], "usage": {"completion_tokens": counted}}
        if self.mute:
            yield event(last)
        elif self.kind == "llama-server":
            clock = {"prompt_ms": 20.0, "predicted_ms": 1000 * tokens * pace}
            timings = (
                {"predicted_n": counted}
                | clock
                | ({"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {})
            )
            yield event(last | {"timings": timings})
        elif self.kind == "SGLang" and body.get("return_spec_tokens_details"):
            details = {
                "spec_verify_ct": passes,
                "spec_num_proposed_drafts": drafted,
                "spec_num_correct_drafts": accepted,
            }
            yield event(last | {"sglext": {"spec_tokens_details": details}})
            yield event(usage)
        elif self.kind == "vLLM" and self.per_request:
            steps = (
                [min(self.accepted, tokens - 1 - at * (1 + self.accepted)) for at in range(passes)] if guessing else []
            )
            yield event(last)
            yield event(usage | {"metrics": self.metrics(steps)})
        else:
            yield event(last)
            yield event(usage)
        yield b"data: [DONE]\n\n"

    def echo(self, prompt: str) -> dict[str, Any]:
        """Every character is a token, likely by -2 nats, and by -9 from the word "nonsense" on. A token stands before the text."""
        unlikely = prompt.find("nonsense") if "nonsense" in prompt else len(prompt)
        told = [None, *[-2.0 if at < unlikely else -9.0 for at in range(len(prompt))], -1.0]
        logprobs = {"token_logprobs": told, "text_offset": [0, *range(5, 6 + len(prompt))]}
        return {"choices": [{"index": 0, "text": f"{prompt}.", "logprobs": logprobs}]}

    def metrics(self, accepted: list[int]) -> dict[str, Any]:
        """What a vLLM tells of a request whose verifications accepted so many of four tokens each; a plain one has none."""
        times = {"time_to_first_token_ms": 20.0, "queue_time_ms": 0.5}
        if self.per_request == "times":
            return times
        if not accepted:
            return times | {"speculative_decoding": None}
        many, kept = len(accepted), sum(accepted)
        told: dict[str, Any] = {
            "num_spec_steps": many,
            "num_draft_tokens": 4 * many,
            "num_accepted_draft_tokens": kept,
            "mean_acceptance_length": 1 + kept / many,
        }
        if self.per_request == "detailed":
            told |= {"per_step_drafted": [4] * many, "per_step_accepted": accepted}
        return times | {"speculative_decoding": told}


@contextmanager
def running(engine: Engine) -> Iterator[Served]:
    with serving(engine.script, engine.page) as served:
        yield served
