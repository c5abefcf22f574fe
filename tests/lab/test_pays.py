"""Pays: the verdict's arithmetic on made-up figures, one short run with the embedded pair, and what is refused."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from engine import __main__ as commands
from engine.lab.pays import command
from engine.measure import peers, racing, verdict, words
from engine.measure.prompts import MOST, read_prompt_files, read_prompts
from engine.measure.report import acceptance_by_depth, acceptance_by_rank, compute_figures_by_group
from engine.page.screens import own_prompts
from engine.race import Race, Settings
from engine.record.race_file import Record
from engine.record.trace import Trace
from engine.record.trace_statistics import GuessCountsAfterAcceptedParent, pooled_time_shares_by_phase
from engine.systems import SYSTEMS, resolve_system_name
from helpers.commands import SMALL, run, told
from helpers.pairs import LETTERS, tiny_pair
from helpers.paths import ROOT

STORIES = ["Story: Once upon a time", "Story: A cat saw a dog", "Story: Tom and Lily went to the park"]
KEYS = {
    *("verdict", "answer", "best", "pair", "machine", "dtype", "temperature", "tokens", "seed", "memory", "constraint"),
    *("confidence", "plain", "systems", "prompts", "groups", "refused"),
}
ROW_KEYS = {
    *("name", "setting", "guarantee", "tried_seconds_per_token", "speedup", "interval", "vs_generate", "tau", "time"),
    *("vs_generate_interval", "gaining", "by_prompt", "acceptance", "acceptance_by_rank", "identical", "disturbed"),
}


def row(speedups: list[float], name: str = "tree", guarantee: str = "tokens", seed: int = 0) -> dict:
    """A system's figures where plain decoding takes a second a token and `generate()` ten."""
    drawn = verdict.draw_bootstrap_indices(len(speedups), seed)
    mine, count = [1 / speedup for speedup in speedups], len(speedups)
    told = {"name": name, "setting": name, "guarantee": guarantee, "disturbed": 0}
    return told | verdict.compare_with_plain_and_generate(mine, [1.0] * count, [10.0] * count, drawn)


def sentence_of(rows: list[dict]) -> str:
    """The sentence about made-up rows."""
    best = verdict.best_lossless_row_of(rows)
    return words.describe_pays_verdict(
        {
            "answer": verdict.judge_yes_no_or_only(best),
            "best": best["name"],
            "systems": rows,
            "prompts": best["by_prompt"],
        }
    )


# ---- arithmetic


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ([1.4, 1.5, 1.3, 1.6], "yes"),
        ([1.0001] * 3, "yes"),
        ([0.7, 0.8, 0.9], "no"),
        ([0.4, 0.5, 1.9], "no"),  # the mean is below 1, though the interval is not
        ([0.7, 1.8, 1.2, 0.9], "only"),
        ([0.5, 2.0, 2.0, 2.0, 0.5], "only"),
        ([1.0, 1.0, 1.0], "only"),
        ([1.0, 1.0, 2.0], "only"),  # the interval begins at 1 itself
    ],
)
def test_the_verdict_follows_the_mean_and_its_interval(speedups, expected):
    made = row(speedups)
    assert verdict.judge_yes_no_or_only(made) == expected
    assert sentence_of([made]).startswith(expected)
    low, high = made["interval"]
    assert min(speedups) * 0.999 <= low <= high <= max(speedups) * 1.001
    assert made["gaining"] == sum(speedup > 1 for speedup in speedups)


def test_a_speedup_is_a_geometric_mean_and_generate_is_compared_alike():
    made = row([2.0, 0.5, 1.0])
    assert made["speedup"] == pytest.approx(1) and made["by_prompt"] == pytest.approx([2, 0.5, 1])
    assert made["vs_generate"] == pytest.approx(10)
    assert made["vs_generate_interval"] == pytest.approx([10 * end for end in made["interval"]])


