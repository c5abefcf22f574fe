"""What vLLM tells of a request's steps: it opens, its figures are vLLM's own, and what cannot be is refused with a sentence."""

import copy
import json

import pytest

from engine.page.views.reading import convert_race_file_for_page
from engine.record.parsing import parse_json
from engine.record.served_trace import ServedTrace, is_served_answer

# The form of vLLM 0.32's documentation, with the steps that `detailed` adds.
ANSWER = {
    "id": "cmpl-1",
    "object": "text_completion",
    "model": "big/model",
    "choices": [{"index": 0, "text": " a little fox", "finish_reason": "length"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 9},
    "metrics": {
        "time_to_first_token_ms": 85.2,
        "speculative_decoding": {
            "mean_acceptance_length": 2.25,
            "draft_acceptance_rate": 0.5,
            "acceptance_histogram": [1, 2, 0, 1],
            "num_spec_steps": 4,
            "num_accepted_draft_tokens": 5,
            "num_draft_tokens": 10,
            "num_spec_tokens": 3,
            "per_step_accepted": [1, 0, 3, 1],
            "per_step_drafted": [3, 1, 3, 3],
        },
    },
}


def test_the_figures_are_those_that_vllm_tells():
    told = ANSWER["metrics"]["speculative_decoding"]
    trace = ServedTrace.from_vllm_answer(ANSWER)
    assert (trace.model, trace.text) == ("big/model", " a little fox")
    untold = ServedTrace.from_vllm_answer({**ANSWER, "usage": None})
    assert untold.tau == told["mean_acceptance_length"] and untold.passes is None and trace.passes == 4
    assert trace.count_by_draft_position() == [
        {"depth": 1, "reached": 4, "accepted": 3},
        {"depth": 2, "reached": 3, "accepted": 1},
        {"depth": 3, "reached": 3, "accepted": 1},
    ]
    assert sum(row["accepted"] for row in trace.count_by_draft_position()) == told["num_accepted_draft_tokens"]
    assert sum(row["reached"] for row in trace.count_by_draft_position()) == told["num_draft_tokens"]


def stopped(accepted: list[int], drafted: list[int], tokens: object) -> dict:
    steps = {"per_step_accepted": accepted, "per_step_drafted": drafted}
    return {"metrics": {"speculative_decoding": steps}, "usage": {"completion_tokens": tokens}}


@pytest.mark.parametrize(
    ("accepted", "drafted", "tokens", "kept"),
    [
        ([5], [5], 3, [2]),  # a stop stood among the accepted
        ([5], [5], 6, [5]),
        ([5], [5], 7, [5]),  # a forward more had no draft
        ([1, 0, 3], [3, 3, 3], 4, [1, 0, 0]),
        ([1, 0, 3], [3, 3, 3], 7, [1, 0, 3]),
        ([2, 2], [3, 3], None, [2, 2]),
    ],
)
def test_tau_counts_no_token_that_never_came(accepted, drafted, tokens, kept):
    trace = ServedTrace.from_vllm_answer(stopped(accepted, drafted, tokens))
    forwards = len(kept) if tokens is None else max(len(kept), tokens - sum(kept))
    assert trace.accepted == kept and trace.tau == 1 + sum(kept) / forwards
    assert tokens is None or trace.tau * forwards <= tokens
    assert ServedTrace.from_vllm_answer({**stopped(accepted, drafted, tokens), "usage": None}).accepted == accepted


@pytest.mark.parametrize(
    ("accepted", "drafted", "tokens"), [([5], [5], 0), ([1, 0, 3], [3, 3, 3], 3), ([0] * 4, [1] * 4, 2)]
)
def test_fewer_tokens_than_the_verifications_wrote_are_a_sentence(accepted, drafted, tokens):
    with pytest.raises(ValueError, match=rf"write more than usage.completion_tokens says: {tokens}\."):
        ServedTrace.from_vllm_answer(stopped(accepted, drafted, tokens))


def test_a_chat_answer_and_the_last_piece_of_a_stream_open_too():
    chat = {**ANSWER, "choices": [{"message": {"role": "assistant", "content": "Hello"}}]}
    assert (
        ServedTrace.from_vllm_answer(chat).text == "Hello"
        and ServedTrace.from_vllm_answer({**ANSWER, "choices": []}).text == ""
    )
    bare = {"metrics": {"speculative_decoding": {"per_step_accepted": [1], "per_step_drafted": [2]}}}
    assert ServedTrace.from_vllm_answer(bare) == ServedTrace([2], [1], "", "")


def test_it_is_told_from_a_race_file_and_only_opened():
    text = json.dumps(ANSWER)
    assert (
        is_served_answer(parse_json(text, 10_000))
        and not is_served_answer([])
        and not is_served_answer({"lanes": [], "metrics": {}})
    )
    assert convert_race_file_for_page("opened", text)["served"]["accepted"] == [1, 0, 3, 1]
    assert "This race file cannot be read" in convert_race_file_for_page("replay_page", text)["refused"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metrics": None}, "speculative_decoding is not there. Start vLLM"),
        ({"metrics": {}}, "speculative_decoding is not there. Start vLLM"),
        ({"metrics": {"speculative_decoding": None}}, "is not there. Start vLLM"),
        ({"metrics": {"speculative_decoding": []}}, "must be an object, got a list"),
        ({"choices": "x"}, "choices must be a list"),
        ({"choices": ["x"]}, r"choices\[0\] must be an object"),
        ({"choices": [{"text": 7}]}, "must be a text, got 7"),
        ({"model": ["x"]}, "model must be a text"),
        ({"per_step_drafted": None}, "has no per_step_drafted. Start vLLM with --per-request"),
        ({"per_step_drafted": {}}, "per_step_drafted must be a list, got an object"),
        ({"usage": {"completion_tokens": -1}}, "usage.completion_tokens holds a negative number, -1"),
        (
            {"per_step_drafted": ...},
            "has no per_step_drafted. Start vLLM with --per-request-spec-decode-metrics detailed",
        ),
        ({"per_step_accepted": ...}, "has no per_step_accepted"),
        ({"per_step_accepted": [1, 0, 3]}, "must be as long as per_step_drafted: 4, got 3"),
        ({"per_step_accepted": [1, 2, 3, 1]}, "verification 2 cannot accept 2 of 1"),
        ({"per_step_accepted": [-1, 0, 3, 1]}, "verification 1 cannot accept -1"),
        ({"per_step_accepted": [1.5, 0, 3, 1]}, "must be a whole number, got 1.5"),
        ({"per_step_accepted": [True, 0, 3, 1]}, "must be a whole number"),
        ({"per_step_drafted": [401, 1, 3, 3]}, "at most 400"),
        ({"per_step_drafted": [], "per_step_accepted": []}, "must hold 1 to 20,000 verifications, got 0"),
        ({"per_step_drafted": [0] * 4, "per_step_accepted": [0] * 4}, "drafted anything"),
        ({"num_spec_steps": 5}, "num_spec_steps must be 4, the sum of its steps, got 5"),
        ({"num_draft_tokens": "<b>" * 50}, "num_draft_tokens must be 10"),
    ],
)
def test_a_wrong_answer_is_refused_with_what_is_wrong(change, words):
    values = copy.deepcopy(ANSWER)
    for name, value in change.items():
        place = values["metrics"]["speculative_decoding"] if name.startswith(("per_", "num_")) else values
        place[name] = value
        if value is ...:
            del place[name]
    with pytest.raises(ValueError, match=words) as refusal:
        ServedTrace.from_vllm_answer(values)
    assert len(str(refusal.value)) < 250
    assert str(refusal.value) in convert_race_file_for_page("opened", json.dumps(values))["refused"]
