"""Turns: shares by visitor and not by call, races before long work, limits with a sentence. On a clock of the tests' own."""

import itertools
import math

import pytest

from engine.page.screens.turns import (
    AT_ONCE,
    HALF_LIFE,
    LEFT,
    LONG,
    MOST_JOBS,
    MOST_OF_ADDRESS,
    MOST_OF_VISITOR,
    RACE,
    READYING,
    FairJobScheduler,
    Job,
)


class Clock:
    now = 0.0


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def line(clock):
    return FairJobScheduler(read_clock=lambda: clock.now)


def job(visitor: str, rank: int = RACE, size: int = 0, address: str = "") -> Job:
    """Everybody asks from an address of his own unless one is given."""
    return Job(lambda: iter(()), visitor, rank, size, client_address=address or visitor)


def enter(line: FairJobScheduler, *jobs: Job) -> list[Job]:
    for each in jobs:
        line.queue_job_or_refuse_over_limits(each)
    return list(jobs)


def turns(line: FairJobScheduler, count: int, seconds: float = 0.01) -> list[Job]:
    """Whose turns come next, each of so many seconds."""
    taken = []
    for _ in range(count):
        taken.append(line.start_jobs_and_choose_next())
        line.charge_device_seconds_to_job(taken[-1], seconds)
    return taken


def test_races_of_different_visitors_share_in_equal_parts(line):
    races = enter(line, job("a"), job("b"), job("c"))
    taken = turns(line, 90)
    assert [taken.count(each) for each in races] == [30, 30, 30]
    assert all(taken[at] is not taken[at + 1] for at in range(89))


def test_a_slow_step_is_paid_back(line):
    first, second = enter(line, job("a"), job("b"))
    line.charge_device_seconds_to_job(line.start_jobs_and_choose_next(), 0.2)
    assert turns(line, 19) == [second] * 19
    assert turns(line, 21).count(first) == 10  # and all turns count, not the last one alone
    assert first.device_seconds_used == pytest.approx(second.device_seconds_used)


def test_many_calls_of_one_visitor_get_one_share(line):
    mine = enter(line, *(job("flood") for _ in range(MOST_OF_VISITOR)))
    [other] = enter(line, job("b"))
    taken = turns(line, 40)
    assert taken.count(other) == 20 and taken.count(mine[0]) == 20
    with pytest.raises(ValueError, match=f"You have {MOST_OF_VISITOR} runs here already"):
        line.queue_job_or_refuse_over_limits(job("flood"))
    line.remove_job_and_record_usage(mine[1])
    line.queue_job_or_refuse_over_limits(job("flood"))


def test_who_has_used_little_is_let_in_before_who_has_used_much(line, clock):
    running = enter(line, *(job(f"runs {number}") for number in range(AT_ONCE[RACE])))
    line.start_jobs_and_choose_next()
    greedy = job("greedy")
    line.device_seconds_by_user["greedy"] = (30.0, clock.now)
    modest = job("modest")
    enter(line, greedy, modest)
    line.remove_job_and_record_usage(running[0])
    line.start_jobs_and_choose_next()
    assert modest in line.running and greedy in line.waiting


def test_what_was_used_is_forgotten(line, clock):
    [mine] = enter(line, job("a"))
    line.charge_device_seconds_to_job(line.start_jobs_and_choose_next(), 8.0)
    line.remove_job_and_record_usage(mine)
    assert line.decayed_device_seconds("a") == 8.0
    clock.now += 3 * HALF_LIFE
    assert line.decayed_device_seconds("a") == 1.0
    clock.now += 20 * HALF_LIFE
    [other] = enter(line, job("b"))
    line.remove_job_and_record_usage(other)
    assert line.device_seconds_by_user == {}


def test_long_work_runs_in_what_races_leave(line):
    race, sweep = enter(line, job("a"), job("b", LONG))
    taken = turns(line, 10 * LEFT)
    assert taken.count(sweep) == 10
    race.is_last_event_taken = False
    assert line.start_jobs_and_choose_next() is sweep
    line.remove_job_and_record_usage(race)
    assert turns(line, 5) == [sweep] * 5


