"""`pays --server`: two arms of a running server, measured against stand-ins for each engine. Verdicts, refusals, the row."""

import json
import socket
import threading
from contextlib import ExitStack

import pytest

from engine.__main__ import main
from engine.lab.pays import served
from engine.measure import served_words
from engine.race import Settings
from engine.remote import telling
from helpers.commands import told
from helpers.remote.engines import Clock, Engine, running

PROMPTS = ["Story: a fox", "Story: a hen", "Story: a dog", "Story: a cow"]
SHORT = ("--tokens", "16", "--batch", "1")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """No stand-in keeps anybody waiting, and no other work counts: seconds are those that a server says it writes for."""
    clock = Clock()
    monkeypatch.setattr(Engine, "clock", clock)
    monkeypatch.setattr("engine.remote.server.time", clock)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my.jsonl"
    path.write_text("\n".join(map(json.dumps, PROMPTS)), encoding="utf-8")
    return path


def measured(capsys, file, *engines: Engine, options=SHORT) -> tuple[list[str], dict]:
    """The lines and the row of `pays --server`, with the second engine for plain decoding where there is one."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(running(engine)).address for engine in engines]
        named = [part for pair in zip(("--server", "--plain"), addresses, strict=False) for part in pair]
        return told(capsys, "pays", "--prompts", str(file), *named, *options)


def refused(capsys, file, *engines: Engine, options=SHORT) -> str:
    with pytest.raises(SystemExit) as ended:
        measured(capsys, file, *engines, options=options)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    return said.strip().splitlines()[-1]


# ---- what is measured


def test_a_llama_server_is_its_own_plain_arm_and_tells_what_was_accepted(capsys, file):
    engine = Engine("llama-server")
    with running(engine) as server:
        lines, row = told(capsys, "pays", "--prompts", str(file), "--server", server.address, *SHORT)
        bodies = [body for _, body in server.requests]
    assert row["verdict"].startswith("yes: this server's guesses pay.") and lines[0] == row["verdict"]
    [point] = row["points"]
    low, high = point["interval"]
    assert low == pytest.approx(point["speedup"]) == high == pytest.approx(16 / 6)  # milliseconds a token
    assert point["tau"] == pytest.approx(4.0) and point["acceptance"] == pytest.approx(0.75)
    assert (point["texts"], point["identical"], point["gaining"]) == (4, 4, 4)
    assert (row["engine"], row["version"], row["model"]) == ("llama-server", "b9001-abc", "model.gguf")
    assert row["flags"] == {"total_slots": 4, "speculative.n_max": 16} and row["plain"]["same_server"]
    assert json.loads(lines[-1]) == row and server.address not in lines[-1] and "/disk" not in lines[-1]
    assert [body.get("speculative.n_max") for body in bodies[2:]] == [0, None, None, 0, 0, None, None, 0]
    assert [body["max_tokens"] for body in bodies] == [4, 4] + [16] * 8
    assert all(body["cache_prompt"] is False and body["model"] == engine.models[0] for body in bodies)


def test_a_newer_llama_server_is_compared_with_a_second_one_that_drafts_nothing(capsys, file):
    _, row = measured(
        capsys, file, Engine("llama-server", switch=False), Engine("llama-server", switch=False, drafts=False)
    )
    assert row["points"][0]["tau"] == pytest.approx(4.0) and not row["plain"]["same_server"]
    assert row["flags"] == {"total_slots": 4, "speculative": True}
    assert row["plain"]["flags"] == {"total_slots": 4, "speculative": False}


def test_two_addresses_of_vllm_are_compared_and_its_counters_read(capsys, file):
    _, row = measured(capsys, file, Engine("vLLM"), Engine("vLLM", drafts=False))
    [point] = row["points"]
    assert point["answer"] == "yes" and point["tau"] == pytest.approx(4.0)
    assert (row["engine"], row["version"]) == ("vLLM", "0.32.0") and not row["plain"]["same_server"]


@pytest.mark.parametrize("level", ["summary", "detailed"])
def test_a_vllm_that_tells_of_every_request_is_taken_at_its_word_and_not_at_the_counters_of_all(capsys, file, level):
    """Its counters hold strangers' requests too, in which nothing was accepted."""
    crowded = Engine("vLLM", per_request=level, strangers=8)
    _, row = measured(capsys, file, crowded, Engine("vLLM", drafts=False, per_request=level))
    [point] = row["points"]
    assert point["tau"] == pytest.approx(4.0) and point["acceptance"] == pytest.approx(0.75)
    assert crowded.counts["drafts"] > 2 * 16 and row["verdict"].startswith("yes")


def test_a_vllm_that_tells_times_alone_is_read_by_its_counters_of_all_its_cores(capsys, file):
    _, row = measured(
        capsys,
        file,
        Engine("vLLM", per_request="times", strangers=4),
        Engine("vLLM", drafts=False, per_request="times"),
    )
    [point] = row["points"]  # of 8 verifications 4 are strangers', which accepted nothing
    assert point["tau"] == pytest.approx(1 + 12 / 8) and point["acceptance"] == pytest.approx(12 / 32)


