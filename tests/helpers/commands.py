"""Runs commands in this process as a shell would run them, and the app in a process of its own."""

import asyncio
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import pytest

from engine.__main__ import ALL, build_command_parser, main
from engine.measure.options import exit_with_sentence_on_refusal
from helpers.paths import OF_TESTS, ROOT

SMALL = ("--pair", "small")  # the embedded pair that tests use


def run(command: str, *arguments: object) -> None:
    main([*command.split(), *map(str, arguments)])


def printed(capsys, command: str, *arguments: object) -> list[str]:
    run(command, *arguments)
    return capsys.readouterr().out.splitlines()


def told(capsys, command: str, *arguments: object) -> tuple[list[str], dict]:
    """The lines that the command prints for people, and its figures as --json would print them."""
    options = build_command_parser(command).parse_args([*map(str, arguments)])
    options.command = " ".join([command, *map(str, arguments)])
    with exit_with_sentence_on_refusal():
        found = import_module(ALL[command].module).main(options)
    return capsys.readouterr().out.splitlines(), json.loads(json.dumps(found))


def awaited(coroutine: Coroutine) -> Any:
    """What the coroutine gives. It runs on a thread of its own, because a browser's loop may run on this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


# The app, whose races hurry and run again once, unseen. In a "bare" one none runs again, and what nobody races is not made ready
HURRIED = """
import sys
from engine.measure import repeated
from engine.page.screens import readiness
from helpers.decoding import hurry

hurry()
repeated.MOST, readiness.WARM_UP_TOKENS = 2, 2
if sys.argv.pop(1) == "bare":
    repeated.MOST, readiness.SystemPreparation.prepare_remaining_systems = 1, lambda ready: None
import app
app.main()
"""


@contextmanager
def starting_app(*options: str, bare: bool = False) -> Iterator[Callable[[str], str]]:
    """Starts the app and waits for nothing. Asked for its address "live" or "ready", it waits until /readiness says so.

    A `bare` one is only live.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-X", "faulthandler", "-c", HURRIED, "bare" if bare else "whole", *options]
    process = subprocess.Popen([*command, "--port", str(port)], cwd=ROOT, env=OF_TESTS)
    url = f"http://127.0.0.1:{port}/"

    def address(until: str) -> str:
        for _ in range(3000):  # ten minutes: a first start compiles, and a machine may be busy
            assert process.poll() is None, "app.py ended before it served"
            with suppress(OSError), urllib.request.urlopen(f"{url}readiness", timeout=1) as answer:
                if json.load(answer)[until]:
                    return url
            time.sleep(0.2)
        return pytest.fail(f"app.py was not {until} within ten minutes.")

    try:
        yield address
        assert process.poll() is None, f"app.py ended by itself, with status {process.poll()}"
    finally:
        process.terminate()
        process.wait(20)
