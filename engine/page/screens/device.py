"""The device: one worker steps everybody's work in turn. Knows threads and events; knows no model and no page.

A lane's clock counts its own steps only, so races may share the device in slices. After a piece of news the worker waits a moment until
it is taken, because sending it would disturb the next step's clock.
"""

import asyncio
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TypeVar

from engine.page.screens.heap import return_free_heap_to_system
from engine.page.screens.turns import MOST_SECONDS, READYING, FairJobScheduler, Job, JobEnd
from engine.page.views.wire import RunEvent
from engine.record.compact_json import to_compact_json_with_rounded_floats
from engine.record.quiet import WorkSignal

SLICE = 0.015  # seconds of a turn, which ends earlier with news
MOMENT = 0.02  # seconds that the worker waits for news to be taken
EVERY = 0.5  # seconds between two words on where a visitor stands
SILENCE, ASLEEP = 10.0, 150.0  # seconds until a page that was heard of counts as lost, shown or hidden
PAUSE = 0.01  # seconds that a job rests when it has nothing to do
GRACE = 1.0  # seconds of the device in which a run whose time is over may send the steps that it holds back
REST = 2.0  # seconds without work after which freed memory is given back
MOST_UNWANTED = 1000  # names that are remembered
Found = TypeVar("Found")