def test_where_one_answer_of_a_wave_does_not_tell_the_counters_speak_for_all():
    class Silent(Engine):
        def metrics(self, accepted):
            self.told = getattr(self, "told", 0) + 1
            return super().metrics(accepted) if self.told > 1 else {}

    with (
        running(Silent("vLLM", per_request="summary", strangers=4)) as server,
        running(Engine("vLLM", drafts=False)) as other,
    ):
        _, guessing = served.build_plain_and_speculative_arms(server.address, other.address, "")
        waves = [
            served.send_concurrent_requests_and_wait(
                guessing, [0, 1], PROMPTS, Settings("a prompt", max_new_tokens=16), 16, False
            )
            for _ in range(2)
        ]
    assert [wave.guess_totals for wave in waves] == [telling.GuessTotals(16, 64, 24), telling.GuessTotals(8, 32, 24)]


def test_sglang_is_asked_for_its_details_and_its_settings_are_told_without_a_path(capsys, file):
    _, row = measured(capsys, file, Engine("SGLang"), Engine("SGLang", drafts=False))
    assert row["points"][0]["acceptance"] == pytest.approx(0.75)
    assert row["flags"] == {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "draft"}


def test_a_server_that_tells_nothing_of_guesses_gets_its_verdict_all_the_same(capsys, file):
    lines, row = measured(
        capsys, file, Engine("", seconds=(0.006, 0.003)), Engine("", drafts=False, seconds=(0, 0.003))
    )
    assert row["verdict"].startswith("no: this server's guesses do not pay.")
    assert row["points"][0]["acceptance"] is None and row["points"][0]["tau"] is None and row["engine"] == ""
    assert any("does not tell what was accepted" in line for line in lines)


def test_high_acceptance_is_no_verdict_and_the_streams_at_which_it_pays_are_named(capsys, file, monkeypatch):
    """The streams of a wave are there together however busy the machine is."""
    engine, right = Engine("llama-server", seconds=(0.015, 0.025), crowd=1), served.send_concurrent_requests_and_wait

    def send(arm, streams, *rest):
        engine.gate = threading.Barrier(len(streams), timeout=60)
        return right(arm, streams, *rest)

    monkeypatch.setattr(served, "send_concurrent_requests_and_wait", send)
    options = ("--tokens", "16", "--batch", "1,4")
    lines, row = measured(capsys, file, engine, options=options)
    one, four = row["points"]
    assert (one["answer"], four["answer"]) == ("yes", "no")
    assert one["acceptance"] == pytest.approx(0.75) == four["acceptance"]
    assert row["verdict"].startswith("only at 1 stream: elsewhere this server's guesses do not surely pay.")
    assert four["waves"] == 3 and four["texts"] == 12 and any("sent more than once" in line for line in lines)


def test_all_streams_of_a_wave_are_there_at_once(capsys, file):
    gate = threading.Barrier(16, timeout=30)  # a stream that comes after another has ended never passes
    with running(Engine("llama-server", seconds=(0.001, 0.001), gate=gate)) as server:
        arms = served.build_plain_and_speculative_arms(server.address, None, "")
        wave = served.send_concurrent_requests_and_wait(
            arms[1], list(range(16)), PROMPTS, Settings("a prompt", max_new_tokens=16), 16, False
        )
    assert not gate.broken and wave.total_tokens == 256
    assert wave.texts == [f" word of {PROMPTS[at % 4]}" for at in range(16)]


def test_an_address_without_a_path_gets_that_of_the_endpoints():
    assert (
        telling.add_v1_path_if_address_has_none("http://127.0.0.1:8080")
        == "http://127.0.0.1:8080/v1"
        == telling.add_v1_path_if_address_has_none("http://127.0.0.1:8080/")
    )
    assert (
        telling.add_v1_path_if_address_has_none("http://h/deep/v1") == "http://h/deep/v1"
        and telling.add_v1_path_if_address_has_none("h:80") == "h:80"
    )


def test_prompts_go_to_the_chat_unless_they_are_raw(capsys, file):
    paths = {}
    for option in ((), ("--raw",)):
        with running(Engine("llama-server")) as server:
            told(capsys, "pays", "--prompts", str(file), "--server", server.address, *SHORT, *option)
            paths[option] = {path for path, _ in server.requests}
    assert paths == {(): {"chat/completions"}, ("--raw",): {"completions"}}


# ---- what is refused


def test_a_server_that_cannot_leave_out_its_guesses_needs_a_second_one(capsys, file):
    said = refused(capsys, file, Engine("vLLM"))
    assert "only a llama-server that tells speculative.n_max can" in said and "--plain" in said
    new = refused(capsys, file, Engine("llama-server", switch=False))
    assert "cannot leave out its guesses for one request" in new and "name that one by --plain" in new


