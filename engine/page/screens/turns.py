"""Turns: whose work goes on next on a shared device. Knows visitors, jobs and seconds; starts nothing and waits for nothing.

Every visitor gets the same share, however many calls he makes, and of those who wait every address does, however many names it has.
Races go first, long work runs in what is left of the device, and making something ready runs when nobody asks for anything.
"""

import math
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from engine.page.views.wire import RunEvent
from engine.record.quiet import WorkSignal

RACE, LONG, READYING = range(3)  # ranks of jobs, the first goes first
ORDINALS = {2: "second", 3: "third", 4: "fourth"}  # of the steps of so many races
AT_ONCE = {RACE: 4, LONG: 2, READYING: 1}  # jobs of each rank that share the device; further ones wait in line
MOST_SECONDS = {RACE: 120.0, LONG: 900.0, READYING: math.inf}  # of the device that a job may use
LEFT = 10  # of so many turns, one is long work's even while races run
MOST_JOBS, MOST_OF_ADDRESS, MOST_OF_VISITOR = 96, 64, 4  # jobs that are let in: a hall may share an address
HALF_LIFE = 60.0  # seconds after which half of what a visitor has used is forgotten
FIRST_GUESS = {RACE: 2.0, LONG: 60.0, READYING: 0.0}  # seconds of a job before one has ended


@dataclass(frozen=True)
class JobEnd:
    """No event of a job comes behind this one. `failure` is what its work has raised."""

    failure: Exception | None = None


@dataclass(eq=False)
class Job:
    """What a call asks for: `work` makes steps, which yield news; `tell` hands these on; `bytes` are reserved before it begins."""

    work: Callable[[], Iterator[RunEvent | WorkSignal]]
    visitor: str = ""
    rank: int = RACE
    bytes: int = 0
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    address: str = ""  # where its visitor asks from
    tell: Callable[[RunEvent | JobEnd], None] = lambda event: None
    steps: Iterator[RunEvent | WorkSignal] | None = None  # once it has begun
    used: float = 0.0  # seconds of the device
    turn: float = 0.0  # its seconds, of which the fewest go next; a newcomer begins with the least of those that run
    listening: bool = True  # whether its visitor has taken the last news
    resting: float = 0.0  # until when it has nothing to do, on the line's clock
    gone: bool = False  # whether its visitor has left
    until: float = math.inf  # when its visitor's page counts as lost
    told: bool = False  # whether its last step was news, behind which a race holds no step back


