"""The remote lane: another server's text beside a local lane. Its text, its clock, its failures, and that nobody waits for it."""

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache

import pytest

from engine.lab.record_races import run_repeated_race_to_record, write_race_file_and_summarise
from engine.models.pairs import MODELS, LoadedPair
from engine.page.screens.device import TimeSharedDeviceWorker
from engine.page.screens.requests import build_request_within_token_limit
from engine.page.screens.turns import Job, JobEnd
from engine.page.views import standalone, wire
from engine.page.views.wire import serialise_and_number_messages
from engine.race import Race, Settings
from engine.record.quiet import WorkSignal
from engine.record.race_file import Record
from engine.record.trace import FAILED, WAIT
from engine.remote import server as remote_server
from engine.remote.server import BY_CHAT, OpenAICompatibleServer
from helpers.page import HOSTILE
from helpers.pairs import tiny_pair
from helpers.remote.streaming import STREAM, Reply, chat, event, generating, serving, text

TEXT = "Story: Once upon a time"
PLAIN = "application/json"
shared = cache(tiny_pair)  # the pair of all lanes that change nothing of it


def beside(pair: LoadedPair, address: str, model: str = "") -> LoadedPair:
    return replace(pair, remote=OpenAICompatibleServer(address, model))


def raced(script, **settings) -> Race:
    """A race of plain decoding and a scripted server, run to its end."""
    with serving(script) as served:
        race = Race(beside(shared(), served.address), Settings(TEXT, ("vanilla", "remote"), **settings))
        for _ in race.run():
            pass
    return race


def replying(*parts: bytes, status: int = 200, kind: str = STREAM):
    return lambda path, body: Reply(parts, status, kind)


def same_greedy_text(pair: LoadedPair) -> None:
    race = Race(pair, Settings(TEXT, ("vanilla", "remote"), max_new_tokens=60))
    for _ in race.run():
        pass
    plain, remote = (lane.trace for lane in race.lanes)
    assert remote.text == plain.text and len(plain.text) > 100
    assert race.result()["identical"] == "text" and len(remote.tokens) == len(plain.tokens) == 60


def test_a_server_of_the_embedded_target_writes_the_same_greedy_text(embedded):
    with serving(generating(str(MODELS / "small" / "target"))) as served:
        same_greedy_text(beside(embedded, served.address))
        assert served.requests == [
            (
                "completions",
                {"prompt": TEXT, "max_tokens": 60, "temperature": 0.0, "seed": 0, "stream": True},
            )
        ]


@pytest.mark.slow
@pytest.mark.serve
def test_transformers_serve_of_the_embedded_target_writes_the_same_greedy_text(embedded):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = "from transformers.cli.transformers import main; main()"
    serve = ["serve", str(MODELS / "small" / "target"), "--port", str(port), "--host", "127.0.0.1", "--device", "cpu"]
    process = subprocess.Popen([sys.executable, "-c", code, *serve])
    try:
        for _ in range(600):
            assert process.poll() is None, "transformers serve ended before it served"
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                break
            time.sleep(0.2)
        same_greedy_text(beside(embedded, f"http://127.0.0.1:{port}/v1"))
    finally:
        process.terminate()
        process.wait(20)


# ---- its clock


def test_its_clock_is_when_pieces_arrive_and_the_local_clock_does_not_see_it():
    def parts():
        yield b": a sign of life\n\n"
        time.sleep(0.3)
        yield text(" a fox")
        time.sleep(0.3)
        yield text(" ran")
        yield text("", "stop")
        time.sleep(60)  # nobody waits for what comes behind the end

    race = raced(lambda path, body: Reply(parts()), max_new_tokens=20)
    plain, remote = race.lanes
    arrived = [sum(step.total_seconds for step in remote.trace.steps[: at + 1]) for at in range(3)]
    assert 0.3 <= arrived[0] < arrived[0] + 0.25 < arrived[1] <= arrived[2] < 30
    assert remote.clock == pytest.approx(remote.trace.seconds) and remote.trace.text == " a fox ran"
    assert plain.clock == pytest.approx(plain.trace.seconds)
    assert all(WAIT not in step.seconds for step in plain.trace.steps)
    assert [step.end for step in remote.trace.steps] == ["", "", "stop"]
    assert remote.trace.hardware == f"{remote.system.title}, its own clock, network included"


