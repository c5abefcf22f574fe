"""The C library's heap: threads share its arenas, and what another C library lacks is left out."""

import subprocess
import sys

from engine.page.screens import heap
from helpers.paths import OF_TESTS, ROOT

EIGHT_THREADS_ALLOCATE = """
import ctypes, sys, threading
from engine.page.screens.heap import limit_malloc_arenas
if sys.argv[1] == "shared":
    limit_malloc_arenas()
libc, all_there, enough = ctypes.CDLL(None), threading.Barrier(9), threading.Barrier(9)
libc.malloc.restype = ctypes.c_void_p
def allocate():
    all_there.wait()
    kept.append([libc.malloc(10_000) for _ in range(100)])
    enough.wait()
kept, threads = [], [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
all_there.wait()
enough.wait()
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info(0, ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w")))
libc.fflush(None)
"""


def arenas(how: str) -> int:
    command = [sys.executable, "-c", EIGHT_THREADS_ALLOCATE, how]
    return subprocess.run(command, cwd=ROOT, env=OF_TESTS, text=True, capture_output=True, check=True).stdout.count(
        "<heap nr="
    )


def test_all_threads_share_two_arenas():
    assert arenas("own") > arenas("shared") == heap.ARENAS


def test_what_another_c_library_lacks_is_left_out(monkeypatch):
    heap.return_free_heap_to_system()
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda name: object())
    heap.limit_malloc_arenas()
    heap.return_free_heap_to_system()
