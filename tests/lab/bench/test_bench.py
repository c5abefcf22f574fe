"""The bench runs on something small and prints what it promises; the figures themselves are not judged here."""

import json
from types import SimpleNamespace

import pytest

from engine.lab.bench import command as bench
from engine.measure import peers
from engine.measure.other_engines import GUESSES, PeerGenerateFunctions
from engine.policies.kary import FullKaryTree
from engine.race import Race, Settings
from engine.record.trace import Step, Trace
from engine.systems import SYSTEMS
from helpers.commands import SMALL, printed, run, told
from helpers.pairs import tiny_pair


def test_the_bench_lists_every_system_with_its_label(capsys):
    lines = printed(capsys, "bench", "--list")
    assert [line.split()[0] for line in lines] == list(SYSTEMS)
    for line in lines:
        name = line.split()[0]
        assert ("lossy" in line) == (SYSTEMS[name].guarantee == "lossy"), line


@pytest.mark.slow
def test_the_bench_races_all_systems_in_one_go(capsys, embedded):
    lines, figures = told(
        capsys, "bench", *SMALL, "--shape", "paper", "--systems", "all", "--prompts", "1", "--tokens", "16"
    )  # shapes that no machine decides
    raced = [name for name in SYSTEMS if name != "mtp"]
    assert [row["name"] for row in figures["systems"]] == raced
    assert lines[0].startswith("mtp is left out. The pair 11M embedded pair has no MTP layers")
    assert all(
        row["identical"] is True for row in figures["systems"]
    )  # T = 0: even the lossy rules write the target's text
    assert all(name in "\n".join(lines[:-1]) for name in raced)
    assert all(row["decode_speedup"] > 0 and row["of_limit"] > 0 for row in figures["systems"])
    drafts = {row["name"]: row["draft_forwards"] for row in figures["systems"]}
    assert drafts["vanilla"] == drafts["lookup"] == 0 and drafts["parallel-tree"] <= 1 < drafts["tree"]


@pytest.mark.slow
def test_the_bench_puts_the_best_systems_beside_the_peers(capsys, embedded):
    lines, figures = told(capsys, "bench", *SMALL, "--peers", "--prompts", "1", "--tokens", "8")
    rows = figures["peers"]
    systems = [name for name in bench.BESIDE_PEERS if name != "mtp"]
    assert [row["name"] for row in rows[: len(systems)]] == systems and "eagle" in systems
    first, assisted, best, lookup = (row["name"] for row in rows[len(systems) :])
    assert (first, assisted, lookup) == ("generate()", "generate() assisted", "generate() lookup")
    assert best in [f"generate() assisted, {count} tokens" for count in GUESSES]
    assert all(row.keys() >= {"tokens_per_s", "vs_baseline", "tau"} for row in rows)
    assert all(row["identical"] is True for row in rows)
    assert all(any(line.startswith(row["name"]) for line in lines) for row in rows)


def test_a_policy_that_ignores_its_width_is_told_so(capsys, monkeypatch, embedded):
    limited = FullKaryTree.__init__
    monkeypatch.setattr(FullKaryTree, "__init__", lambda policy, depth, width, *how: limited(policy, depth, 3, *how))
    system = "bigram/kary/token_match"
    arguments = "--systems", f"{system},tree", "--prompts", "1", "--tokens", "8"
    lines, _ = told(capsys, "bench", *SMALL, *arguments, "--depth", "2", "--width", "2")
    said = f"{system}: its policy kary ignores its width: it put 3 guesses behind one node, where 2 may stand."
    assert [line for line in lines if "ignores" in line] == [said]


def test_several_texts_stand_side_by_side(capsys, embedded):
    arguments = "--domains", "stories,retrieval", "--systems", "lookup,chain", "--prompts", "1", "--tokens", "8"
    lines, figures = told(capsys, "bench", *SMALL, *arguments)
    found = figures["domains"]
    assert list(found) == ["stories", "retrieval"] and all(each["domain"] == name for name, each in found.items())
    head, lookup, chain = lines[-4:-1]
    assert (
        "stories tau" in head and "retrieval draft" in head and "same tokens" in lookup and "same distribution" in chain
    )
    for number, name in enumerate(found):
        row = found[name]["systems"][0]
        assert lookup.split()[3 + 3 * number] == f"{row['tau']:.2f}"
    with pytest.raises(SystemExit):
        run("bench", "--domains", "stories,poems")
    assert "Unknown domain 'poems'" in capsys.readouterr().err


