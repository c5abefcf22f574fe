"""A team's threads sleep while nothing runs, and miss no call that begins as they fall asleep."""

import threading
import time

from engine.kernels.sharing import CALL, MOST, TABLE, Team, cores


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
    team = Team(2, script, 0)
    assert script.called(2)  # nobody woke it
    deadline = time.monotonic() + 20
    while not team.asleep[1] and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)
    assert team.asleep[1] and len(script.counts) == 2
    team.wake()
    assert script.called(3)


def test_a_process_uses_the_cores_that_it_may_use(monkeypatch):
    assert 1 <= cores() <= MOST
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cores() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert 1 <= cores() <= MOST
