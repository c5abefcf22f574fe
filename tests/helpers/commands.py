"""Runs commands in this process as a shell would run them."""

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from engine.__main__ import ALL, main, parser_of
from engine.measure.options import refusals

SMALL = ("--pair", "small")  # the embedded pair that tests use


def run(command: str, *arguments: object) -> None:
    main([*command.split(), *map(str, arguments)])


def printed(capsys, command: str, *arguments: object) -> list[str]:
    run(command, *arguments)
    return capsys.readouterr().out.splitlines()


def told(capsys, command: str, *arguments: object) -> tuple[list[str], dict]:
    """The lines that the command prints for people, and its figures as --json would print them."""
    options = parser_of(command).parse_args([*map(str, arguments)])
    options.command = " ".join([command, *map(str, arguments)])
    with refusals():
        found = import_module(ALL[command].module).main(options)
    return capsys.readouterr().out.splitlines(), json.loads(json.dumps(found))


def awaited(coroutine: Coroutine) -> Any:
    """What the coroutine gives. It runs on a thread of its own, because a browser's loop may run on this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
