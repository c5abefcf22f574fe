"""Race files are read in a process of their own: without PyTorch, one at a time, and never for long."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from engine.page.screens import race_files
from engine.record.files import MOST_BYTES
from helpers.paths import ROOT
from helpers.traces import made_race

FILE = made_race().to_json()


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(race_files, "READINGS", race_files.FairRaceFileReadingQueue())


@pytest.fixture
def reader(monkeypatch):
    """Reads with this Python code in the place of the reader."""

    def use(code: str) -> dict:
        monkeypatch.setattr(race_files, "READER", [sys.executable, "-c", code])
        return race_files.convert_race_file_in_subprocess("opened", FILE)

    return use


def test_the_process_that_reads_is_another_one_and_answers(reader):
    assert json.loads(race_files.convert_race_file_in_subprocess("opened", FILE)["event"])["end"] is True
    answer = reader("import json, os; print(json.dumps({'event': os.getppid()}))")
    assert answer == {"event": os.getpid()}


def test_it_loads_no_torch_and_no_gradio():
    code = "import sys, engine.page.views.reading; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True, timeout=60).split()
    assert not {"torch", "gradio", "numpy", "numba", "uvicorn"} & set(loaded)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import time; time.sleep(60)", "It took longer than 1 seconds"),
        ("raise MemoryError", "more time or memory"),
        ("import os; os._exit(9)", "more time or memory"),
        ("print('no answer')", "more time or memory"),
    ],
)
def test_a_reader_that_fails_is_a_sentence_and_the_next_file_is_read(reader, monkeypatch, capfd, code, words):
    monkeypatch.setattr(race_files, "DEADLINE", 1.0)
    begun = time.monotonic()
    assert words in reader(code)["refused"] and time.monotonic() - begun < 10
    assert "Traceback" not in capfd.readouterr().err
    monkeypatch.undo()
    race_files.READINGS.rested = 0.0
    assert "event" in race_files.convert_race_file_in_subprocess("opened", FILE)


def test_where_no_process_can_be_started_that_is_said(monkeypatch):
    monkeypatch.setattr(race_files, "READER", ["/nowhere/python"])
    assert "can start no process" in race_files.convert_race_file_in_subprocess("opened", FILE)["refused"]


def test_one_file_is_read_at_a_time(monkeypatch, tmp_path):
    """The first reader ends when it is let, and is said to have begun four seconds earlier than it did."""
    let = tmp_path / "let"
    code = f"import os, time\nwhile not os.path.exists({str(let)!r}):\n time.sleep(0.01)\nprint('{{}}')"
    monkeypatch.setattr(race_files, "WAITING", 0.1)
    monkeypatch.setattr(race_files, "READER", [sys.executable, "-c", code])
    first = threading.Thread(target=race_files.convert_race_file_in_subprocess, args=("opened", FILE))
    first.start()
    until = time.monotonic() + 60
    while not race_files.READINGS.reading and time.monotonic() < until:
        time.sleep(0.001)
    assert "Other files are" in race_files.convert_race_file_in_subprocess("opened", FILE)["refused"]
    race_files.READINGS.begun -= 4
    let.touch()
    first.join()
    assert race_files.READINGS.rested > time.monotonic() + 1
    assert race_files.convert_race_file_in_subprocess("opened", FILE)["refused"].endswith(race_files.BUSY)  # it rests
    race_files.READINGS.rested = 0.0
    assert race_files.convert_race_file_in_subprocess("opened", FILE) == {}


def test_who_has_read_the_least_lately_is_next_and_nobody_fills_the_line(monkeypatch):
    """One visitor sends file after file; another's first one goes before all of his that wait."""
    monkeypatch.setattr(race_files, "LONGEST_REST", 0.0)
    monkeypatch.setattr(race_files, "WAITING", 60.0)
    turns, order, threads = race_files.FairRaceFileReadingQueue(), [], []
    assert turns.wait_for_reading_turn_or_give_up("greedy")

    def reads(visitor: str) -> None:
        if turns.wait_for_reading_turn_or_give_up(visitor):
            order.append(visitor)
            turns.end_reading_and_start_cooldown(visitor)
        else:
            order.append("refused")

    turns.read["greedy"] = time.monotonic()
    for visitor in ["greedy"] * 5 + ["other"]:
        threads.append(threading.Thread(target=reads, args=(visitor,), daemon=True))
        threads[-1].start()
    until = time.monotonic() + 10
    while (len(turns.waiting) < 5 or not order) and time.monotonic() < until:
        time.sleep(0.001)
    assert order == ["refused"]
    turns.end_reading_and_start_cooldown("greedy")
    for thread in threads:
        thread.join(60)
    assert order == ["refused", "other", *["greedy"] * 4]


@pytest.mark.parametrize("text", ["x" * (MOST_BYTES + 1), "é" * (MOST_BYTES // 2 + 1), None, 7, ["x"]])
def test_what_is_too_large_or_no_text_is_refused(text):
    answer = race_files.convert_race_file_in_subprocess("opened", text)
    assert "at most 20 MB" in answer["refused"] or "must be a text" in answer["refused"]


def test_the_worst_files_are_read_in_bounded_time_and_memory():
    """Each would take minutes or gigabytes if anything in it were read twice."""
    half = MOST_BYTES // 2
    for text in (
        "[" * half,
        "[]," * (half // 3),
        "[" + "[]," * (half // 3) + "0]",
        "9" * half,
        '"' + "\\u0000" * (half // 6),
    ):
        race_files.READINGS.rested, begun = 0.0, time.monotonic()
        answer = race_files.convert_race_file_in_subprocess("opened", text)
        assert list(answer) == ["refused"] and len(answer["refused"]) < 300
        assert time.monotonic() - begun < race_files.DEADLINE


def test_an_answer_of_vllm_is_read_in_the_process_and_refused_like_a_race_file(reader):
    steps = {"per_step_accepted": [1, 0], "per_step_drafted": [2, 2]}
    served = {"model": "m", "choices": [], "metrics": {"speculative_decoding": steps}}
    assert race_files.convert_race_file_in_subprocess("opened", json.dumps(served))["served"]["tau"] == 1.5
    race_files.READINGS.rested = 0.0
    steps["per_step_drafted"] = [0, 0]
    assert "cannot accept 1 of 0" in race_files.convert_race_file_in_subprocess("opened", json.dumps(served))["refused"]