def test_disturbed_clocks_are_told_behind_the_verdict():
    made = row([1.4, 1.5, 1.3]) | {"disturbed": 2}
    assert sentence_of([made]).endswith(
        " The clocks of 2 of 3 prompts were disturbed twice; ratios vary."
    ) and sentence_of([made]).startswith("yes: tree writes")


@pytest.mark.parametrize(("sentences", "races"), [([""], 1), (["so"], 2), (["so", ""], 2)])
def test_a_race_that_was_disturbed_is_run_once_more_and_that_one_counts(monkeypatch, sentences, races):
    made: list[Race] = []
    right = Race.result

    def result(race):
        made.extend([race] if race not in made else [])
        at = min(made.index(race), len(sentences) - 1)
        return right(race) | {"disturbed": sentences[at]}

    monkeypatch.setattr(Race, "result", result)
    monkeypatch.setattr(racing, "RUNS", 2)
    wish = Settings("a prompt", max_new_tokens=8)
    [runs] = racing.run_to_result(racing.run_races(tiny_pair(), STORIES[:1], ["tree"], wish))
    assert len(made) == races
    plain, trace = (lane.trace for lane in made[-1].lanes)
    assert runs.results_by_setting["tree"] == [racing.PromptResult(trace, plain, True, sentences[-1])]


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    speedups = [0.6, 1.1, 1.9, 0.8, 1.3, 2.2, 0.9]
    assert row(speedups, seed=3)["interval"] == row(speedups, seed=3)["interval"] != row(speedups, seed=4)["interval"]
    drawn = verdict.draw_bootstrap_indices(7, 3)
    assert drawn.shape == (verdict.RESAMPLES, 7) and set(np.unique(drawn)) == set(range(7))
    assert abs((drawn == 0).mean() - 1 / 7) < 0.01


def test_the_intervals_exact_ends_are_quantiles_of_the_resampled_means():
    drawn = np.array([[at] for at in range(41)])  # means that are 41 numbers, whose 2nd is the 2.5 % quantile
    speedups = np.exp(np.linspace(-1, 1, 41)).tolist()
    assert verdict.bootstrap_interval_of_geometric_mean(speedups, drawn) == pytest.approx([speedups[1], speedups[39]])


def test_the_interval_covers_the_law_that_speedups_come_from():
    """Of many files drawn from a known law about 95 % of the intervals hold its mean; fewer for 20 prompts, as a bootstrap's do."""
    draws = np.cos(np.arange(200 * 20) ** 2 * 0.7).reshape(200, 20)  # spread evenly enough, symmetrical about 0
    drawn = verdict.draw_bootstrap_indices(20, 0)
    ends = np.array([verdict.bootstrap_interval_of_geometric_mean(np.exp(each).tolist(), drawn) for each in draws])
    assert 0.88 < ((ends[:, 0] < 1) & (ends[:, 1] > 1)).mean() <= 1


def test_of_equal_systems_the_first_is_best_and_a_lossy_one_never():
    slow, fast, equal = row([1.1] * 3, "chain"), row([1.5] * 3, "tree"), row([1.5] * 3, "auto")
    lossy = row([3.0] * 3, "naive", "lossy")
    assert verdict.best_lossless_row_of([slow, fast, equal, lossy])["name"] == "tree"
    assert verdict.best_lossless_row_of([lossy, equal, fast])["name"] == "auto"
    assert sentence_of([lossy, slow]) == (
        "yes: chain writes these prompts 1.10 times as fast as plain decoding, 95 % interval 1.10 to 1.10."
    )
    assert sentence_of([row([0.7, 1.8, 1.2, 0.9])]).startswith("only for 2 of 4 prompts: tree gains there.")


