"""Threads that share the work of one call, phase by phase. Knows counters in memory; knows no array of a model.

A phase has tasks. Every thread takes them from its own part first and then from the others', so a thread that the machine holds up
delays nobody: the others do its tasks. Whoever takes a task, the result is the same. A thread that fails ends the call for all.
"""

import math
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core.cgutils import get_or_insert_function

from engine.kernels.by_address import make_error_returning_call_by_address
from engine.kernels.compiling import exactly_compiled, exactly_compiled_without_python_entry
from engine.kernels.intrinsics import LONG, intrinsic_decorator_for, pointer_from_address
from engine.kernels.named_arrays import FIELDS

MOST = 8  # threads; small models gain nothing from more
LINE = 8  # numbers in a cache line, so that no two threads write the same one
SPINS = 64  # looks at a counter before the machine may run another thread
AWAKE = 0.002  # seconds for which a thread looks for the next call before it sleeps
# Places in a team's state: the open call's number, its table's address and rows, who is inside, the loop that does a part of it and
# its counters, what a thread raised, who holds the team, and how many threads it has
CALL, TABLE, ROWS, INSIDE, WORK, CLAIMS, COUNTERS, RAISED, HOLDERS, THREADS = range(0, 10 * LINE, LINE)
STATE = 10 * LINE
GIVEN_UP = 1 << 40  # more tasks than any phase has
WORK_ON = types.void(
    types.int64[:, ::1], types.int64
)  # what does a thread's part of a call, whose arrays stand in a table
try_work = make_error_returning_call_by_address(WORK_ON)


@intrinsic_decorator_for(types.int64(types.int64, types.int64))
def atomic_add(builder, address, number):
    """Add to the int64 at the address, in one step for all threads, and return what stood there."""
    return builder.atomic_rmw("add", builder.inttoptr(address, LONG.as_pointer()), number, "seq_cst")


@intrinsic_decorator_for(types.int64(types.int64))
def atomic_load(builder, address):
    """The int64 at the address, as another thread last wrote it."""
    return builder.load_atomic(builder.inttoptr(address, LONG.as_pointer()), "seq_cst", 8)


@intrinsic_decorator_for(types.void(types.int64, types.int64))
def atomic_store(builder, address, number):
    """Write the int64 at the address, for other threads to see."""
    builder.store_atomic(number, builder.inttoptr(address, LONG.as_pointer()), "seq_cst", 8)


@intrinsic_decorator_for(types.void())
def pause_processor(builder):
    """Tell the processor that this thread waits for another, where it can be told."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        builder.call(
            builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), ir.FunctionType(ir.VoidType(), ())), ()
        )


@intrinsic_decorator_for(types.void())
def yield_processor(builder):
    """Let the machine run another thread, where the system has a call for that."""
    if os.name == "posix":
        builder.call(get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(32), ()), "sched_yield"), ())


@exactly_compiled_without_python_entry
def wait_before_next_poll(poll_number):
    """Wait a moment before the next look at a counter; `poll_number` counts them."""
    if poll_number % SPINS == SPINS - 1:
        yield_processor()
    else:
        pause_processor()


@exactly_compiled_without_python_entry
def make_task_cursor(counters, thread_index, thread_count):
    """A thread's place in a call `[5]`, for `claim_task_or_finish_phase`.

    It holds the address of the phase's counters, its part, how many parts there are, how many parts on it is, and its tasks done.
    """
    turn = np.zeros(5, np.int64)
    turn[0], turn[1], turn[2] = counters.ctypes.data, thread_index, thread_count
    return turn


@exactly_compiled_without_python_entry
def claim_task_or_finish_phase(cursor, task_count):
    """A task of this phase that no thread has taken, or -1 when all `task_count` are finished; `cursor` then stands in the next phase.

    A phase has a cache line of counters for each part and one for finished tasks.
    """
    parts = cursor[2]
    while cursor[3] < parts:
        owner = (cursor[1] + cursor[3]) % parts
        task, last = task_count * owner // parts, task_count * (owner + 1) // parts
        if task < last:
            task += atomic_add(cursor[0] + 8 * LINE * owner, 1)
            if task < last:
                cursor[4] += 1
                return task
        cursor[3] += 1
    done, looks = cursor[0] + 8 * LINE * parts, 0
    if cursor[4]:
        atomic_add(done, cursor[4])
    while atomic_load(done) < task_count:
        wait_before_next_poll(looks)
        looks += 1
    cursor[0] += 8 * LINE * (parts + 1)
    cursor[3] = cursor[4] = 0
    return np.int64(-1)


@exactly_compiled_without_python_entry
def run_part_or_abandon_call(work_address, table, thread_index, counters):
    """This thread's part of a call. Returns what it raised, or 0; no thread then waits for the tasks that it left undone."""
    raised = try_work(work_address, table, thread_index)
    if raised != 0:
        for place in range(len(counters)):
            atomic_add(counters.ctypes.data + 8 * place, GIVEN_UP)
    return raised


@exactly_compiled_without_python_entry
def join_next_call(state, last_call, max_polls):
    """The address of the table of a call that is open and is not the `last_call`, after at most so many looks; 0 when none came.

    The thread is then inside the call, which ends only behind its `leave_call`. The others can finish all tasks at any moment.
    """
    base = state.ctypes.data
    for look in range(max_polls):
        if atomic_load(base + 8 * CALL) != last_call and atomic_load(base + 8 * TABLE) != 0:
            atomic_add(base + 8 * INSIDE, 1)
            table = atomic_load(base + 8 * TABLE)
            if table != 0:
                return table
            leave_call(state)
        wait_before_next_poll(look)
    return np.int64(0)