def test_making_ready_waits_until_nobody_asks(line):
    readying, race = enter(line, job("", READYING), job("a"))
    assert line.start_jobs_and_choose_next() is race
    race.is_last_event_taken = False
    assert (
        line.start_jobs_and_choose_next() is None
    )  # its news are on their way, and its next step must not be disturbed
    line.remove_job_and_record_usage(race)
    assert line.start_jobs_and_choose_next() is readying
    enter(line, job("b", LONG))
    assert line.start_jobs_and_choose_next().priority == LONG


def test_memory_is_reserved_before_a_race_begins():
    line = FairJobScheduler(cache_bytes_budget=100)
    first, second = enter(line, job("a", size=60), job("b", size=60))
    assert line.start_jobs_and_choose_next() is first and second in line.waiting
    line.remove_job_and_record_usage(first)
    assert line.start_jobs_and_choose_next() is second
    with pytest.raises(ValueError, match="needs 0 MB for its caches"):
        line.queue_job_or_refuse_over_limits(job("c", size=101))


def test_who_has_left_is_closed_first(line):
    first, second = enter(line, job("a"), job("b"))
    turns(line, 2)
    second.has_visitor_left = True
    assert line.start_jobs_and_choose_next() is second
    line.remove_job_and_record_usage(second)
    assert turns(line, 3) == [first] * 3


def test_a_full_house_names_the_wait(line):
    enter(line, *(job(f"v{number}") for number in range(MOST_JOBS)))
    with pytest.raises(ValueError, match=r"96 runs .* \d+ (s|minutes)\."):
        line.queue_job_or_refuse_over_limits(job("late"))
    line.queue_job_or_refuse_over_limits(job("", READYING))  # the house's own work is let in


def test_many_names_at_one_address_fill_no_house_and_others_come_before_them(line):
    """A name costs nothing, so one who has many would keep everybody else out, or behind all of his runs."""
    enter(line, *(job(f"name{number}", address="crowd") for number in range(MOST_OF_ADDRESS)))
    with pytest.raises(ValueError, match=r"your address 64 runs .* \d+ (s|minutes)"):
        line.queue_job_or_refuse_over_limits(job("one more", address="crowd"))
    turns(line, 8)
    [other] = enter(line, job("other"))
    line.remove_job_and_record_usage(line.running[0])
    line.start_jobs_and_choose_next()
    assert other in line.running and line.list_waiting_jobs_least_recent_use_first(RACE)[0].client_address == "crowd"


def test_visitors_of_one_address_take_turns_by_what_each_has_used(line):
    enter(line, *(job(f"v{number}", address="hall") for number in range(5)))
    turns(line, 8)
    first = line.running[0]
    line.remove_job_and_record_usage(first)
    [again] = enter(line, job(first.visitor, address="hall"))
    line.start_jobs_and_choose_next()
    assert again not in line.running and line.running[-1].visitor == "v4"


def test_visitors_are_told_where_they_stand(line):
    alone, sweep = enter(line, job("a"), job("s", LONG))
    line.start_jobs_and_choose_next()
    assert (
        line.describe_queue_place(alone) == ""
        and line.describe_queue_place(sweep) == "Races go first; this runs in what they leave."
    )
    others = enter(line, *(job(name) for name in "bcdef"))
    line.start_jobs_and_choose_next()
    assert line.describe_queue_place(alone) == "4 races are running; yours gets every fourth step."
    assert line.describe_queue_place(others[-1]).startswith(
        "The house is busy: you are number 2 in line, and begin in about "
    )
    [again] = enter(line, job("a"))
    assert line.describe_queue_place(again) == "Another run of yours goes first."


def test_the_expected_wait_follows_what_runs_take(line):
    for seconds in itertools.repeat(10.0, 30):
        [each] = enter(line, job("a"))
        line.charge_device_seconds_to_job(line.start_jobs_and_choose_next(), seconds)
        line.remove_job_and_record_usage(each)
    assert line.typical_seconds_by_priority[RACE] == pytest.approx(10.0, rel=0.01)
    enter(line, job("b"), job("c"))
    assert line.estimate_wait_seconds(job("d")) == pytest.approx(20.0, rel=0.01)