def test_who_has_other_work_is_told_that_nothing_has_arrived():
    gate = threading.Event()

    def parts():
        gate.wait(20)
        yield text(" late", "stop")

    with serving(lambda path, body: Reply(parts())) as served:
        race = Race(beside(shared(), served.address), Settings(TEXT, ("vanilla", "remote"), max_new_tokens=5))
        steps = race.poll_steps()
        local = [next(steps) for _ in range(5)]
        assert [lane for lane, _ in local] == [0] * 5
        begun = time.monotonic()
        assert [next(steps) for _ in range(100)] == [WorkSignal.IDLE] * 100 and time.monotonic() - begun < 2
        gate.set()
        arrived = [each for each in steps if each is not WorkSignal.IDLE]
    assert [(lane, step.pieces) for lane, step in arrived] == [(1, [" late"])]


def test_while_a_server_is_waited_for_the_device_works_for_others():
    gate, steps = threading.Event(), iter([WorkSignal.STEP] * 30)

    def parts():
        gate.wait(30)
        yield text(" late", "stop")

    with serving(lambda path, body: Reply(parts())) as served:
        pair, device = beside(shared(), served.address), TimeSharedDeviceWorker()
        values = {"prompt": TEXT, "systems": ["remote"], "max_new_tokens": 5}
        asked = build_request_within_token_limit(pair, "race", values)
        told, events = [], []
        waiting = Job(lambda: serialise_and_number_messages("one", asked.run(pair)), "one", send_event=told.append)
        device.queue_job_and_wake_worker(waiting)
        time.sleep(0.3)
        device.queue_job_and_wake_worker(Job(lambda: steps, "two", send_event=events.append))
        deadline = time.monotonic() + 10
        while not events and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [*steps] == [] and events == [JobEnd()] and JobEnd() not in told
        assert waiting.device_seconds_used < 0.2  # of more than 0.3 s: it rested
        gate.set()
        while JobEnd() not in told and time.monotonic() < deadline + 10:
            device.note_event_taken_or_refuse_lost_page(waiting)
            time.sleep(0.01)
    assert told[-2].is_last and told[-1] == JobEnd()


def test_a_race_that_is_stopped_closes_the_connection_at_once():
    def parts():
        while True:
            time.sleep(0.02)
            yield text(" on")

    with serving(lambda path, body: Reply(parts())) as served:
        race = Race(beside(shared(), served.address), Settings(TEXT, ("vanilla", "remote"), max_new_tokens=5))
        with closing(race.run()) as steps:
            while next(steps)[0] != 1:
                pass
        assert served.left.wait(2)


def test_a_server_that_says_nothing_is_left_at_once_too():
    reached, gate = threading.Event(), threading.Event()

    def script(path, body):
        reached.set()
        gate.wait(20)
        return Reply([text(" late"), *[b": more\n\n"] * 3000])

    with serving(script) as served:
        race = Race(beside(shared(), served.address), Settings(TEXT, ("remote",)))
        steps = race.poll_steps()
        assert next(steps) is WorkSignal.IDLE and reached.wait(5)
        steps.close()
        before = time.monotonic()
        for each in (threads := [each for each in threading.enumerate() if each.name == "remote"]):
            each.join(5)
        assert time.monotonic() - before < 2 and not any(each.is_alive() for each in threads)
        gate.set()


# ---- what it sends