@exactly_compiled_without_python_entry
def leave_call(state):
    atomic_add(state.ctypes.data + 8 * INSIDE, -1)


@exactly_compiled_without_python_entry
def announce_call(state, work_address, table, counters):
    """Begin a call whose arrays stand in `table`, and whose phases count in `counters`. The other threads join when they see it."""
    base = state.ctypes.data
    atomic_store(base + 8 * WORK, work_address)
    atomic_store(base + 8 * CLAIMS, counters.ctypes.data)
    atomic_store(base + 8 * COUNTERS, len(counters))
    atomic_store(base + 8 * ROWS, len(table))
    atomic_store(base + 8 * TABLE, table.ctypes.data)
    atomic_add(base + 8 * CALL, 1)


@exactly_compiled_without_python_entry
def close_call_wait_and_return_error(state):
    """End the call and wait until every thread has left it. Returns what the last of them raised that failed, or 0."""
    base = state.ctypes.data
    atomic_store(base + 8 * TABLE, 0)
    looks = 0
    while atomic_load(base + 8 * INSIDE) > 0:
        wait_before_next_poll(looks)
        looks += 1
    raised = atomic_load(base + 8 * RAISED)
    atomic_store(base + 8 * RAISED, 0)
    return raised


@exactly_compiled
def try_hold_team(state):
    """Whether the caller holds the team now: nobody else does."""
    if atomic_add(state.ctypes.data + 8 * HOLDERS, 1) == 0:
        return True
    atomic_add(state.ctypes.data + 8 * HOLDERS, -1)
    return False


@exactly_compiled
def release_team(state):
    atomic_add(state.ctypes.data + 8 * HOLDERS, -1)


@exactly_compiled
def join_calls_until_idle(state, thread_index, last_call, max_polls):
    """Join calls as thread `thread_index`, see `ThreadTeam`. Returns the number of the last call."""
    base = state.ctypes.data
    while True:
        address = join_next_call(state, last_call, max_polls)
        if address == 0:
            return last_call
        last_call, rows = atomic_load(base + 8 * CALL), atomic_load(base + 8 * ROWS)
        table = carray(pointer_from_address(address), (rows, FIELDS), np.int64)
        counters = carray(pointer_from_address(state[CLAIMS]), (state[COUNTERS],), np.int64)
        raised = run_part_or_abandon_call(state[WORK], table, thread_index, counters)
        if raised != 0:
            atomic_store(base + 8 * RAISED, raised)
        leave_call(state)


def allocate_team_state(thread_count: int) -> np.ndarray:
    """The counters that a team's threads share, int64 `[STATE]`."""
    state = np.zeros(STATE, np.int64)
    state[THREADS] = thread_count
    return state


@cache
def thread_team_of_size(threads: int) -> "ThreadTeam":
    """So many threads for forwards and drafts; a process keeps them."""
    return ThreadTeam(threads, join_calls_until_idle)


class ThreadTeam:
    """This process's threads. One call at a time has them, of those that `try_hold_team`; another at the same time runs alone.

    `help_loop(state, thread_index, last_call, max_polls)` joins calls as that thread until it has looked in vain so often.
    """

    without = 0.0  # seconds of all teams' calls in which helpers had no processor; only differences mean anything

    def __init__(self, thread_count: int, help_loop: Callable):
        self.threads, self.helping, self.state = thread_count, help_loop, allocate_team_state(thread_count)
        self.asleep, self.bells = [False] * thread_count, [threading.Semaphore(0) for _ in range(thread_count)]
        self.looks = 10_000
        help_loop(self.state, 1, 0, 1)  # compiles, or loads compiled code
        start = time.perf_counter()
        help_loop(self.state, 1, 0, self.looks)
        self.looks = max(1000, int(self.looks * AWAKE / (time.perf_counter() - start)))
        self.clocks: list[int] = []
        for part in range(1, thread_count):
            helper = threading.Thread(target=self.join_calls_forever, args=(part,), name=f"forward {part}", daemon=True)
            helper.start()
            if hasattr(time, "pthread_getcpuclockid"):
                self.clocks.append(time.pthread_getcpuclockid(helper.ident))
        if hasattr(os, "register_at_fork"):  # a forked process has none of these threads
            os.register_at_fork(after_in_child=self.clocks.clear)

    def join_calls_forever(self, thread_index: int) -> None:
        last = 0
        while True:
            last = self.helping(self.state, thread_index, last, self.looks)
            self.asleep[thread_index] = True
            if not self.state[TABLE] or self.state[CALL] == last:  # else a call began while Python let this thread wait
                self.bells[thread_index].acquire()
            self.asleep[thread_index] = False

    @contextmanager
    def wake_helpers_and_measure_lost_time(self) -> Iterator[None]:
        """A call of all threads. The time in which a helper had no processor, on average, is added to `without`."""
        begun, had = time.perf_counter(), self.helpers_processor_seconds()
        for part, asleep in enumerate(self.asleep):
            if asleep:
                self.bells[part].release()
        try:
            yield
        finally:
            taken = time.perf_counter() - begun
            if self.clocks:
                ThreadTeam.without += max(0.0, taken - (self.helpers_processor_seconds() - had) / len(self.clocks))

    def helpers_processor_seconds(self) -> float:
        """Seconds that the helpers have had a processor, where the system tells."""
        return sum(map(time.clock_gettime, self.clocks))


def count_usable_cores_capped() -> int:
    """How many cores this process may use: those it may run on, within the quota of its container and `OMP_NUM_THREADS`."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        count = min(count, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # there is no quota
    wish = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(count, MOST, int(wish) if wish.isdecimal() else MOST))
