"""Serving: a server of another engine on this machine, started, asked and ended. Knows processes and HTTP; knows no model."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
# vLLM is imported once, which takes longer than a server's start. Every line names a server's arguments and its log. The server is a
# copy of this process, in a group of its own, and so is what it starts.
VLLM = """
import json, multiprocessing, os, signal, sys
import vllm.utils.system_utils as system
system.get_mp_context = lambda: multiprocessing.get_context("fork")
import uvloop
from vllm.entrypoints.openai.api_server import run_server
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser
import vllm.v1.engine.core, vllm.v1.worker.cpu_worker
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
for line in sys.stdin:
    arguments, log = json.loads(line)
    child = os.fork()
    if child:
        print(child, flush=True)
        continue
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kept = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(kept, 1)
    os.dup2(kept, 2)
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(arguments)
    validate_parsed_serve_args(parsed)
    uvloop.run(run_server(parsed))
    os._exit(0)
"""
# Without compiled kernels, because they take minutes; in float32, as our own forward computes
ASKED = "--host 127.0.0.1 --dtype float32 --max-model-len 1024 --enforce-eager --max-num-seqs 4"
ASKED += " --max-num-batched-tokens 1024 --no-enable-prefix-caching --served-model-name m"
SETTINGS = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Launcher:
    """A process that has imported vLLM and starts its servers. Closing it ends the process."""

    def __init__(self, python: Path, log: Path):
        self.log = log
        with log.open("w", encoding="utf-8") as errors:
            pipes: dict[str, Any] = {
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": errors,
                "text": True,
            }
            self.process = subprocess.Popen([python, "-c", VLLM], env=os.environ | SETTINGS, **pipes)
        self.said()

    def said(self) -> str:
        """Its next line that is a number or "ready": imports write lines too. Raises `RuntimeError` where it has ended."""
        for line in self.process.stdout:
            if (word := line.strip()).isdigit() or word == "ready":
                return word
        raise RuntimeError(f"vLLM could not be imported. {tail(self.log)}")

    @contextmanager
    def serving(self, target: Path, guesses: dict[str, Any], told: str, log: Path) -> Iterator[str]:
        """The address of a server with this speculative config, which tells so much of a request's guesses."""
        port = free_port()
        arguments = [*ASKED.split(), "--model", str(target), "--port", str(port)]
        arguments += ["--speculative-config", json.dumps(guesses), "--per-request-spec-decode-metrics", told]
        self.process.stdin.write(json.dumps([arguments, str(log)]) + "\n")
        self.process.stdin.flush()
        with ready(int(self.said()), port, log) as address:
            yield address

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def serving_llama(python: Path, target: Path, draft: Path, guesses: int, log: Path) -> Iterator[str]:
    """The address of a llama.cpp server on GGUF files."""
    port = free_port()
    command = [python, "-c", LLAMA, str(port), target, draft, str(guesses)]
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen([*map(str, command)], stdout=file, stderr=file, start_new_session=True)
    with ready(process.pid, port, log) as address:
        process.poll()
        yield address


@contextmanager
def ready(group: int, port: int, log: Path) -> Iterator[str]:
    """Waits until a server answers, and gives its address. Ends its group of processes in the end.

    Raises `RuntimeError` with an error of its log where it ends before.
    """
    try:
        begun = time.monotonic()
        while not answers(port):
            if not is_there(group) or time.monotonic() - begun > PATIENCE:
                raise RuntimeError(f"The server did not start. {tail(log)}")
            time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        for how in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(group, how)
            time.sleep(2)


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


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