def test_shares_and_acceptance_are_those_of_the_steps():
    """Two rounds by hand. Depth 1 is guessed twice and accepted once; depth 2 is guessed once where depth 1 was accepted."""
    steps = [
        SimpleNamespace(parents=[-1, 0, 1, 1], score=[1.0, 0.8, 0.5, 0.2], path=[1]),
        SimpleNamespace(parents=[-1, 0], score=[1.0, 0.8], path=[]),
        SimpleNamespace(parents=[-1], score=[1.0], path=[]),
    ]
    assert acceptance_by_depth(GuessCountsAfterAcceptedParent([SimpleNamespace(steps=steps)])) == [
        {"depth": 1, "rounds": 2, "accepted": 0.5},
        {"depth": 2, "rounds": 1, "accepted": 0.0},
    ]
    file = ROOT / "assets" / "races" / "1-story-draft-tree.json"
    *_, lane = Record.from_json(file.read_text(encoding="utf-8")).lanes
    shares = pooled_time_shares_by_phase([lane.trace])
    assert sum(shares.values()) == pytest.approx(1) and shares["draft"] == pytest.approx(
        lane.trace.phase_share("draft")
    )
    first = acceptance_by_depth(GuessCountsAfterAcceptedParent([lane.trace]))[0]
    assert first["accepted"] == sum(bool(step.path) for step in lane.trace.steps) / first["rounds"]


def test_a_rank_is_a_place_among_siblings_whose_parent_was_reached():
    """The root's favourite is node 2, by score, and node 3 behind it is accepted. Node 1's child is no guess that counts.

    In a second round the favourite comes true again.
    """
    step = SimpleNamespace(parents=[-1, 0, 0, 2, 1, 2], score=[1.0, 0.2, 0.7, 0.3, 0.1, 0.4], path=[2, 3])
    favourite = SimpleNamespace(parents=[-1, 0, 0], score=[1.0, 0.8, 0.1], path=[1])
    assert acceptance_by_rank(GuessCountsAfterAcceptedParent([SimpleNamespace(steps=[step, favourite])])) == [
        {"rank": 1, "guesses": 3, "accepted": 2 / 3},
        {"rank": 2, "guesses": 3, "accepted": 1 / 3},
    ]


