"""What servers say of tokens and guesses is bounded by what came: equal texts count alike, and what cannot be is a sentence."""

import json

import pytest

from engine.lab.pays import served
from engine.lab.pays.served import RequestWave, recount_tokens_where_arms_disagree
from engine.measure import served_words
from engine.measure.ways import WrittenText, correct_token_counts_of_equal_texts
from engine.remote.telling import GuessTotals, describe_implausible_counts, plausible_and_clamped_guesses_of
from helpers.commands import told
from helpers.remote.engines import Clock, Engine, running
from helpers.traces import made_race

PROMPTS = ["Story: a fox", "Story: a hen", "Story: a dog", "Story: a cow"]


def spent(drafted: int, accepted: int, passes: int, tokens: int) -> dict:
    steps = {"num_spec_steps": passes, "num_draft_tokens": drafted, "num_accepted_draft_tokens": accepted}
    return {"metrics": {"speculative_decoding": steps}, "usage": {"completion_tokens": tokens}}


@pytest.mark.parametrize(
    ("answer", "guesses"),
    [
        (spent(5, 5, 1, 3), GuessTotals(1, 5, 2)),  # a stop stood among the accepted: tau is 3 and not 6
        (spent(5, 5, 1, 6), GuessTotals(1, 5, 5)),
        (spent(12, 3, 4, 8), GuessTotals(5, 12, 3)),  # one pass more had no draft
        ({"timings": {"predicted_n": 9, "draft_n": 8, "draft_n_accepted": 6}}, GuessTotals(3, 8, 6)),
    ],
)
def test_no_more_tokens_were_accepted_than_came(answer, guesses):
    assert plausible_and_clamped_guesses_of(answer) == guesses and describe_implausible_counts(answer) == ""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            {"timings": {"predicted_n": 3, "draft_n": 5, "draft_n_accepted": 5}},
            "accepted in -2 verifications for 3 tokens",
        ),
        (
            {"timings": {"predicted_n": 5, "draft_n": 5, "draft_n_accepted": 5}},
            "accepted in 0 verifications for 5 tokens",
        ),
        ({"timings": {"predicted_n": 9, "draft_n": 5, "draft_n_accepted": 6}}, "of 5 drafted tokens 6 were accepted"),
        (spent(5, 5, 4, 3), "accepted in 4 verifications for 3 tokens"),
        (spent(2, 3, 4, 30), "of 2 drafted tokens 3 were accepted"),
    ],
)
def test_counts_that_cannot_be_are_a_sentence_and_no_figure(answer, words):
    assert (
        plausible_and_clamped_guesses_of(answer) is None
        and words in describe_implausible_counts(answer)
        and describe_implausible_counts(answer).endswith("which cannot be.")
    )


def test_a_server_without_guesses_is_not_doubted():
    for answer in ({}, {"timings": {"predicted_n": 0}}, {"usage": {"completion_tokens": 0}}, spent(0, 0, 0, 5)):
        assert describe_implausible_counts(answer) == ""


# ---- equal texts


def waves(text: str, counts: list[int], seconds: float) -> list[RequestWave]:
    return [RequestWave([text], [count], seconds, None) for count in counts]


@pytest.mark.parametrize(("plain", "mine", "arm"), [(3, 8, "guessing"), (8, 3, "plain"), (3, 3, "")])
def test_the_same_text_in_the_same_time_is_as_fast_whatever_a_server_counts(plain, mine, arm):
    """Of 3 and 8 tokens for three words the 3 are nearer to this side's count."""
    base, own, miscounts = recount_tokens_where_arms_disagree(
        waves(" one two three", [plain] * 3, 1.0), waves(" one two three", [mine] * 3, 1.0)
    )
    assert miscounts == arm and [each.total_tokens for each in base] == [each.total_tokens for each in own]


def test_other_texts_of_a_server_that_miscounts_are_counted_here_too():
    plain = [RequestWave([" one two", " one two three"], [2, 3], 1.0, None)]
    mine = [RequestWave([" one two", " one two four"], [2 + 5, 3 + 5], 1.0, None)]
    [base], [own], arm = recount_tokens_where_arms_disagree(plain, mine)
    assert (
        arm == "guessing"
        and base.token_counts[0] == own.token_counts[0]
        and abs(base.token_counts[1] - own.token_counts[1]) <= 1
    )


def test_other_texts_may_have_other_counts():
    plain, mine = waves(" one", [3], 1.0), waves(" two", [8], 1.0)
    assert recount_tokens_where_arms_disagree(plain, mine) == (plain, mine, "")


def test_a_server_that_overruns_is_not_faster_and_the_report_names_it(capsys, tmp_path, monkeypatch):
    """Both arms send the same text in the same time; one counts five tokens more than it sends."""
    clock, file = Clock(), tmp_path / "my.jsonl"
    monkeypatch.setattr(Engine, "clock", clock)
    monkeypatch.setattr("engine.remote.server.time", clock)
    file.write_text("\n".join(map(json.dumps, PROMPTS)), encoding="utf-8")
    engine = Engine("llama-server", seconds=(0.01, 0.01), overruns=5)
    with running(engine) as server:
        command = ("pays", "--prompts", str(file), "--server", server.address, "--tokens", "16", "--batch", "1")
        lines, row = told(capsys, *command)
    [point] = row["points"]
    assert point["speedup"] == pytest.approx(1.0) and point["answer"] != "yes" and point["miscounts"] == "guessing"
    assert any(line.startswith("The server with guesses counts tokens that are not in its texts") for line in lines)


def test_a_peers_text_that_is_plain_decodings_has_as_many_tokens():
    trace = made_race().lanes[0].trace
    equal, other, ids = (
        WrittenText([], 2.0, trace.text, 40),
        WrittenText([], 2.0, "another", 40),
        WrittenText([7, 8], 2.0),
    )
    found = correct_token_counts_of_equal_texts([trace] * 3, [equal, other, ids])
    assert [each.seconds_per_token for each in found] == [2.0 / len(trace.tokens), 2.0 / 40, 1.0]


def test_the_report_says_who_miscounts_and_what_cannot_be():
    point = {"batch": 1, "waves": 12, "texts": 12, "identical": 12, "acceptance": None}
    point |= {"miscounts": "plain", "doubt": "It says what cannot be."}
    said = served_words.list_caution_sentences(
        {"points": [point], "prompts": 12, "model": "m", "plain": {"model": "m"}}
    )
    assert any(each.startswith("The server without guesses counts tokens") for each in said)
    assert any("It says what cannot be." in each for each in said)
    assert not any("does not tell" in each for each in said)


def test_impossible_counts_leave_the_verdict_and_are_told(monkeypatch):
    doubtful = RequestWave([" a"], [1], 1.0, None, "It says what cannot be.")
    plain = [RequestWave([" a"], [1], 2.0, GuessTotals(0, 0, 0))] * 3
    asked = served.Settings("a prompt")
    point = served.compute_figures_at_concurrency(1, plain, [doubtful] * 3, asked)
    assert point["speedup"] == pytest.approx(2.0) and point["tau"] is None
    assert point["doubt"] == "It says what cannot be."