class JobQueue:
    """Jobs that run and jobs that wait. Its owner calls it under a lock."""

    def __init__(self, budget: float = math.inf, now: Callable[[], float] = time.monotonic):
        """`budget` is in bytes, for the caches of all that run together."""
        self.budget, self.now = budget, now
        self.running: list[Job] = []
        self.waiting: list[Job] = []
        self.used: dict[str, tuple[float, float]] = {}  # by visitor or @address: seconds of the device, and when noted
        self.usual = dict(FIRST_GUESS)  # seconds of a job, by rank
        self.turns = count(1)

    # ---- coming and going

    def add_job(self, job: Job) -> None:
        """Raises `ValueError` when the visitor, his address or the house has too many jobs, or for a job that can never fit."""
        if job.rank != READYING:
            mine = sum(other.visitor == job.visitor for other in self.visitors_jobs)
            if mine >= MOST_OF_VISITOR:
                raise ValueError(
                    f"You have {mine} runs here already; at most {MOST_OF_VISITOR} at a time. Wait for one to end, or stop it."
                )
            if sum(other.address == job.address for other in self.visitors_jobs) >= MOST_OF_ADDRESS:
                raise ValueError(
                    f"From your address {MOST_OF_ADDRESS} runs are here, the most at a time. "
                    f"Try again in {format_seconds(self.estimate_wait(job))}."
                )
            if len(self.visitors_jobs) >= MOST_JOBS:
                raise ValueError(
                    f"The house is full: {MOST_JOBS} runs are here. Try again in {format_seconds(self.estimate_wait(job))}."
                )
            if job.bytes > self.budget:
                raise ValueError(
                    f"This run needs {job.bytes / 1e6:,.0f} MB for its caches; {self.budget / 1e6:,.0f} MB are there for all runs. "
                    "Ask for fewer lanes or new tokens."
                )
        self.waiting.append(job)

    def remove_job(self, job: Job) -> None:
        """The job has ended. What it has used is remembered for a while."""
        if job in self.running:
            self.running.remove(job)
            self.usual[job.rank] += (job.used - self.usual[job.rank]) / 4
        if job in self.waiting:
            self.waiting.remove(job)
        for who in (job.visitor, f"@{job.address}") if job.used else ():
            self.used[who] = (self.decayed_device_seconds(who) + job.used, self.now())
        self.used = {who: noted for who, noted in self.used.items() if self.decayed_device_seconds(who) > 0.01}

    @property
    def visitors_jobs(self) -> list[Job]:
        return [job for job in (*self.running, *self.waiting) if job.rank != READYING]

    def decayed_device_seconds(self, visitor_or_address: str) -> float:
        """Seconds of the device that the visitor, or the address behind an @, has used lately."""
        seconds, noted = self.used.get(visitor_or_address, (0.0, 0.0))
        return seconds * 0.5 ** ((self.now() - noted) / HALF_LIFE)

    # ---- whose turn it is

    def admit_waiting_jobs(self) -> None:
        for rank, most in AT_ONCE.items():
            for job in self.sort_waiting_jobs(rank):
                beside = [other for other in self.running if other.rank == rank]
                if len(beside) >= most or sum(other.bytes for other in self.running) + job.bytes > self.budget:
                    break
                if any(other.visitor == job.visitor for other in beside):
                    continue
                self.waiting.remove(job)
                job.turn = min((other.turn for other in beside), default=0.0)
                self.running.append(job)

    def sort_waiting_jobs(self, rank: int) -> list[Job]:
        """The waiting jobs of a rank. First is whose address has used the least lately, then who has, then who came first."""
        mine = (job for job in self.waiting if job.rank == rank)
        return sorted(
            mine,
            key=lambda job: (self.decayed_device_seconds(f"@{job.address}"), self.decayed_device_seconds(job.visitor)),
        )

    def start_jobs_and_choose_next(self) -> Job | None:
        """The job whose turn it is. Those whose visitors have left come first, to be closed. None when nobody can go on."""
        for job in self.running:
            if job.gone:
                return job
        self.admit_waiting_jobs()
        now = self.now()
        ready = [job for job in self.running if job.listening and job.resting <= now]
        able = [[job for job in ready if job.rank == rank] for rank in AT_ONCE]
        first, second, last = able if next(self.turns) % LEFT else (able[1], able[0], able[2])
        if first or second:
            return min(first or second, key=lambda job: job.turn)
        return last[0] if last and not self.visitors_jobs else None

    def seconds_until_next_job(self) -> float:
        """Seconds until the first of those that rest may go on; without end when nobody rests."""
        now = self.now()
        return min((job.resting - now for job in self.running if job.resting > now), default=math.inf)

    def charge_device_seconds(self, job: Job, seconds: float) -> None:
        job.used += seconds
        job.turn += seconds

    # ---- what a visitor is told

    def estimate_wait(self, job: Job) -> float:
        """Seconds until a job that waits is likely to begin."""
        line = self.sort_waiting_jobs(job.rank)
        ahead = line.index(job) if job in line else len(line)
        left = sum(max(0.0, self.usual[other.rank] - other.used) for other in self.running if other.rank <= job.rank)
        races = len(self.sort_waiting_jobs(RACE)) * self.usual[RACE] if job.rank == LONG else 0.0
        return left + races + max(0, ahead) * self.usual[job.rank]

    def describe_queue_place(self, job: Job) -> str:
        """Where a visitor stands, in words; "" when the device is all his."""
        races = sum(other.rank == RACE for other in self.running)
        if job in self.running:
            if job.rank == LONG:
                return "Races go first; this runs in what they leave." if races else ""
            return f"{races} races are running; yours gets every {ORDINALS[races]} step." if races > 1 else ""
        if any(other.visitor == job.visitor and other.rank == job.rank for other in self.running):
            return "Another run of yours goes first."
        ahead = self.sort_waiting_jobs(job.rank).index(job) if job in self.waiting else 0
        return f"The house is busy: you are number {ahead + 1} in line, and begin in {format_seconds(self.estimate_wait(job))}."


def format_seconds(seconds: float) -> str:
    return f"about {round(seconds / 60)} minutes" if seconds >= 90 else f"about {max(1, round(seconds))} s"
