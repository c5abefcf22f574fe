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

RACE, LONG, READYING = range(3)  # priorities of jobs, the first goes first
ORDINALS = {2: "second", 3: "third", 4: "fourth"}  # of the steps of so many races
AT_ONCE = {RACE: 4, LONG: 2, READYING: 1}  # jobs of each priority that share the device; further ones wait in line
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
    """What a call asks for: `start_steps` makes steps, which yield news; `send_event` hands these on; `cache_bytes` are reserved
    before it begins.
    """

    start_steps: Callable[[], Iterator[RunEvent | WorkSignal]]
    visitor: str = ""
    priority: int = RACE
    cache_bytes: int = 0
    run_name: str = field(default_factory=lambda: uuid.uuid4().hex)
    client_address: str = ""  # where its visitor asks from
    send_event: Callable[[RunEvent | JobEnd], None] = lambda event: None
    running_steps: Iterator[RunEvent | WorkSignal] | None = None  # once it has begun
    device_seconds_used: float = 0.0
    # Its seconds, of which the fewest go next; a newcomer begins with the least of those that run
    fair_share_seconds: float = 0.0
    is_last_event_taken: bool = True  # by its visitor
    idle_until: float = 0.0  # until when it has nothing to do, on the line's clock
    has_visitor_left: bool = False
    page_deadline: float = math.inf  # when its visitor's page counts as lost
    was_last_step_an_event: bool = False  # whether its last step was news, behind which a race holds no step back