def test_who_has_nothing_to_do_rests_and_others_go_on(line, clock):
    first, second = enter(line, job("one"), job("two"))
    turns(line, 2)
    first.idle_until = clock.now + 0.5
    assert turns(line, 3) == [second] * 3 and line.seconds_until_first_idle_job_resumes() == pytest.approx(0.5)
    second.idle_until = clock.now + 0.2
    assert line.start_jobs_and_choose_next() is None and line.seconds_until_first_idle_job_resumes() == pytest.approx(
        0.2
    )
    clock.now += 0.6
    assert line.start_jobs_and_choose_next() is first and line.seconds_until_first_idle_job_resumes() == math.inf


def test_making_ready_rests_too(line, clock):
    [readying] = enter(line, job("", READYING))
    assert line.start_jobs_and_choose_next() is readying
    readying.idle_until = clock.now + 0.5
    assert line.start_jobs_and_choose_next() is None and line.seconds_until_first_idle_job_resumes() == pytest.approx(
        0.5
    )
    clock.now += 0.6
    assert line.start_jobs_and_choose_next() is readying


def test_a_newcomer_begins_with_the_turns_of_those_who_run(line):
    """From zero it would have all turns until it has caught up, and the races that run would stand still."""
    old = enter(line, job("a"), job("b"))
    turns(line, 1000)
    [late] = enter(line, job("late"))
    taken = turns(line, 30)
    assert [taken.count(each) for each in (*old, late)] == [10, 10, 10]


def test_memory_of_long_work_counts_beside_that_of_races():
    line = FairJobScheduler(cache_bytes_budget=100)
    sweep, race = enter(line, job("a", LONG, size=60), job("b", size=60))
    line.start_jobs_and_choose_next()
    assert sweep in line.waiting and race in line.running
    line.remove_job_and_record_usage(race)
    assert line.start_jobs_and_choose_next() is sweep
    [later] = enter(line, job("c", size=60))
    line.start_jobs_and_choose_next()
    assert later in line.waiting


def test_long_work_waits_for_all_races_too(line):
    line.typical_seconds_by_priority[RACE], line.typical_seconds_by_priority[LONG] = 3.0, 50.0
    enter(line, *(job(f"r{number}") for number in range(5)))
    line.start_jobs_and_choose_next()
    assert line.estimate_wait_seconds(job("s", LONG)) == pytest.approx(4 * 3.0 + 3.0)  # four run and one waits
    enter(line, job("s", LONG))
    line.start_jobs_and_choose_next()
    assert line.estimate_wait_seconds(job("late")) == pytest.approx(4 * 3.0 + 3.0)  # no race waits for long work


def test_one_long_run_is_not_what_is_usual(line):
    [each] = enter(line, job("a"))
    before = line.typical_seconds_by_priority[RACE]
    line.charge_device_seconds_to_job(line.start_jobs_and_choose_next(), before + 100.0)
    line.remove_job_and_record_usage(each)
    assert line.typical_seconds_by_priority[RACE] == pytest.approx(before + 25.0)


def test_what_a_visitor_used_is_his_addresss_too(line):
    [mine] = enter(line, job("a", address="hall"))
    line.charge_device_seconds_to_job(line.start_jobs_and_choose_next(), 8.0)
    line.remove_job_and_record_usage(mine)
    assert (
        line.decayed_device_seconds("a"),
        line.decayed_device_seconds("@hall"),
        line.decayed_device_seconds("@a"),
    ) == (
        8.0,
        8.0,
        0.0,
    )


def test_a_sweep_of_his_own_keeps_nobody_waiting_for_a_race(line):
    enter(line, job("a", LONG), *(job(name) for name in "bcde"))
    line.start_jobs_and_choose_next()
    [race] = enter(line, job("a"))
    assert line.describe_queue_place(race).startswith("The house is busy: you are number 1 in line")