def test_a_server_without_completions_is_asked_by_chat_and_the_lane_says_so():
    def script(path, body):
        if path == "completions":
            return Reply([b'{"detail": "Not Found"}'], 404, PLAIN)
        assert path == "chat/completions" and body["messages"] == [{"role": "user", "content": TEXT}]
        return Reply([event({"choices": [{"delta": {"role": "assistant"}}]}), chat(" Hello"), chat("", "length")])

    race = raced(script, max_new_tokens=4)
    steps = race.lanes[1].trace.steps
    assert [step.pieces for step in steps] == [[" Hello"], [""]] and [step.bonus_text for step in steps] == [
        BY_CHAT,
        "",
    ]
    assert steps[-1].end == "length" and race.result()["identical"] == "other text"


def test_a_chat_asks_the_chat_endpoint_at_once_with_its_earlier_turns():
    pair = tiny_pair()
    pair.tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}:{% endfor %}"
    with serving(lambda path, body: Reply([chat(" Hello", "stop")])) as served:
        settings = Settings(TEXT, ("vanilla", "remote"), max_new_tokens=4, turns=[["Hi", "Hello!"]])
        race = Race(beside(pair, served.address), settings)
        list(race.run())
        [(path, body)] = served.requests
    said = [(each["role"], each["content"]) for each in body["messages"]]
    assert path == "chat/completions" and said == [("user", "Hi"), ("assistant", "Hello!"), ("user", TEXT)]
    assert [step.bonus_text for step in race.lanes[1].trace.steps] == [""]


def test_a_model_is_asked_for_by_the_name_that_was_given():
    with serving(replying(text(" x", "stop"))) as served:
        pair = beside(shared(), served.address, "big/model")
        list(Race(pair, Settings(TEXT, ("remote",), temperature=0.8, seed=7, max_new_tokens=9)).run())
        [(_, body)] = served.requests
    assert (body["model"], body["temperature"], body["seed"], body["max_tokens"]) == ("big/model", 0.8, 7, 9)
    assert pair.remote.title == "remote: big/model"