def test_groups_are_counted_apart_and_a_prompt_without_one_in_none(tmp_path):
    def lane(tokens: int, path: list[int]) -> SimpleNamespace:
        step = SimpleNamespace(parents=[-1, 0], score=[1.0, 0.8], path=path)
        return SimpleNamespace(tokens=[0] * tokens, target_forwards=2, steps=[step])

    lanes = [lane(2, []), lane(6, [1]), lane(4, [1])]
    assert compute_figures_by_group(["de", "en", "en"], lanes, [0.5, 2.0, 2.0]) == [
        {"group": "de", "prompts": 1, "speedup": 0.5, "tau": 1.0, "accepted": 0.0},
        {"group": "en", "prompts": 2, "speedup": pytest.approx(2.0), "tau": 2.5, "accepted": 1.0},
    ]
    assert compute_figures_by_group(["", ""], lanes[:2], [1.0, 1.0]) == []
    named, plain = tmp_path / "a.jsonl", tmp_path / "b.txt"
    named.write_text("\n".join(['{"prompt": "x", "group": "de"}', '"y"', '"z"']), encoding="utf-8")
    plain.write_text("1\n\n2\n\n3", encoding="utf-8")
    assert [each.group for each in read_prompt_files([named])] == ["de", "", ""]
    assert [each.group for each in read_prompt_files([named, plain])] == ["de", "a.jsonl", "a.jsonl", *["b.txt"] * 3]
    named.write_text('"x"\n"y"\n{"prompt": "x", "group": 7}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 3 .* 60 characters, got 7"):
        read_prompt_files([named])


# ---- runs


def test_a_run_tells_every_figure_and_its_best_system_is_that_of_its_figures(capsys, tmp_path, embedded):
    file = tmp_path / "my.jsonl"
    lines = [json.dumps({"prompt": STORIES[0]}), "", *map(json.dumps, STORIES[1:])]
    file.write_text("\n".join([*lines, json.dumps("far too long " * 1400)]), encoding="utf-8")
    said, figures = told(
        capsys, "pays", *SMALL, "--prompts", str(file), "--systems", "auto,lookup,tree:2x2x4", "--tokens", "12",
        "--device", "cpu", "--shape", "paper",
    )  # fmt: skip
    assert figures.keys() == KEYS and all(each.keys() == ROW_KEYS for each in figures["systems"])
    rows = {each["name"]: each for each in figures["systems"]}
    assert list(rows) == ["auto", "lookup", "tree:2x2x4"]
    assert rows["auto"]["setting"] == "auto" and rows["auto"]["tried_seconds_per_token"] is None
    tried = rows["lookup"]["tried_seconds_per_token"]
    assert rows["lookup"]["setting"] == min(tried, key=tried.__getitem__) and len(tried) == 3
    best = max(rows.values(), key=lambda each: each["speedup"])
    assert figures["best"] == best["name"] and figures["answer"] == verdict.judge_yes_no_or_only(best)
    assert [each["speedup"] for each in figures["prompts"]] == best["by_prompt"]
    assert said[0] == figures["verdict"] and said[0].startswith(figures["answer"])
    for each in rows.values():
        assert each["identical"] is True and each["tau"] >= 1 and len(each["by_prompt"]) == 3
        assert sum(each["time"].values()) == pytest.approx(1)
        assert each["interval"] == verdict.bootstrap_interval_of_geometric_mean(
            each["by_prompt"], verdict.draw_bootstrap_indices(3, 0)
        )
    assert [each["index"] for each in figures["refused"]] == [3] and "Prompt 4 was not raced" in "\n".join(said)


def test_where_a_random_draft_guesses_the_answer_is_no(monkeypatch):
    """The clock is a stub: a forward takes a second for every four rows begun, a draft forward half a second."""
    pair = tiny_pair()
    monkeypatch.setattr(Trace, "seconds_per_token", property(seconds_by_counting))
    wish = Settings("a prompt", max_new_tokens=12)
    raced, refused = racing.split_raceable_and_refused(pair, STORIES, wish)
    told_of: list[None] = []
    systems = ["tree", "chain"]
    outcome = racing.run_to_result(
        racing.choose_settings_and_race_in_steps(pair, STORIES, systems, wish), lambda: told_of.append(None)
    )
    assert len(told_of) == racing.count_progress_pieces(len(systems), len(STORIES))
    assert len(outcome.peer_texts_by_name[peers.PLAIN]) == 3
    figures = command.build_pays_report(pair, STORIES, raced, refused, wish, outcome)
    assert figures["answer"] == "no" and words.describe_pays_verdict(figures).startswith("no: the best system, ")
    assert max(each["tau"] for each in figures["systems"]) < 1.5
    assert "The intervals are too narrow: 3 prompts are few. Race 10 or more." in words.format_pays_report(figures)
    assert "0 of 3 prompts gain" in words.format_pays_report(figures)
    assert "3 of 3 prompts lose" in words.format_pays_report(figures)


def seconds_by_counting(trace) -> float:
    forwards = sum(-(-len(step.tokens) // 4) for step in trace.steps)
    return (forwards + trace.draft_forwards / 2) / len(trace.tokens)


def test_what_is_raced_is_every_lossless_system_that_the_pair_has_parts_for(embedded):
    guessing = [system.name for system in SYSTEMS.values() if system.guesses and system.guarantee != "lossy"]
    guessing.remove("mtp")  # the embedded target has no MTP layers
    assert racing.choose_systems(embedded, None, LETTERS) == guessing and "auto" in guessing
    guessing.remove("forced")  # it guesses under a constraint alone
    assert racing.choose_systems(embedded, None, "") == guessing
    assert racing.list_candidate_settings(embedded, "tree") == ["tree", "tree:2x3x4", "tree:1x1x2"]
    assert racing.list_candidate_settings(embedded, "tree:3x2x6") == ["tree:3x2x6"]
    for name in guessing:
        tried = racing.list_candidate_settings(embedded, name)
        assert tried[0] == name and len(tried) <= 3
        assert all(resolve_system_name(each).nodes < resolve_system_name(name).nodes for each in tried[1:])
    many = [f"tree:{depth}x2x4" for depth in range(1, 10)]
    assert [len(group) for group in racing.group_systems_by_race(many)] == [7, 2]


# ---- refusals


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("my.csv", "a", "must name a file that ends in .jsonl, .ndjson, .txt, got"),
        ("my.jsonl", '"a"\n{"prompt": 3}\n"b"', "The prompt on line 2 must be a string, got 3."),
        ("my.jsonl", '"a"\n{"text": "b"}', 'Line 2 has no "prompt".'),
        ("my.jsonl", '"a"\n\n{"prompt"', "Line 3 is no JSON"),
        ("my.jsonl", '"a"\n"  "', "The prompt on line 2 is empty."),
        (
            "my.txt",
            "one\nmore of it\n\ntwo\n\n",
            "my.txt has 2 prompts; between 3 and 1,000 are needed. A blank line separates",
        ),
        ("my.txt", "a\n\n" * (MOST + 1), "my.txt has 1,001 prompts"),
        ("my.txt", b"a\nb\n\xff\xfe\n", "my.txt is not UTF-8 at byte 4."),
    ],
)
def test_a_bad_file_is_refused_with_a_sentence(capsys, tmp_path, name, text, sentence):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SystemExit) as ended:
        run("pays", "--prompts", str(file))
    assert ended.value.code == 2 and sentence in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"There is no file '.*missing.txt'"):
        read_prompts(tmp_path / "missing.txt")


