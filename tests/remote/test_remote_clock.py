"""A remote lane's clock and its count of tokens, on made-up seconds: what is published of another server."""

from types import SimpleNamespace

import pytest

from engine.record.trace import Trace
from engine.remote import server as remote_server
from engine.remote.lane import RemoteLane
from engine.remote.server import OpenAICompatibleServer
from helpers.remote.streaming import Reply, chat, serving, text


def written(served, chats: bool = False) -> RemoteLane:
    """A lane that has read the server's whole answer. A word counts as a token."""
    trace = Trace("remote", "a pair", "a server", "", "Once", [1, 2], 0.0, 0, 1, 1, 1, 20, chat=chats)
    lane = RemoteLane(OpenAICompatibleServer(served.address, ""), trace, lambda text: [7] * len(text.split()))
    lane.start_request_in_reader_thread()
    while not lane.finished:
        lane.take_next_arrived_piece_as_step()
    lane.close()
    return lane


def test_every_token_is_counted_once():
    parts = [text(" a little"), text(" fox"), text(" ran and"), text(" ran", "stop")]
    with serving(lambda path, body: Reply(parts)) as served:
        lane = written(served)
    assert [len(step.burst) for step in lane.trace.steps] == [2, 1, 2, 1]
    assert len(lane.trace.tokens) == len(lane.trace.text.split()) == 6
    assert [step.position for step in lane.trace.steps] == [3, 4, 6, 7]


@pytest.mark.parametrize("chats", [False, True])
def test_the_clock_begins_anew_when_a_server_has_no_completions(monkeypatch, chats):
    """The refusal takes 100 s and the answer 5 s on the made-up clock. The lane's time is that of the answer."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(remote_server, "time", SimpleNamespace(perf_counter=lambda: now.seconds))

    def script(path, body):
        refuses = path == "completions"
        now.seconds += 100.0 if refuses else 5.0
        return Reply([b"{}"], 404, "application/json") if refuses else Reply([chat(" Hello", "stop")])

    with serving(script) as served:
        assert written(served, chats).clock == 5.0
