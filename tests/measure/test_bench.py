"""The commands that measure: each runs on something small and prints what it promises; the figures themselves are not judged here."""

import json
from types import SimpleNamespace

import pytest

from engine.measure import bench, drift, overhead, study
from engine.systems import SYSTEMS
from engine.train import memory


def printed(capsys, main, *arguments: str) -> list[str]:
    main(list(arguments))
    return capsys.readouterr().out.splitlines()


def test_the_bench_lists_every_system_with_its_label(capsys):
    lines = printed(capsys, bench.main, "--list")
    assert [line.split()[0] for line in lines] == list(SYSTEMS)
    for line in lines:
        name = line.split()[0]
        assert ("lossy" in line) == (SYSTEMS[name].guarantee == "lossy"), line


def test_the_bench_races_all_systems_in_one_go(capsys, embedded):
    lines = printed(capsys, bench.main, "--systems", "all", "--prompts", "1", "--tokens", "16")
    figures = json.loads(lines[-1])
    assert [row["name"] for row in figures["systems"]] == list(SYSTEMS)
    assert all(
        row["identical"] is True for row in figures["systems"]
    )  # T = 0: even the lossy rules write the target's text
    assert all(name in "\n".join(lines[:-1]) for name in SYSTEMS)
    assert all(row["decode_speedup"] > 0 and row["of_limit"] > 0 for row in figures["systems"])
    drafts = {row["name"]: row["draft_forwards"] for row in figures["systems"]}
    assert drafts["vanilla"] == drafts["lookup"] == 0 and drafts["parallel-tree"] <= 1 < drafts["tree"]


def test_the_bench_puts_the_best_systems_beside_the_peers(capsys, embedded):
    lines = printed(capsys, bench.main, "--peers", "--prompts", "1", "--tokens", "8")
    rows = json.loads(lines[-1])["peers"]
    systems = [name for name in bench.BESIDE_PEERS if name in SYSTEMS]
    assert [row["name"] for row in rows[: len(systems)]] == systems and "eagle" in systems
    assert [row["name"] for row in rows[len(systems) :]] == [
        "generate()", "generate() assisted", "generate() assisted, best of 3", "generate() lookup",
    ]  # fmt: skip
    assert all(row.keys() >= {"tokens_per_s", "vs_baseline", "tau", "peak_mib"} for row in rows)
    assert all(row["identical"] is True for row in rows)
    assert all(any(line.startswith(row["name"]) for line in lines) for row in rows)


def test_of_several_races_of_a_prompt_the_one_of_the_median_time_counts(capsys, monkeypatch, embedded):
    kept, raced = bench.middle, []
    assert kept([SimpleNamespace(seconds=seconds) for seconds in (5, 1, 3)]).seconds == 3
    monkeypatch.setattr(bench, "middle", lambda traces: raced.append(traces) or kept(traces))
    arguments = ("--systems", "tree", "--prompts", "1", "--tokens", "6", "--repeats", "3")
    figures = json.loads(printed(capsys, bench.main, *arguments)[-1])
    assert figures["repeats"] == 3 and [[each.system for each in traces] for traces in raced] == [
        ["vanilla"] * 3,
        ["tree"] * 3,
    ]
    with pytest.raises(SystemExit):
        printed(capsys, bench.main, "--repeats", "2")
    assert "odd number" in capsys.readouterr().err


def test_the_overhead_is_told_by_part_and_leaves_no_clock_behind(capsys, embedded):
    lines = printed(capsys, overhead.main, "--systems", "tree", "--prompts", "1", "--tokens", "12")
    found = json.loads(lines[-1])["ms"]["tree"]
    assert all(found[part] > 0 for part in overhead.PARTS) and found["target forward"] > found["rule"]


def test_every_claim_of_the_study_runs(capsys, monkeypatch, embedded):
    monkeypatch.setattr(study, "BUDGETS", (4, 8))
    monkeypatch.setattr(study, "DEPTHS", (2,))
    arguments = ("--prompts", "1", "--tokens", "6", "--domains", "stories", "--temperatures", "0.6")
    lines = printed(capsys, study.main, *arguments)
    claims = json.loads(lines[-1])["claims"]
    assert claims.keys() == study.cases(list(SYSTEMS), [0.6]).keys() and len(claims) == 5
    for rows in claims.values():
        for row in rows["stories"]:
            assert 1 <= row["tau"] <= 6 and row["nodes_used"] <= row.get("nodes", 400)
    with pytest.raises(SystemExit):
        printed(capsys, study.main, "--claims", "perpetual motion")
    assert "Unknown claim 'perpetual motion'" in capsys.readouterr().err


def test_the_drift_compares_a_frozen_with_an_adapting_drafter(capsys, embedded):
    arguments = ("--stories", "1", "--code", "2", "--tokens", "40", "--window", "1")
    figures = json.loads(printed(capsys, drift.main, *arguments)[-1])
    assert figures["domains"].keys() == {"stories", "code"} and figures["choices"] >= 1
    assert all(each["tau frozen"] >= 1 and each["tau adapting"] >= 1 for each in figures["domains"].values())


def test_more_segments_hold_less_memory(capsys):
    arguments = ("--length", "64", "--segments", "1", "2", "4")
    figures = json.loads(printed(capsys, memory.main, *arguments)[-1])
    peaks = list(figures["mib"].values())
    assert peaks == sorted(peaks, reverse=True) and peaks[-1] < 0.8 * peaks[0]
