"""Runs commands in this process as a shell would run them."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run(main, *arguments: object) -> None:
    main([str(each) for each in arguments])


def printed(capsys, main, *arguments: str) -> list[str]:
    main(list(arguments))
    return capsys.readouterr().out.splitlines()


def awaited(coroutine: Coroutine) -> Any:
    """What the coroutine gives. It runs on a thread of its own, because a browser's loop may run on this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