class FairJobScheduler:
    """Jobs that run and jobs that wait. Its owner calls it under a lock."""

    def __init__(self, cache_bytes_budget: float = math.inf, read_clock: Callable[[], float] = time.monotonic):
        """`cache_bytes_budget` is in bytes, for the caches of all that run together."""
        self.cache_bytes_budget, self.now = cache_bytes_budget, read_clock
        self.running: list[Job] = []
        self.waiting: list[Job] = []
        # By visitor or @address: seconds of the device, and when noted
        self.device_seconds_by_user: dict[str, tuple[float, float]] = {}
        self.typical_seconds_by_priority = dict(FIRST_GUESS)  # of a job
        self.turns = count(1)

    # ---- coming and going

    def queue_job_or_refuse_over_limits(self, job: Job) -> None:
        """Raises `ValueError` when the visitor, his address or the house has too many jobs, or for a job that can never fit."""
        if job.priority != READYING:
            mine = sum(other.visitor == job.visitor for other in self.jobs_except_preparation)
            if mine >= MOST_OF_VISITOR:
                raise ValueError(
                    f"You have {mine} runs here already; at most {MOST_OF_VISITOR} at a time. Wait for one to end, or stop it."
                )
            if (
                sum(other.client_address == job.client_address for other in self.jobs_except_preparation)
                >= MOST_OF_ADDRESS
            ):
                raise ValueError(
                    f"From your address {MOST_OF_ADDRESS} runs are here, the most at a time. "
                    f"Try again in {format_approximate_duration(self.estimate_wait_seconds(job))}."
                )
            if len(self.jobs_except_preparation) >= MOST_JOBS:
                raise ValueError(
                    f"The house is full: {MOST_JOBS} runs are here. "
                    f"Try again in {format_approximate_duration(self.estimate_wait_seconds(job))}."
                )
            if job.cache_bytes > self.cache_bytes_budget:
                raise ValueError(
                    f"This run needs {job.cache_bytes / 1e6:,.0f} MB for its caches; "
                    f"{self.cache_bytes_budget / 1e6:,.0f} MB are there for all runs. Ask for fewer lanes or new tokens."
                )
        self.waiting.append(job)

    def remove_job_and_record_usage(self, job: Job) -> None:
        """The job has ended. What it has used is remembered for a while."""
        if job in self.running:
            self.running.remove(job)
            self.typical_seconds_by_priority[job.priority] += (
                job.device_seconds_used - self.typical_seconds_by_priority[job.priority]
            ) / 4
        if job in self.waiting:
            self.waiting.remove(job)
        for who in (job.visitor, f"@{job.client_address}") if job.device_seconds_used else ():
            self.device_seconds_by_user[who] = (self.decayed_device_seconds(who) + job.device_seconds_used, self.now())
        self.device_seconds_by_user = {
            who: noted for who, noted in self.device_seconds_by_user.items() if self.decayed_device_seconds(who) > 0.01
        }

    @property
    def jobs_except_preparation(self) -> list[Job]:
        return [job for job in (*self.running, *self.waiting) if job.priority != READYING]

    def decayed_device_seconds(self, visitor_or_address: str) -> float:
        """Seconds of the device that the visitor, or the address behind an @, has used lately."""
        seconds, noted = self.device_seconds_by_user.get(visitor_or_address, (0.0, 0.0))
        return seconds * 0.5 ** ((self.now() - noted) / HALF_LIFE)

    # ---- whose turn it is

    def admit_waiting_jobs(self) -> None:
        for rank, most in AT_ONCE.items():
            for job in self.list_waiting_jobs_least_recent_use_first(rank):
                beside = [other for other in self.running if other.priority == rank]
                if (
                    len(beside) >= most
                    or sum(other.cache_bytes for other in self.running) + job.cache_bytes > self.cache_bytes_budget
                ):
                    break
                if any(other.visitor == job.visitor for other in beside):
                    continue
                self.waiting.remove(job)
                job.fair_share_seconds = min((other.fair_share_seconds for other in beside), default=0.0)
                self.running.append(job)

    def list_waiting_jobs_least_recent_use_first(self, priority: int) -> list[Job]:
        """The waiting jobs of a priority. First is whose address has used the least lately, then who has, then who came first."""
        mine = (job for job in self.waiting if job.priority == priority)
        return sorted(
            mine,
            key=lambda job: (
                self.decayed_device_seconds(f"@{job.client_address}"),
                self.decayed_device_seconds(job.visitor),
            ),
        )

    def start_jobs_and_choose_next(self) -> Job | None:
        """The job whose turn it is. Those whose visitors have left come first, to be closed. None when nobody can go on."""
        for job in self.running:
            if job.has_visitor_left:
                return job
        self.admit_waiting_jobs()
        now = self.now()
        ready = [job for job in self.running if job.is_last_event_taken and job.idle_until <= now]
        able = [[job for job in ready if job.priority == rank] for rank in AT_ONCE]
        first, second, last = able if next(self.turns) % LEFT else (able[1], able[0], able[2])
        if first or second:
            return min(first or second, key=lambda job: job.fair_share_seconds)
        return last[0] if last and not self.jobs_except_preparation else None

    def seconds_until_first_idle_job_resumes(self) -> float:
        """Seconds until the first of those that rest may go on; without end when nobody rests."""
        now = self.now()
        return min((job.idle_until - now for job in self.running if job.idle_until > now), default=math.inf)

    def charge_device_seconds_to_job(self, job: Job, seconds: float) -> None:
        job.device_seconds_used += seconds
        job.fair_share_seconds += seconds

    # ---- what a visitor is told

    def estimate_wait_seconds(self, job: Job) -> float:
        """Seconds until a job that waits is likely to begin."""
        line = self.list_waiting_jobs_least_recent_use_first(job.priority)
        ahead = line.index(job) if job in line else len(line)
        left = sum(
            max(0.0, self.typical_seconds_by_priority[other.priority] - other.device_seconds_used)
            for other in self.running
            if other.priority <= job.priority
        )
        races = (
            len(self.list_waiting_jobs_least_recent_use_first(RACE)) * self.typical_seconds_by_priority[RACE]
            if job.priority == LONG
            else 0.0
        )
        return left + races + max(0, ahead) * self.typical_seconds_by_priority[job.priority]

    def describe_queue_place(self, job: Job) -> str:
        """Where a visitor stands, in words; "" when the device is all his."""
        races = sum(other.priority == RACE for other in self.running)
        if job in self.running:
            if job.priority == LONG:
                return "Races go first; this runs in what they leave." if races else ""
            return f"{races} races are running; yours gets every {ORDINALS[races]} step." if races > 1 else ""
        if any(other.visitor == job.visitor and other.priority == job.priority for other in self.running):
            return "Another run of yours goes first."
        ahead = self.list_waiting_jobs_least_recent_use_first(job.priority).index(job) if job in self.waiting else 0
        wait = format_approximate_duration(self.estimate_wait_seconds(job))
        return f"The house is busy: you are number {ahead + 1} in line, and begin in {wait}."


def format_approximate_duration(seconds: float) -> str:
    return f"about {round(seconds / 60)} minutes" if seconds >= 90 else f"about {max(1, round(seconds))} s"
