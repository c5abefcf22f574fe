"""Servers as peers, on stand-ins: what they are asked, whose seconds count, what is refused, and which settings run."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.__main__ import main
from engine.measure import peers, racing, report, words
from engine.measure.other_engines import PeerGenerateFunctions, identify_server_peers
from engine.measure.ways import (
    WrittenText,
    describe_divergence,
    list_first_differences_from_plain,
    run_and_time_generate_function,
    tau_reported_by_server,
)
from engine.race import Settings
from helpers.pairs import tiny_pair
from helpers.remote.engines import Engine, running
from helpers.remote.streaming import Reply, event, serving

STORIES = ["Story: Once upon a time", "Story: A cat saw a dog", "Story: Tom and Lily went to the park"]


def test_a_llama_server_gets_token_ids_and_its_own_seconds_count():
    with running(Engine("llama-server", says=" a fox")) as server:
        [peer] = identify_server_peers([server.address.removesuffix("/v1")])
        written = run_and_time_generate_function(tiny_pair(), peer, [1, 2, 3], 16, 0.8)
        [(path, body)] = server.requests
    assert written == WrittenText([], pytest.approx(0.02 + 16 * 0.006), " a fox", 16, 4)
    assert written.seconds_per_token == written.seconds / 16
    assert path == "completions" and body["prompt"] == [1, 2, 3] and body["cache_prompt"] is False
    assert (body["max_tokens"], body["temperature"], body["top_k"], body["min_p"]) == (16, 0.8, 0, 0.0)
    assert [peer.description] == [
        f"{peer.name} gets token ids; its seconds are its own clock. Its guesses are those that it was started with."
    ]


def test_vllm_gets_token_ids_and_is_timed_from_here():
    with running(Engine("vLLM", drafts=False)) as server:
        [peer] = identify_server_peers([server.address])
        written = peer(tiny_pair(), [1, 2, 3], 10, 0.0)
    assert written == WrittenText([], written.seconds, " word of [1, 2, 3]", 10) and 0.06 <= written.seconds < 5
    assert peer.name.startswith("vLLM at 127.0.0.1:") and "from the request to the last piece" in peer.description


def test_a_vllm_that_could_draft_and_drafted_nothing_passes_once_a_token():
    """It tells `num_spec_steps` 0. The table was made of it by a division by zero, behind all races."""
    with running(Engine("vLLM", accepted=0, per_request="summary", seconds=(0, 0))) as server:
        [peer] = identify_server_peers([server.address])
        written = replace(peer(tiny_pair(), [1, 2, 3], 10, 0.0), server_forward_count=0)
        drafting = peer(tiny_pair(), [1, 2, 3], 10, 0.0)
    assert tau_reported_by_server([written, written]) is None and tau_reported_by_server([drafting]) == 1.0


def test_another_server_gets_the_text_and_no_more_tokens_than_the_context_has_room_for():
    pair = tiny_pair()
    ids = pair.tokenizer("Story: a")["input_ids"]
    with running(Engine("", drafts=False, seconds=(0, 0))) as server:
        identify_server_peers([server.address])[0](pair, ids, 10**6, 0.0)
        [(_, body)] = server.requests
    assert body["prompt"] == pair.tokenizer.decode(ids) and body["max_tokens"] == pair.context - len(ids)
    assert "top_k" not in body


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        (Engine("", mute=True), "does not say how many tokens it wrote"),
        (Engine("vLLM", models=("a", "b")), "serves 2 models"),
    ],
)
def test_a_server_that_tells_too_little_is_refused(engine, sentence):
    with running(engine) as server, pytest.raises(ValueError, match=sentence):
        identify_server_peers([server.address])[0](tiny_pair(), [1, 2, 3], 4, 0.0)


@pytest.mark.parametrize("owner", ["vllm", "somebody"])
def test_a_server_without_completions_is_refused(owner):
    def chat(path, body):
        end = {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}
        return Reply([event(end), b"data: [DONE]\n\n"]) if path == "chat/completions" else Reply([b"{}"], 404)

    about = json.dumps({"data": [{"id": "m", "owned_by": owner}]}).encode()
    pages = {"/v1/models": Reply([about], 200, "application/json")}
    with serving(chat, lambda path: pages.get(path, Reply([b""], 404))) as server:
        [peer] = identify_server_peers([server.address])
        with pytest.raises(ValueError, match="no completions endpoint"):
            peer(tiny_pair(), [1, 2, 3], 4, 0.0)


def test_a_server_twice_is_refused():
    with running(Engine("vLLM")) as server, pytest.raises(ValueError, match="twice"):
        identify_server_peers([server.address, server.address.removesuffix("/v1")])


@pytest.mark.parametrize("command", ["pays --prompts FILE", "bench"])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--peer-server", "http://127.0.0.1:9/v1"), "needs --peers"),
        (("--peers", "--peer-server", "127.0.0.1"), "A server's address must be one such as"),
        (("--peers", "--peer-server", "http://127.0.0.1:9/v1"), "127.0.0.1:9 cannot be reached"),
        (("--peers", "--regex", "a+"), "--peers write freely"),
    ],
)
def test_senseless_options_are_refused_before_a_model_is_loaded(capsys, tmp_path, command, options, sentence):
    file = tmp_path / "my.txt"
    file.write_text("\n\n".join(STORIES), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main([str(file) if part == "FILE" else part for part in command.split()] + [*options])
    assert ended.value.code == 2 and sentence in capsys.readouterr().err


def test_of_settings_the_fastest_runs_over_all_prompts_and_each_way_takes_its_turn():
    calls = []

    def way(name, seconds):
        def write(pair, prompt, tokens, temperature):
            calls.append((name, tokens))
            return WrittenText(peers.generate_with_transformers(pair, prompt, tokens, temperature), seconds)

        return write

    others = PeerGenerateFunctions(
        {"slow": way("slow", 0.9), "quick": way("quick", 0.1), "sent": lambda *_: WrittenText([], 0.8, "\0", 8, 2)},
        {"it": {3: "slow", 5: "quick"}},
    )
    pair, wish, told = replace(tiny_pair(), draft=None), Settings("a prompt", max_new_tokens=40), []
    outcome = racing.run_to_result(
        racing.choose_settings_and_race_in_steps(pair, STORIES, ["lookup:2x1x3"], wish, others),
        lambda: told.append(None),
    )
    assert len(told) == racing.count_progress_pieces(1, len(STORIES), 1)
    assert list(outcome.peer_texts_by_name) == [peers.PLAIN, peers.MTP, "quick", "sent"]
    assert [name for name, tokens in calls if tokens == 40] == ["quick"] * 3
    assert [tokens for name, tokens in calls if name == "slow"] == [8, *[racing.PROBE_TOKENS] * 3]
    figures = report.build_pays_report(pair, STORIES, [0, 1, 2], {}, wish, outcome)
    rows = {row["name"]: row for row in figures["peers"]}
    assert rows["quick"]["identical"] is True and rows["sent"]["identical"] is False
    assert rows["sent"]["tau"] == pytest.approx(4.0) and rows["sent"]["tokens_per_s"] == pytest.approx(10.0)
    assert rows["sent"]["best_vs"] == pytest.approx(
        words.best_system_row_of(figures)["speedup"] / rows["sent"]["speedup"]
    )
    assert "sent writes another text for 3 of 3 prompts, from character 1 on" in words.format_pays_report(figures)


def test_where_texts_part_is_counted_from_one_and_an_early_end_counts():
    def base(*texts):
        return [SimpleNamespace(tokens=[*map(ord, text)], text=text) for text in texts]

    def ids(*texts):
        return [WrittenText([*map(ord, text)], 1.0) for text in texts]

    def texts(*given):
        return [WrittenText([], 1.0, text, 9) for text in given]

    assert (
        describe_divergence("it", base("ab", "cd"), ids("ab", "cd")) == ""
        and list_first_differences_from_plain(base("ab"), texts("ab")) == []
    )
    assert describe_divergence("it", base("abc", "d"), ids("ab", "e")).startswith(
        "it writes another text for 2 of 2 prompts, from token 1"
    )
    assert "from token 3 on" in describe_divergence("it", base("abc"), ids("ab"))
    assert "from character 3 on" in describe_divergence("it", base("abc"), texts("abx"))
    assert tau_reported_by_server(texts("ab")) is None and tau_reported_by_server(ids("ab")) is None
    assert (
        tau_reported_by_server([WrittenText([], 1.0, "ab", 9, 0)]) is None
        and tau_reported_by_server([WrittenText([], 1.0, "ab", 9, 3)]) == 3
    )
