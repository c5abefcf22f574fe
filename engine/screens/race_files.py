"""Race files: one at a time is read in a process of its own, so that no race waits for it. Knows processes; knows no race."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE

from engine.record.parsing import shown
from engine.record.race_file import MOST_BYTES

ROOT = Path(__file__).resolve().parents[2]
READER = [sys.executable, "-c", "import sys; from engine.views.reading import main; main(sys.argv[1:])"]
DEADLINE = 20.0  # seconds; a file of the largest size takes a few, and more while a race runs
WAITING = 2.0  # seconds that a file waits for the one before it
LONGEST_REST = 5.0  # seconds
BUSY = "Another visitor's file is being read. Try again in a few seconds."
TOO_MUCH = "It takes more time or memory than there is for it. Try a shorter race."
NO_PROCESS = "This server can start no process to read it. Use `python -m engine replay` on your own machine."


class Turns:
    """One reading at a time. After each comes a rest as long as it took: races keep the machine for most of the time."""

    def __init__(self):
        self.taken, self.rested = threading.Lock(), 0.0

    def begin(self) -> bool:
        """Whether it is the caller's turn now, or becomes so within `WAITING` seconds."""
        if not self.taken.acquire(timeout=WAITING):
            return False
        rest = self.rested - time.monotonic()
        if rest > WAITING:
            self.taken.release()
            return False
        time.sleep(max(0.0, rest))
        self.begun = time.monotonic()
        return True

    def end(self) -> None:
        now = time.monotonic()
        self.rested = now + min(now - self.begun, LONGEST_REST)
        self.taken.release()


TURNS = Turns()  # of this process


def read(way: str, text: object) -> dict[str, object]:
    """What `engine.views.reading` answers about the text of a race file, or under "refused" why there is no answer."""
    if not isinstance(text, str):
        return refused(f"It must be a text, got {shown(text)}.")
    if len(text) > MOST_BYTES:
        return refused(f"It has {len(text) / 1e6:.1f} MB; at most {MOST_BYTES / 1e6:.0f} MB are read.")
    if not TURNS.begin():
        return refused(BUSY)
    try:
        sent = text.encode("utf-8", "surrogatepass")
        done = subprocess.run(
            [*READER, way], input=sent, cwd=ROOT, timeout=DEADLINE, check=True, stdout=PIPE, stderr=DEVNULL
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return refused(f"It took longer than {DEADLINE:g} seconds. Try a shorter race.")
    except (subprocess.CalledProcessError, ValueError):
        return refused(TOO_MUCH)
    except OSError:
        return refused(NO_PROCESS)
    finally:
        TURNS.end()


def refused(why: str) -> dict[str, object]:
    return {"refused": f"This race file cannot be read. {why}"}