def test_a_server_that_drafts_although_it_was_asked_not_to_is_no_baseline(capsys, file):
    said = refused(capsys, file, Engine("llama-server", deaf=True))
    assert "drafted 64 tokens for plain decoding" in said and "name it by --plain" in said


@pytest.mark.parametrize("engines", [(Engine("llama-server", drafts=False),), (Engine("vLLM", drafts=False),) * 2])
def test_a_server_that_drafts_nothing_is_refused(capsys, file, engines):
    assert "drafted nothing for these prompts. Was it started with a drafter?" in refused(capsys, file, *engines)


def test_other_texts_everywhere_are_another_model(capsys, file):
    said = refused(capsys, file, Engine("vLLM"), Engine("vLLM", drafts=False, words="other"))
    assert "Of 4 texts at temperature 0 none is the same" in said


def test_above_temperature_0_texts_are_not_compared(capsys, file):
    engines = Engine("vLLM"), Engine("vLLM", drafts=False, words="other")
    _, row = measured(capsys, file, *engines, options=(*SHORT, "--temperature", "0.8"))
    assert row["points"][0]["identical"] is None and row["verdict"].startswith("yes")


def test_above_temperature_0_far_less_likely_texts_are_refused(capsys, file):
    """vLLM 0.32 on a CPU wrote nonsense with any guesses above temperature 0, and plainly none."""
    wrong = Engine("vLLM", words="nonsense"), Engine("vLLM", drafts=False)
    said = refused(capsys, file, *wrong, options=(*SHORT, "--temperature", "0.8"))
    assert "writes other text with its guesses than without" in said and "likely by -2.00 nats a token" in said


@pytest.mark.parametrize("kind", ["", "llama-server"])
def test_above_temperature_0_a_greedy_wave_is_compared_where_no_likelihood_is_told(capsys, file, kind):
    heat = (*SHORT, "--temperature", "0.8")
    other = Engine(kind, switch=False), Engine(kind, switch=False, drafts=False, words="other")
    assert "texts at temperature 0 none is the same" in refused(capsys, file, *other, options=heat)
    _, row = measured(capsys, file, other[0], Engine(kind, switch=False, drafts=False), options=heat)
    assert row["temperature"] == 0.8 and row["points"][0]["identical"] is None


def test_a_server_that_counts_no_tokens_is_refused(capsys, file):
    said = refused(capsys, file, Engine("", mute=True), Engine("", mute=True, drafts=False))
    assert "does not say how many tokens it wrote (usage.completion_tokens)" in said


def test_of_several_models_one_must_be_named(capsys, file):
    engine = Engine("llama-server", models=("small", "large"))
    assert "serves 2 models: 'small', 'large'. Name one by --server-model." in refused(capsys, file, engine)
    _, row = measured(capsys, file, engine, options=(*SHORT, "--server-model", "large"))
    assert row["model"] == "large"


def test_a_server_that_is_not_there_is_a_sentence(capsys, file):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SystemExit):
            main(["pays", "--prompts", str(file), "--server", address])
    assert "cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--plain", "http://h/v1"), "--plain needs --server"),
        (("--server", "http://h/v1", "--systems", "tree"), "--systems is about a model that is loaded here"),
        (("--server", "http://h/v1", "--memory"), "--memory is about a model that is loaded here"),
        (("--server", "http://h/v1", "--batch", "4,1"), "--batch must be ascending numbers between 1 and 256"),
        (("--server", "h:80"), "A server's address must be one such as http://127.0.0.1:8000/v1, got 'h:80'."),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_asked(capsys, file, options, words):
    with pytest.raises(SystemExit) as ended:
        main(["pays", "--prompts", str(file), *options])
    assert ended.value.code == 2 and words in capsys.readouterr().err


def test_an_error_of_the_server_ends_the_command_with_its_sentence(capsys, file):
    class Full(Engine):
        def parts(self, path, body):
            if body["max_tokens"] == 16:
                raise OSError
            return super().parts(path, body)

    said = refused(capsys, file, Full("llama-server"))
    assert said.startswith("llama-server at 127.0.0.1:") and "failed with 1 at once. The connection to" in said
    assert "no chat template, --raw sends prompts as they are." in said


# ---- the words


def row_of(*answers: str) -> dict:
    points = [{"answer": answer, "batch": 4**at, "speedup": 1.0 + at} for at, answer in enumerate(answers)]
    return {"points": points}


@pytest.mark.parametrize(
    ("answers", "begins"),
    [
        (
            ("yes", "yes"),
            "yes: this server's guesses pay. With them it writes 1.00 times as fast at 1 stream, 2.00 times",
        ),
        (("no",), "no: this server's guesses do not pay. With them it writes 1.00 times as fast at 1 stream."),
        (("yes", "yes", "no"), "only at 1 and 4 streams: elsewhere"),
        (("only", "no"), "only for some of these prompts: elsewhere"),
    ],
)
def test_the_verdict_is_about_all_numbers_of_streams(answers, begins):
    assert served_words.describe_server_verdict(row_of(*answers)).startswith(begins)
