"""Serving: a server of another engine on this machine, started, asked and ended. Knows processes and HTTP; knows no model."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

PATIENCE = 600.0  # seconds for a start, and for an answer
LLAMA = """
import sys, time, xllamacpp
port, target, draft, guesses = sys.argv[1:]
params = xllamacpp.CommonParams()
params.port, params.model.path = int(port), target
params.n_parallel, params.n_ctx, params.cpuparams.n_threads = 1, 1024, 2
if draft:
    params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    params.speculative.draft.mparams.path, params.speculative.draft.n_max = draft, int(guesses)
server = xllamacpp.Server(params)
time.sleep(1e9)
"""
# Without compiled kernels, because they take minutes; in float32, as our own forward computes
VLLM = "-m vllm.entrypoints.openai.api_server --host 127.0.0.1 --dtype float32 --max-model-len 1024 --enforce-eager"
VLLM += " --max-num-seqs 4 --max-num-batched-tokens 1024 --no-enable-prefix-caching --served-model-name m"
SETTINGS = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def vllm(python: Path, target: Path, port: int, guesses: dict[str, Any] | None, told: str) -> list[str]:
    """The command of a vLLM server. `guesses` is its speculative config, and `told` how much it tells of a request's guesses."""
    import json

    more = ["--speculative-config", json.dumps(guesses), "--per-request-spec-decode-metrics", told] if guesses else []
    return [str(python), *VLLM.split(), "--model", str(target), "--port", str(port), *more]


def llama(python: Path, target: Path, port: int, draft: Path | None, guesses: int) -> list[str]:
    """The command of a llama.cpp server on GGUF files."""
    return [str(python), "-c", LLAMA, str(port), str(target), str(draft or ""), str(guesses)]


@contextmanager
def serving(command: list[str], port: int, log: Path) -> Iterator[str]:
    """Runs the command until its server answers, and gives its address. Ends it, and what it started, in the end.

    Raises `RuntimeError` with the last lines of its log where it ends before.
    """
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=os.environ | SETTINGS, start_new_session=True)
    try:
        begun = time.monotonic()
        while not answers(port):
            if process.poll() is not None or time.monotonic() - begun > PATIENCE:
                raise RuntimeError(f"The server did not start. {tail(log)}")
            time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        end(process)


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def end(process: subprocess.Popen) -> None:
    """Ends the process and those that it started: they share its group, which began with it."""
    import signal

    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def tail(log: Path) -> str:
    """The last error in a log, else its last line."""
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line]
    return (errors or lines or ["It wrote nothing."])[-1][-300:]


def ask(address: str, **body: Any) -> dict[str, Any]:
    """The completion to a request. Raises `RuntimeError` with what the server says where it fails."""
    got = httpx.post(f"{address}/completions", json={"model": "m", **body}, timeout=PATIENCE, trust_env=False)
    if got.status_code != 200:
        raise RuntimeError(f"The server answered {got.status_code}: {got.text[:300]}")
    return got.json()


def stream(address: str, **body: Any) -> str:
    """The event stream of a completion, as it came."""
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, **body}
    return httpx.post(f"{address}/completions", json=body, timeout=PATIENCE, trust_env=False).text


def metrics(address: str) -> str:
    return httpx.get(f"{address.removesuffix('/v1')}/metrics", trust_env=False).text