def test_page_and_shell_read_the_same_prompts_in_a_text_file(tmp_path):
    text = "\ufeffone\r\nmore of it\r\n \t\r\n\r\n  two words\n\nthree\u2028still three\n"
    file = tmp_path / "my.TXT"
    file.write_text(text, encoding="utf-8", newline="")
    assert [each.text for each in read_prompts(file)] == ["one\nmore of it", "  two words", "three\u2028still three"]
    assert [each.text for each in read_prompts(file)] == own_prompts.parse_prompt_file(file.name, text)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--systems", "tree,perpetual"), "Unknown system 'perpetual'"),
        (("--systems", "tree,tree"), "--systems names 'tree' twice"),
        (("--systems", "vanilla"), "'vanilla', which is always raced"),
        (("--systems", "naive"), "'naive' holds lossy systems only"),
        (("--tokens", "0"), "Max new tokens must be between 1 and 900, got 0"),
        (("--temperature", "-1"), "Temperature must be between"),
        (("--temperature", "1e-38"), "Temperature must be 0 or at least 1e-30"),
    ],
)
def test_senseless_options_are_refused_before_anything_is_raced(
    capsys, tmp_path, monkeypatch, embedded, arguments, sentence
):
    monkeypatch.setattr(Race, "run", lambda self: pytest.fail("a race ran"))
    file = tmp_path / "my.txt"
    file.write_text("\n\n".join(STORIES), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        run("pays", *SMALL, "--prompts", str(file), "--device", "cpu", *arguments)
    assert ended.value.code == 2 and sentence in capsys.readouterr().err


def test_ctrl_c_ends_it_with_a_sentence(capsys, tmp_path, monkeypatch, embedded):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(racing, "choose_best_setting", interrupt)
    file = tmp_path / "my.txt"
    file.write_text("\n\n".join(STORIES), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        commands.main(["pays", *SMALL, "--prompts", str(file), "--device", "cpu"])
    said = capsys.readouterr()
    assert ended.value.code == 130 and said.out == ""
    assert said.err.endswith("The command pays was stopped before it was done.\n") and "Traceback" not in said.err