class TimeSharedDeviceWorker:
    """The worker and the line before it. Its thread begins with the first job; if it has died, the next job begins another."""

    def __init__(self):
        self.changed = threading.Condition()
        self.scheduler = FairJobScheduler()
        self.jobs: dict[str, Job] = {}
        self.unwanted: dict[str, None] = {}  # names of calls that were dropped before they came
        self.preparation_description = ""  # what is being made ready, in words
        self.current: Job | None = None  # whose turn it is
        self.thread: threading.Thread | None = None

    # ---- for those who call

    async def queue_job_and_stream_json_events(
        self, job: Job, is_watched_by_page: bool = False
    ) -> AsyncGenerator[str, None]:
        """The job's news as they come, and before the last ones now and then where its visitor stands. Closing it frees everything.

        A `is_watched_by_page` stream begins with the job's name. The page uses it to say that it is there (`extend_page_deadline`),
        or that it no longer wants the run (`cancel_run_even_before_it_arrives`).
        Raises what the work raises, and `ValueError` when it is not let in, takes too long or has lost its page.
        """
        if job.run_name in self.unwanted:
            return
        loop, mail = asyncio.get_running_loop(), asyncio.Queue[RunEvent | JobEnd]()

        def tell(event: RunEvent | JobEnd) -> None:
            with suppress(RuntimeError):  # the server is ending
                loop.call_soon_threadsafe(mail.put_nowait, event)

        job.send_event = tell
        self.queue_job_and_wake_worker(job)
        try:
            if is_watched_by_page:
                job.page_deadline = time.monotonic() + ASLEEP  # a page gives its first sign sooner than that
                yield to_compact_json_with_rounded_floats({"run": job.run_name, "place": ""})
            said, silent, last, due = "", True, False, time.monotonic() + EVERY
            while True:
                self.note_event_taken_or_refuse_lost_page(job)
                event = None
                with suppress(asyncio.TimeoutError):
                    event = await asyncio.wait_for(mail.get(), EVERY)
                if isinstance(event, JobEnd):
                    if event.failure is not None:
                        raise event.failure
                    return
                if isinstance(event, RunEvent):
                    silent, last = False, event.is_last
                    yield event.json_text
                if time.monotonic() >= due and not last:
                    place, due = self.describe_queue_place(job), time.monotonic() + EVERY
                    if place != said or silent:  # the server notices that a visitor has left when it says something
                        yield to_compact_json_with_rounded_floats({"run": job.run_name, "place": place})
                    said, silent = place, True
        finally:
            self.abandon_job_for_departed_visitor(job)

    def run_preparation_when_idle_and_wait(self, preparation_steps: Iterator[WorkSignal]) -> None:
        """Takes steps that make something ready, while nobody asks for anything else. Returns after the last one."""
        end = Future[RunEvent | JobEnd]()
        self.queue_job_and_wake_worker(Job(lambda: preparation_steps, priority=READYING, send_event=end.set_result))
        while not wait([end], EVERY).done:
            self.start_worker_thread_if_dead()
        event = end.result()
        if isinstance(event, JobEnd) and event.failure is not None:
            raise event.failure

    def extend_page_deadline(self, run_name: str, is_page_hidden: bool = False) -> bool:
        """Notes that the page of this job is still open. False when there is no such job."""
        with self.changed:
            if job := self.jobs.get(run_name):
                job.page_deadline = time.monotonic() + (ASLEEP if is_page_hidden else SILENCE)
        return job is not None

    def cancel_run_even_before_it_arrives(self, run_name: str) -> None:
        """Cancels the run of this name; its stream then ends without a message."""
        with self.changed:
            if job := self.jobs.get(run_name):
                self.abandon_job_for_departed_visitor(job)
            else:
                self.unwanted[run_name] = None
                if len(self.unwanted) > MOST_UNWANTED:
                    del self.unwanted[next(iter(self.unwanted))]

    @property
    def preparation_progress_text(self) -> str:
        """What is being made ready, and whether somebody waits for that."""
        if not self.scheduler.jobs_except_preparation:
            return self.preparation_description
        return (
            f"{self.preparation_description}; the race comes next"
            if self.is_preparing
            else "The rest is made ready behind the races"
        )

    def has_at_most_one_visitor_job(self) -> bool:
        """Whether nobody waits or runs beside the run that asks."""
        with self.changed:
            return len(self.scheduler.jobs_except_preparation) <= 1

    @property
    def is_preparing(self) -> bool:
        return self.current is not None and self.current.priority == READYING

    def describe_queue_place(self, job: Job) -> str:
        self.start_worker_thread_if_dead()
        with self.changed:
            if self.is_preparing and job.running_steps is None:
                return f"{self.preparation_description}; your run comes next."
            return self.scheduler.describe_queue_place(job)

    # ---- coming and going

    def queue_job_and_wake_worker(self, job: Job) -> None:
        with self.changed:
            self.scheduler.queue_job_or_refuse_over_limits(job)
            self.jobs[job.run_name] = job
            self.changed.notify_all()
        self.start_worker_thread_if_dead()

    def note_event_taken_or_refuse_lost_page(self, job: Job) -> None:
        """Records that the visitor's stream has received its last event. Raises `ValueError` when his page is gone."""
        with self.changed:
            if time.monotonic() > job.page_deadline:
                raise ValueError("The page was not heard of for a while, so its run has ended. Press Start again.")
            job.is_last_event_taken = True
            self.changed.notify_all()

    def abandon_job_for_departed_visitor(self, job: Job) -> None:
        """The job's visitor has all he wants. What has begun is closed by the worker, before anybody's next step."""
        with self.changed:
            job.has_visitor_left = True
            self.jobs.pop(job.run_name, None)
            if job in self.scheduler.waiting:
                self.scheduler.remove_job_and_record_usage(job)
                job.send_event(JobEnd())
            self.changed.notify_all()

    # ---- the worker

    def start_worker_thread_if_dead(self) -> None:
        """Begins a worker when there is none, or when the last one has died. It goes on with everybody's work."""
        with self.changed:
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self.run_worker_loop, name="device", daemon=True)
                self.thread.start()

    def run_worker_loop(self) -> None:
        rest_at = math.inf  # when freed memory is given back
        while True:
            with self.changed:
                job = self.current = self.scheduler.start_jobs_and_choose_next()
                if job is None:
                    left = min(
                        self.scheduler.seconds_until_first_idle_job_resumes(),
                        rest_at - time.monotonic(),
                        threading.TIMEOUT_MAX,
                    )
                    self.changed.wait(max(0.0, left))
            if job is not None:
                self.run_job_for_slice_and_send_event(job)
                rest_at = time.monotonic() + REST
            elif time.monotonic() >= rest_at:
                return_free_heap_to_system()
                rest_at = math.inf

    def run_job_for_slice_and_send_event(self, job: Job) -> None:
        begun = time.perf_counter()
        event = run_returning_error_as_job_end(lambda: self.step_job_until_event(job, begun + SLICE))
        if isinstance(event, JobEnd):  # closing frees what the steps hold
            steps, job.running_steps = job.running_steps, None
            failed = run_returning_error_as_job_end(getattr(steps, "close", lambda: None))
            event = failed if isinstance(failed, JobEnd) else event
        with self.changed:
            self.current = None
            self.scheduler.charge_device_seconds_to_job(job, time.perf_counter() - begun)
            job.was_last_step_an_event = isinstance(event, RunEvent)
            if isinstance(event, JobEnd):
                self.scheduler.remove_job_and_record_usage(job)
                job.send_event(event)
            elif isinstance(event, RunEvent):
                job.is_last_event_taken = False
                job.send_event(event)
                self.changed.wait_for(lambda: job.is_last_event_taken or job.has_visitor_left, MOMENT)
            elif event is WorkSignal.IDLE:  # others go on meanwhile
                job.idle_until = self.scheduler.now() + PAUSE

    def step_job_until_event(self, job: Job, deadline: float) -> RunEvent | WorkSignal | JobEnd:
        """Steps until there is news, until the turn is over or until no step is left."""
        if job.has_visitor_left:
            return JobEnd()
        most = MOST_SECONDS[job.priority]
        if job.device_seconds_used > (most if job.was_last_step_an_event else most + GRACE):
            raise ValueError(
                f"This run has used {most:.0f} s of the device, the most that one may. Ask for less at a time."
            )
        if job.running_steps is None:
            job.running_steps = job.start_steps()
        for event in job.running_steps:
            over = job.has_visitor_left or job.priority == READYING or time.perf_counter() >= deadline
            if over or event is not WorkSignal.STEP:
                return event
        return JobEnd()


def run_returning_error_as_job_end(function: Callable[[], Found]) -> Found | JobEnd:
    """What the work returns. An error that it raises comes back as the end of its job."""
    try:
        return function()
    except BaseException as error:  # `SystemExit` in a stream would end the whole server
        return JobEnd(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))


DEVICE = TimeSharedDeviceWorker()  # of this process
