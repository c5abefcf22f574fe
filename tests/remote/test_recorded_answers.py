"""Answers that a real vLLM 0.32 gave, as `python -m tests.engines FOLDER --record` writes them: read as what they say."""

import json
import re

import pytest

from engine.page.views.reading import convert_race_file_for_page
from engine.record.served_trace import ServedTrace
from engine.remote import telling
from engine.remote.scoring import mean_log_probability_of_ending, request_mean_log_probability_of_text
from engine.remote.server import OpenAICompatibleServer
from helpers.paths import ROOT
from helpers.remote.streaming import Reply, serving

RECORDED = ROOT / "tests/helpers/remote/recorded"
DETAILED = sorted(path.name for path in RECORDED.glob("vllm-*-detailed.json"))


def text(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def values(name: str) -> dict:
    return json.loads(text(name))


def came(found: dict) -> int:
    """The guesses that were accepted and came: the last burst of each of these answers was cut at its length."""
    told = found["metrics"]["speculative_decoding"]
    return min(told["num_accepted_draft_tokens"], found["usage"]["completion_tokens"] - told["num_spec_steps"])


@pytest.mark.parametrize("name", DETAILED)
def test_passes_without_a_draft_count_too(name):
    """vLLM's own mean leaves them out: copies from the text often find none."""
    found = values(name)
    told = found["metrics"]["speculative_decoding"]
    tokens, accepted = found["usage"]["completion_tokens"], told["num_accepted_draft_tokens"]
    guesses, trace = telling.plausible_and_clamped_guesses_of(found), ServedTrace.from_vllm_answer(found)
    assert guesses.passes == trace.passes == max(tokens - accepted, told["num_spec_steps"])
    assert (guesses.drafted, guesses.accepted) == (told["num_draft_tokens"], came(found))
    assert trace.tau <= told["mean_acceptance_length"]
    assert convert_race_file_for_page("opened", text(name))["served"]["passes"] == trace.passes
    if "ngram" in name:
        assert trace.passes > told["num_spec_steps"] + 1 and trace.tau < told["mean_acceptance_length"] - 0.1


def test_a_summary_tells_guesses_and_no_steps():
    [name] = [path.name for path in RECORDED.glob("vllm-*-summary.json")]
    assert telling.plausible_and_clamped_guesses_of(values(name)).accepted == came(values(name))
    with pytest.raises(
        ValueError, match=r"has no per_step_drafted\. Start vLLM with --per-request-spec-decode-metrics detailed"
    ):
        ServedTrace.from_vllm_answer(values(name))


def test_a_text_without_any_draft_is_said_to_have_none():
    """Its steps are null, though the server was started with what tells them."""
    found = values("vllm-ngram-silent.json")
    assert found["metrics"]["speculative_decoding"]["num_spec_steps"] == 0
    assert telling.plausible_and_clamped_guesses_of(found) == telling.GuessTotals(
        found["usage"]["completion_tokens"], 0, 0
    )
    assert (
        "no pass of this text had a draft"
        in convert_race_file_for_page("opened", text("vllm-ngram-silent.json"))["refused"]
    )


def test_of_two_texts_nothing_is_told_and_the_refusal_says_what_to_ask_for():
    with pytest.raises(ValueError, match=r"speculative_decoding is not there\. .*ask for one text \(n = 1\)"):
        ServedTrace.from_vllm_answer(values("vllm-two-texts.json"))
    assert telling.plausible_and_clamped_guesses_of(values("vllm-two-texts.json")) is None


def test_a_saved_stream_opens_as_the_whole_answer():
    stream, whole = text("vllm-stream.txt"), values("vllm-eagle3-detailed.json")
    served = convert_race_file_for_page("opened", stream)["served"]
    assert served["text"] == whole["choices"][0]["text"]
    *before, last = whole["metrics"]["speculative_decoding"]["per_step_accepted"]
    assert served["accepted"] == [*before, last - 1]  # the last burst was cut by a token
    assert convert_race_file_for_page("opened", stream.replace("\n", "\r\n"))["served"] == served
    twice = stream.replace('"index":0', '"index":1', 1)
    assert "holds several texts" in convert_race_file_for_page("opened", twice)["refused"]
    assert "The event in line 1 is no JSON" in convert_race_file_for_page("opened", "data: {\n\n" + stream)["refused"]
    assert "holds no event" in convert_race_file_for_page("opened", "data: [DONE]\n")["refused"]


def test_the_counters_tell_settings_and_passes_of_the_whole_server():
    told = text("vllm-metrics.txt")
    with serving(lambda *_: Reply([b"{}"], 404), lambda _: Reply([told.encode()], 200, "text/plain")) as server:
        counted = telling.fetch_vllm_guess_totals(OpenAICompatibleServer(server.address))
        with telling.open_client(OpenAICompatibleServer(server.address)) as client:
            _, flags = telling.read_version_and_flags(client, server.address.removesuffix("/v1"), "vLLM")
    names = ("generation_tokens", "spec_decode_num_drafts")
    written, drafts = (float(re.findall(rf"^vllm:{name}_total\{{.*\}} (\S+)$", told, re.M)[0]) for name in names)
    # Behind the last burst of a text, tokens that were accepted are cut
    assert counted.passes == max(written - counted.accepted, drafts) and 0 < counted.accepted < counted.drafted
    assert flags["num_spec_tokens"] == "4" and flags["enable_prefix_caching"] == "False"
    assert {"block_size", "cache_dtype"} < set(flags)


def test_a_text_is_scored_by_its_own_tokens_alone():
    """vLLM counts the characters of a token that it puts before the prompt."""
    echo = values("vllm-echo.json")
    told = echo["choices"][0]["logprobs"]
    last = told["token_logprobs"][-2]
    assert told["tokens"][0] == "<|endoftext|>" and told["tokens"][-2] == " fox"
    assert mean_log_probability_of_ending(told["text_offset"], told["token_logprobs"], len(" fox")) == last
    two = mean_log_probability_of_ending(told["text_offset"], told["token_logprobs"], len(" small fox"))
    assert two == pytest.approx((last + told["token_logprobs"][-3]) / 2)
    with serving(lambda *_: Reply([json.dumps(echo).encode()], 200, "application/json")) as server:
        assert (
            request_mean_log_probability_of_text(
                OpenAICompatibleServer(server.address), "Story: Once upon a time, a small", " fox"
            )
            == last
        )
        [(path, body)] = server.requests
    assert path == "completions" and body["echo"] and body["prompt"].endswith(" small fox")


@pytest.mark.parametrize(
    "told", [(None, None), ([], []), ([0, 1], [None]), (["0", 1], [None, -1.0]), ([0, 5], [None, None])]
)
def test_what_is_no_list_of_places_and_numbers_is_no_likelihood(told):
    assert mean_log_probability_of_ending(*told, 3) is None
