"""A team's threads sleep while nothing runs, miss no call that begins as they fall asleep, and join none that has ended.

One that fails ends the call for all of them.
"""

import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numba import carray

from engine.forward.llama_compiled import CompiledLlama
from engine.kernels.by_address import compile_and_get_address
from engine.kernels.compiling import exactly_compiled
from engine.kernels.intrinsics import pointer_from_address
from engine.kernels.named_arrays import FIELDS, unpack_named_arrays
from engine.kernels.phases import ROOM, ForwardWorkspace
from engine.kernels.sharing import (
    CALL,
    LINE,
    MOST,
    TABLE,
    WORK_ON,
    ThreadTeam,
    allocate_team_state,
    announce_call,
    atomic_load,
    claim_task_or_finish_phase,
    close_call_wait_and_return_error,
    count_usable_cores_capped,
    join_calls_until_idle,
    make_task_cursor,
    release_team,
    try_hold_team,
)
from engine.models.loading import hardware_name
from engine.target import Target
from helpers.families import over, random_model


class Script:
    """Stands for the compiled loop that joins calls: does what the test says, and counts."""

    def __init__(self):
        self.counts, self.plays = [], []
        self.lock = threading.Condition()

    def __call__(self, state, part, last, looks):
        if threading.current_thread() is threading.main_thread():
            return last  # how the team finds out how long a look takes
        with self.lock:
            if self.plays:
                last = self.plays.pop(0)(state, last)
            self.counts.append(looks)
            self.lock.notify_all()
        return last

    def called(self, times: int) -> bool:
        with self.lock:
            return self.lock.wait_for(lambda: len(self.counts) >= times, timeout=20)


def begun(state, last):
    """A call begins just after the thread has stopped looking for one."""
    state[CALL], state[TABLE] = 5, 1
    return last


def ended(state, last):
    state[TABLE] = 0
    return 5


def test_a_thread_that_is_about_to_sleep_joins_a_call_that_has_begun():
    script = Script()
    script.plays = [begun, ended]
    team = ThreadTeam(2, script)
    assert script.called(2)  # nobody woke it
    deadline = time.monotonic() + 20
    while not team.asleep[1] and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)
    assert team.asleep[1] and len(script.counts) == 2
    with team.wake_helpers_and_measure_lost_time():
        assert script.called(3)


def test_a_call_tells_for_how_long_its_helpers_had_no_processor(monkeypatch):
    """Of the three seconds of a call one helper had a processor for all, and the other for one."""
    team = ThreadTeam(3, Script())
    team.clocks = [1, 2]
    wall, own = iter([10.0, 13.0]), iter([5.0, 6.0, 8.0, 7.0])
    clocks = SimpleNamespace(perf_counter=lambda: next(wall), clock_gettime=lambda clock: next(own))
    monkeypatch.setattr("engine.kernels.sharing.time", clocks)
    before = ThreadTeam.without
    with team.wake_helpers_and_measure_lost_time():
        pass
    assert ThreadTeam.without - before == pytest.approx(1.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no process")
def test_a_forked_process_asks_no_clock_of_a_thread_that_it_lacks():
    team = ThreadTeam(2, Script())
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            with team.wake_helpers_and_measure_lost_time():
                failed = 0
        finally:
            os._exit(failed or int(team.helpers_processor_seconds() != 0))
    assert os.waitpid(child, 0)[1] == 0 and team.clocks


@exactly_compiled
def counted(table, part):
    """A thread's part of a call: count it, and count it apart where its table is at no address. `part` is the counts' address."""
    counts = carray(pointer_from_address(part), 2, np.int64)
    counts[0] += 1
    if table.ctypes.data == 0:
        counts[1] += 1


@exactly_compiled
def short_calls(state, work_address, table, count):
    for _ in range(count):
        announce_call(state, work_address, table, np.zeros(0, np.int64))
        close_call_wait_and_return_error(state)


def test_a_thread_that_comes_late_never_works_on_a_table_that_is_gone():
    """Calls end at once here, most of them while a thread joins. A table at no address would end the process by a signal."""
    state, table = allocate_team_state(5), np.zeros((3, FIELDS), np.int64)
    work_address = compile_and_get_address(counted, WORK_ON)
    counts, over = np.zeros((4, LINE), np.int64), threading.Event()

    def help(row):
        last = 0
        while not over.is_set():
            last = join_calls_until_idle(state, row.ctypes.data, last, 1000)

    threads = [threading.Thread(target=help, args=(row,)) for row in counts]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while counts[:, 0].sum() < 3_000 and time.monotonic() < deadline:
        short_calls(state, work_address, table, 3_000)
    over.set()
    for thread in threads:
        thread.join()
    assert counts[:, 0].sum() >= 3_000 and counts[:, 1].sum() == 0


def failing(fails: int):
    """A forward of two tasks: each of two threads takes one, and thread `fails` then leaves it undone."""

    @exactly_compiled
    def work(table, part):
        claims = unpack_named_arrays(ForwardWorkspace, table, len(table) - ROOM).claims
        turn = make_task_cursor(claims, part, 2)
        task = claim_task_or_finish_phase(turn, 2)
        while atomic_load(claims.ctypes.data + 8 * LINE * (1 - part)) == 0:
            pass
        if part == fails:
            raise MemoryError("no room")
        while task >= 0:
            task = claim_task_or_finish_phase(turn, 2)

    return work


@pytest.mark.parametrize("fails", [0, 1])
def test_a_thread_that_fails_ends_the_call_for_all_and_the_next_one_goes_well(fails):
    """The error comes out of the call, whichever thread raised it."""
    model = random_model("llama, biases, tied")
    runner = over(CompiledLlama(model, 2), model)
    expected = Target(runner, 9, features=True).prefill_and_return_features([1, 2, 3])
    work, raised = failing(fails), []

    def call():
        with pytest.raises(MemoryError, match="no room") as error:
            Target(runner, 9, features=True).prefill_and_return_features([1, 2, 3])
        raised.append(error)

    right, runner.own.work_address = runner.own.work_address, compile_and_get_address(work, WORK_ON)
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(30)
    runner.own.work_address = right
    assert len(raised) == 1
    assert torch.equal(Target(runner, 9, features=True).prefill_and_return_features([1, 2, 3]), expected)


def test_one_caller_holds_a_team_at_a_time():
    state = allocate_team_state(2)
    assert try_hold_team(state) and not try_hold_team(state) and not try_hold_team(state)
    release_team(state)
    assert try_hold_team(state)


def test_a_process_uses_the_cores_that_it_may_use(monkeypatch):
    assert 1 <= count_usable_cores_capped() <= MOST
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert count_usable_cores_capped() == 1
    assert hardware_name(torch.device("cpu")) == "1 CPU core"  # the name of what computes, not of what is there
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert 1 <= count_usable_cores_capped() <= MOST
