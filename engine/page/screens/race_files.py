"""Race files: one at a time is read in a process of its own, so that no race waits for it. Knows processes; knows no race."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE

from engine.record.files import MOST_BYTES
from engine.record.parsing import format_value_for_error

ROOT = Path(__file__).resolve().parents[3]
READER = [sys.executable, "-c", "import sys; from engine.page.views.reading import main; main(sys.argv[1:])"]
DEADLINE = 20.0  # seconds; a file of the largest size takes a few, and more while a race runs
WAITING = 10.0  # seconds that a file waits for those before it
MOST_WAITING = 4  # files of a visitor that wait
LONGEST_REST = 5.0  # seconds
MOST_NAMES = 1000  # visitors that are remembered
BUSY = "Other files are being read. Try again in a few seconds."
NO_PROCESS = "This server can start no process to read it. Use `python -m engine replay` on your own machine."


class FairRaceFileReadingQueue:
    """One reading at a time, next by who has read the least lately. A rest as long as each follows: races keep the machine."""

    def __init__(self):
        self.changed, self.rested = threading.Condition(), 0.0
        self.reading = False
        self.waiting: list[str] = []
        self.read: dict[str, float] = {}  # by visitor: when a reading of his last ended

    def wait_for_reading_turn_or_give_up(self, visitor: str) -> bool:
        """Whether it is the caller's turn now, or becomes so within `WAITING` seconds."""
        until = time.monotonic() + WAITING
        with self.changed:
            if self.waiting.count(visitor) >= MOST_WAITING:
                return False
            self.waiting.append(visitor)
            try:
                while (left := self.seconds_until_turn(visitor)) > 0:
                    if time.monotonic() >= until:
                        return False
                    self.changed.wait(min(left, until - time.monotonic()))
                self.reading, self.begun = True, time.monotonic()
                return True
            finally:
                self.waiting.remove(visitor)
                self.changed.notify_all()

    def seconds_until_turn(self, visitor: str) -> float:
        """Seconds until the visitor's turn, or until it is worth asking again."""
        if self.reading or min(self.waiting, key=lambda each: self.read.get(each, 0.0)) != visitor:
            return WAITING
        return self.rested - time.monotonic()

    def end_reading_and_start_cooldown(self, visitor: str) -> None:
        now = time.monotonic()
        with self.changed:
            self.reading, self.rested = False, now + min(now - self.begun, LONGEST_REST)
            self.read.pop(visitor, None)
            self.read = dict([*self.read.items(), (visitor, now)][-MOST_NAMES:])
            self.changed.notify_all()


READINGS = FairRaceFileReadingQueue()  # of this process


def convert_race_file_in_subprocess(output_form: str, file_text: object, visitor: str = "") -> dict[str, object]:
    """What `engine.page.views.reading` answers about the text of a race file, or under "refused" why there is no answer."""
    if not isinstance(file_text, str):
        return build_race_file_refusal(f"It must be a text, got {format_value_for_error(file_text)}.")
    if len(file_text) > MOST_BYTES:
        return build_race_file_refusal(
            f"It has {len(file_text) / 1e6:.1f} MB; at most {MOST_BYTES / 1e6:.0f} MB are read."
        )
    if not READINGS.wait_for_reading_turn_or_give_up(visitor):
        return build_race_file_refusal(BUSY)
    try:
        sent = file_text.encode("utf-8", "surrogatepass")
        done = subprocess.run(
            [*READER, output_form], input=sent, cwd=ROOT, timeout=DEADLINE, check=True, stdout=PIPE, stderr=DEVNULL
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return build_race_file_refusal(f"It took longer than {DEADLINE:g} seconds. Try a shorter race.")
    except (subprocess.CalledProcessError, ValueError):
        return build_race_file_refusal("It takes more time or memory than there is for it. Try a shorter race.")
    except OSError:
        return build_race_file_refusal(NO_PROCESS)
    finally:
        READINGS.end_reading_and_start_cooldown(visitor)


def build_race_file_refusal(reason: str) -> dict[str, object]:
    return {"refused": f"This race file cannot be read. {reason}"}