FAILURES = {
    "an error with a message": (
        replying(b'{"error": {"message": "The model `x` does not exist."}}', status=400, kind=PLAIN),
        "answered 400: The model `x` does not exist.",
    ),
    "an error of FastAPI": (replying(b'{"detail": "Not Found"}', status=404, kind=PLAIN), "answered 404: Not Found"),
    "an error without words": (replying(b"", status=500), "answered 500: it says no more"),
    "an error as a page": (replying(b"<b>no</b>" * 5000, status=502, kind="text/html"), "answered 502: <b>no</b>"),
    "another redirect": (replying(b"", status=302), "answered 302"),
    "a page": (replying(b"<html>", kind="text/html"), "'text/html'|text/html where a stream"),
    "no JSON": (replying(text(" a"), b"data: {broken\n\n"), "cannot be read. A piece is no JSON"),
    "no number": (replying(b'data: {"choices": [{"text": NaN}]}\n\n'), "cannot be read. NaN is no number"),
    "a list": (replying(b"data: []\n\n"), "must be an object"),
    "deep nesting": (replying(b"data: " + b"[" * 100_000 + b"\n\n"), "nested too deeply"),
    "choices of another form": (replying(event({"choices": {"text": "x"}})), "must be a list of objects"),
    "a text of another form": (replying(event({"choices": [{"text": 7}]})), "must be texts"),
    "no UTF-8": (replying(b"data: \xff\xfe\n\n"), "cannot be read"),
    "an error in the stream": (replying(text(" a"), event({"error": {"message": "out of memory"}})), "failed: out of"),
    "an early end": (replying(text(" a"), text(" b")), "broke off before its end"),
    "a huge line": (replying(b"data: " + b"x" * 3_000_000), "A line has more than 1 MB"),
    "a huge piece": (replying(text("x" * 20_001)), "more than 20,000 characters"),
    "too much text": (replying(*[text("x" * 999)] * 30), "more than 20,000 characters"),
    "too many pieces": (replying(*[text("x")] * 2000), "more than 1,000 pieces"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_whatever_a_server_does_wrong_is_a_sentence_in_its_lane_and_the_other_goes_on(name, tmp_path):
    script, words = FAILURES[name]
    race = raced(script, max_new_tokens=6)
    plain, remote = (lane.trace for lane in race.lanes)
    last = remote.steps[-1]
    assert last.end == FAILED and last.bonus_text and any(each in last.bonus_text for each in words.split("|"))
    assert len(last.bonus_text) < 350 and "\n" not in last.bonus_text
    assert len(plain.tokens) == 6 and plain.is_finished
    result = race.result()
    assert result["identical"] == "failed" and result["finished"]
    assert Record.from_json(race.to_record().to_json()) == race.to_record()


def test_a_refused_connection_is_a_sentence_and_the_left_lane_may_be_the_remote_one():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        pair = beside(shared(), f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        race = Race(pair, Settings(TEXT, ("remote", "vanilla"), max_new_tokens=6))
        list(race.run())
    remote, plain = (lane.trace for lane in race.lanes)
    assert "cannot be reached" in remote.steps[0].bonus_text and len(plain.tokens) == 6
    assert race.result()["speedup"] == 0.0 and race.result()["identical"] == "failed"
    json.loads(wire.serialise_whole_race_as_event(race.to_record()))


@pytest.mark.parametrize(
    ("limit", "seconds", "words"), [("LONGEST", 0.5, "did not end"), ("SILENCE", 0.3, "said nothing")]
)
def test_a_server_that_never_ends_is_left(monkeypatch, limit, seconds, words):
    monkeypatch.setattr(remote_server, limit, seconds)

    def parts():
        yield text(" a")
        while True:
            time.sleep(0.05 if limit == "LONGEST" else 3)
            yield b": still here\n\n"

    race = raced(lambda path, body: Reply(parts()), max_new_tokens=4)
    assert words in race.lanes[1].trace.steps[-1].bonus_text and race.lanes[1].trace.text == " a"


def test_a_reader_that_fails_ends_its_lane_too(monkeypatch):
    def broken(chunk):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(remote_server, "parse_chunk_text_and_finish_reason", broken)
    race = raced(replying(text(" a")), max_new_tokens=4)
    assert "failed (RuntimeError)" in race.lanes[1].trace.steps[-1].bonus_text


def test_text_of_the_server_is_kept_as_it_is_and_half_a_character_is_replaced():
    race = raced(replying(*map(text, HOSTILE), text(" \ud83e"), text("", "stop")), max_new_tokens=4)
    assert race.lanes[1].trace.text == "".join(HOSTILE) + " \ufffd"
    page = standalone.render_replay_page(race.to_record())
    assert not any(each in page for each in HOSTILE if "<" in each)


# ---- the record and the limits


def test_a_record_can_be_made_of_it_and_read_again(tmp_path):
    with serving(replying(text(" a fox"), text("", "stop"))) as served:
        settings = Settings(TEXT, ("vanilla", "remote"), max_new_tokens=4)
        made = run_repeated_race_to_record(beside(shared(), served.address), settings)
    words = write_race_file_and_summarise(tmp_path / "race.json", made)
    assert words.startswith("race.json: remote: 127.0.0.1:") and "no tau" in words and "other text" in words
    again = Record.from_json((tmp_path / "race.json").read_text("utf-8"))
    assert again.lanes[1].trace.text == " a fox" and "network included" in again.lanes[1].trace.hardware


def test_without_a_server_and_outside_of_a_race_there_is_no_such_lane():
    with pytest.raises(ValueError, match="start this one with --remote"):
        Race(shared(), Settings(TEXT, ("vanilla", "remote")))
    pair = beside(shared(), "http://127.0.0.1:1/v1")
    for kind, values in (
        ("prix", {"prompt": TEXT, "systems": ["remote"]}),
        ("prompts", {"prompts": [TEXT], "system": "remote"}),
        ("sweep", {"prompts": TEXT, "system": "remote"}),
        ("distance", {"prompt": TEXT, "broken": "remote"}),
    ):
        with pytest.raises(ValueError, match=r"race of two lanes|Unknown system 'remote'"):
            build_request_within_token_limit(pair, kind, values).run(pair)