def test_a_file_of_prompts_takes_the_place_of_the_held_out_ones(capsys, embedded, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("Story: A fox\n\nStory: A hen\n\nStory: An owl")
    lines, figures = told(capsys, "bench", *SMALL, "--systems", "lookup", "--prompts", str(file), "--tokens", "6")
    assert (figures["domain"], figures["prompts"]) == ("mine.txt", 3) and any(
        line.startswith("mine.txt: ") for line in lines
    )


def test_requests_to_a_chat_model_are_for_a_target_with_a_template(capsys, embedded):
    for command in (("bench", "--prompts", "3"), ("pays",)):
        with pytest.raises(SystemExit):
            run(*command, *SMALL, "--domains", "chat")
        said = f"--domains chat is for a target with a chat template, and {embedded.title} is sent plain prompts."
        assert said in capsys.readouterr().err


def test_of_several_races_of_a_prompt_the_one_of_the_median_time_counts(capsys, monkeypatch, embedded):
    kept, raced = bench.median_run_of, []
    assert kept([SimpleNamespace(seconds=seconds) for seconds in (5, 1, 3)], "seconds").seconds == 3

    def median_run_of(runs, by="trace.seconds"):
        raced.append((by, runs))
        return kept(runs, by)

    monkeypatch.setattr(bench, "median_run_of", median_run_of)
    arguments = ("--systems", "tree", "--prompts", "1", "--tokens", "6", "--repeats", "3")
    right = Race.result
    monkeypatch.setattr(Race, "result", lambda race: right(race) | {"disturbed": "It was."})
    lines, figures = told(capsys, "bench", *SMALL, *arguments)
    [row] = figures["systems"]
    assert len(row["runs"]) == 3
    assert f"speedup in 3 runs: tree {min(row['runs']):.2f} to {max(row['runs']):.2f}" in lines
    assert figures["disturbed"] == 3
    assert "The clocks of 3 of 3 races were disturbed twice; ratios vary." in lines
    by_trace = [[each.trace.system for each in runs] for by, runs in raced if by == "trace.seconds"]
    assert figures["repeats"] == 3 and by_trace == [["vanilla"] * 3, ["tree"] * 3]
    with pytest.raises(SystemExit):
        printed(capsys, "bench", "--repeats", "2")
    assert "odd number" in capsys.readouterr().err


TEXT = "Story: Once upon a time"


@pytest.mark.slow
def test_the_bench_puts_lanes_and_peers_in_one_table():
    pair = tiny_pair()
    figures = json.loads(
        json.dumps(
            bench.race_prompts_and_compute_figures(
                pair,
                [TEXT, "Story: A cat"],
                Settings(TEXT, ("vanilla", "tree"), max_new_tokens=6),
                PeerGenerateFunctions(),
            )
        )
    )
    rows = {row["name"]: row for row in figures["peers"]}
    *first, best, mtp, lookup = rows
    assert first == ["vanilla", "tree", peers.PLAIN, peers.ASSISTED] and (mtp, lookup) == (peers.MTP, peers.LOOKUP)
    assert best in [f"{peers.ASSISTED}, {count} tokens" for count in GUESSES]
    assert rows["vanilla"]["vs_baseline"] == 1 == rows[peers.PLAIN]["vs_generate"] == rows[peers.PLAIN]["tau"]
    assert rows["tree"]["vs_baseline"] == figures["systems"][1]["speedup"]
    assert rows["tree"]["tau"] == figures["systems"][1]["tau"]
    assert rows["vanilla"]["vs_generate"] == figures["baseline"]["vs_generate"]
    assert all(row["identical"] is True and row["tokens_per_s"] > 0 for row in rows.values())
    text = peers.format_peers(figures)
    assert all(name in text for name in rows)
    sampled = bench.race_prompts_and_compute_figures(
        pair, [TEXT], Settings(TEXT, ("tree",), temperature=0.7, max_new_tokens=3), PeerGenerateFunctions()
    )
    assert [row["identical"] for row in sampled["peers"]] == [True, True, None, None, None, None, None]


def trace(system: str, rounds: list[tuple[int, dict[str, float]]]) -> Trace:
    """A trace of rounds, each a burst's length and seconds by phase."""
    made = Trace(system, "pair", "machine", "fp32", "text", [1], 0.0, 0, 1, 1, 2, 99)
    for index, (burst, seconds) in enumerate(rounds):
        made.steps.append(
            Step(
                index=index, position=0, tokens=[1], parents=[-1], texts=["a"], score=[1.0], q=[1.0], p=[1.0], verdicts=["root"],
                path=[], bonus=1, bonus_text="a", bonus_p=1.0, burst=[1] * burst, pieces=["a"] * burst, end="", seconds=seconds,
                draft_forwards=0,
            )
        )  # fmt: skip
    return made


def test_the_limit_by_hand():
    """Baseline: 10 s a verification, 11 s a round. System: tau 3, verifications of 12 s on average, drafts of 8, rounds of 22."""
    base = trace(
        "vanilla",
        [
            (1, {"prefill": 100.0, "verify": 9.0, "accept": 0.5, "commit": 0.5}),
            (1, {"verify": 11.0, "accept": 0.5, "commit": 0.5}),
        ],
    )
    mine = trace(
        "tree",
        [
            (4, {"prefill": 300.0, "draft": 6.0, "verify": 11.0, "accept": 1.0, "commit": 1.0}),
            (2, {"draft": 10.0, "verify": 13.0, "accept": 1.0, "commit": 1.0}),
        ],
    )
    assert base.decode_seconds_per_token == pytest.approx(11)
    assert mine.decode_seconds_per_token == pytest.approx(44 / 6)
    assert mine.seconds_per_token == pytest.approx(344 / 6)
    assert bench.speedup_limit_from_forward_times(base, mine) == pytest.approx(3 / (12 / 10 + 8 / 10))
    assert bench.share_of_speedup_limit(base, mine) == pytest.approx((11 / (44 / 6)) / 1.5)
    assert bench.share_of_speedup_limit(base, mine) == pytest.approx(1.0)  # both lose a tenth outside their forwards
    slower = trace("tree", [(3, {"draft": 8.0, "verify": 12.0, "accept": 20.0})])
    assert bench.share_of_speedup_limit(base, slower) == pytest.approx(0.55)
