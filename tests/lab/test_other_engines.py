"""Other engines as peers, on stand-ins that answer as the packages do: what they are asked, and what the table says of them."""

import importlib
import importlib.util
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from engine.lab.bench import command as bench
from engine.measure import other_engines, peers
from engine.measure.other_engines import (
    GUESSES,
    LLAMA_CPP,
    OPENVINO,
    PeerGenerateFunctions,
    export_and_load_peer_engines,
)
from engine.race import Settings
from helpers.commands import SMALL, told
from helpers.paths import ROOT
from helpers.remote.engines import Engine, running

PROMPT = "Story: Once upon a time"
MODULES = ("llama_cpp", "llama_cpp.llama_speculative", "openvino", "openvino_genai")
GROUPS = [f"{LLAMA_CPP} F16 lookup", f"{OPENVINO} F16 draft model", f"{OPENVINO} F16 lookup"]


@pytest.fixture
def stand_ins(monkeypatch):
    """The two packages' stand-ins, which write what `write` is told."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "helpers" / "stand_in_engines"))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    llama, openvino = importlib.import_module("llama_cpp"), importlib.import_module("openvino_genai")

    def write(tokens: list[int]) -> None:
        llama.WRITES[:], openvino.WRITES[:] = tokens, tokens

    yield SimpleNamespace(llama=llama, openvino=openvino, write=write)
    for name in MODULES:
        sys.modules.pop(name, None)


def test_every_way_writes_what_its_engine_writes_with_the_guesses_of_its_setting(embedded, stand_ins):
    stand_ins.write([11, 12, 13, 14, 15])
    with export_and_load_peer_engines(embedded, []) as found:
        plain = [f"{engine} {kind}" for engine in (LLAMA_CPP, OPENVINO) for kind in ("F16", "Q8_0")]
        settings = [f"{group}, {count} tokens" for group in GROUPS for count in GUESSES]
        assert (
            sorted(found.function_by_name) == sorted([*plain, *settings])
            and list(found.variant_names_by_group) == GROUPS
        )
        for way in found.function_by_name.values():
            for _ in range(2):
                assert way(embedded, [1, 2, 3], 4, 0.0) == [11, 12, 13, 14]
            assert way(replace(embedded, stop_ids=frozenset({13})), [1, 2, 3], 4, 0.8) == [11, 12, 13]
            assert way(replace(embedded, context=5), [1, 2, 3], 4, 0.0) == [11, 12]
    calls = 4
    assert [
        *(("target.F16.gguf", 0),) * calls,
        *(("target.Q8_0.gguf", 0),) * calls,
        *(("target.F16.gguf", count) for count in GUESSES for _ in range(calls)),
    ] == stand_ins.llama.ASKED
    asked = [("target.F16", count) for count in GUESSES for _ in range(calls)]
    assert [*(("target.F16", 0),) * calls, *(("target.Q8_0", 0),) * calls, *asked, *asked] == stand_ins.openvino.ASKED
    assert not found.function_by_name and found.notes == [
        "llama.cpp drafts with copies alone: its package offers no draft model."
    ]


def test_the_pair_says_which_weights_guess(embedded):
    assert other_engines.gguf_kind_of(embedded) == "F16"
    assert other_engines.gguf_kind_of(replace(embedded, dtype="8-bit")) == "Q8_0"


def test_what_is_not_installed_is_named_with_what_adds_it(embedded, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with export_and_load_peer_engines(embedded, []) as found:
        assert not found.function_by_name and found.notes == [  # in this order every time
            "llama.cpp is left out: `pip install llama-cpp-python` adds it.",
            "OpenVINO GenAI is left out: `pip install openvino-genai` adds it.",
        ]


def test_a_pair_that_they_cannot_hold_is_a_sentence(embedded, stand_ins, monkeypatch):
    monkeypatch.setattr(other_engines, "free_bytes", lambda device: 2**25)
    with export_and_load_peer_engines(embedded, []) as found:
        assert not found.function_by_name and found.notes == [
            "llama.cpp and OpenVINO GenAI cannot be compared. Their copies of the weights would take 0.1 GiB, and 0.0 GiB are free. "
            "Choose a smaller pair."
        ]


def test_beside_a_gpu_they_are_left_out(embedded, stand_ins):
    target = SimpleNamespace(device=torch.device("cuda", 0))
    with export_and_load_peer_engines(replace(embedded, target=target, hardware="a GPU"), []) as found:
        assert not found.function_by_name and found.notes == [
            "llama.cpp and OpenVINO GenAI would run on the CPU and are left out beside a GPU."
        ]


@pytest.mark.slow
def test_the_table_has_their_rows_and_says_where_their_texts_part(embedded, stand_ins):
    ids = embedded.tokenizer(PROMPT)["input_ids"]
    right = peers.generate_with_transformers(embedded, ids, 6, 0.0)
    for written, same in ((right, True), ([*right[:3], right[3] + 1, 5, 5], False)):
        stand_ins.write(written)
        with export_and_load_peer_engines(embedded, []) as others:
            figures = bench.race_prompts_and_compute_figures(
                embedded, [PROMPT], Settings(PROMPT, ("tree",), max_new_tokens=6), others
            )
        rows = {row["name"]: row for row in figures["peers"]}
        best = [[name for name in rows if name.startswith(f"{group}, ")] for group in GROUPS]
        assert [*map(len, best)] == [1, 1, 1]
        names = [f"{OPENVINO} Q8_0", f"{LLAMA_CPP} F16", *(name for [name] in best)]
        for name in names:
            assert (rows[name]["identical"], rows[name]["tau"]) == (same, None)
            assert rows[name]["tokens_per_s"] > 0
        table = peers.format_peers(figures)
        said = f"{LLAMA_CPP} F16 writes another text for 1 of 1 prompts, from token 4 on at the earliest."
        assert (said in table) != same and all(name in table for name in names)


@pytest.mark.slow
def test_pays_has_a_row_for_each_of_them_in_its_best_setting(capsys, tmp_path, embedded, stand_ins):
    texts = [PROMPT, f"{PROMPT} there", "Story: A cat"]
    file = tmp_path / "my.txt"
    file.write_text("\n\n".join(texts), encoding="utf-8")
    stand_ins.write([11, 12, 13, 14, 15, 16])
    asked = ("--prompts", file, "--systems", "tree:2x2x4", "--tokens", "6", "--device", "cpu", "--peers")
    with running(Engine("llama-server", says=" a fox")) as server:
        lines, figures = told(capsys, "pays", *SMALL, *asked, "--peer-server", server.address)
        prompts = [body["prompt"] for _, body in server.requests]
    rows = {row["name"]: row for row in figures["peers"]}
    plain = [f"{engine} {kind}" for engine in (LLAMA_CPP, OPENVINO) for kind in ("F16", "Q8_0")]
    at = "llama-server at " + server.address.removeprefix("http://").removesuffix("/v1")
    best = [[name for name in rows if name.startswith(f"{group}, ")] for group in GROUPS]
    assert [*map(len, best)] == [1, 1, 1] and {at, *plain, peers.ASSISTED, peers.LOOKUP} < set(rows)
    printed = "\n".join(lines)
    for name, row in rows.items():
        assert row["interval"][0] <= row["speedup"] <= row["interval"][1] and f"\n{name} " in printed
        assert row["identical"] is name.startswith("generate() ")
    assert rows[at]["tau"] == pytest.approx(3.0) and rows[plain[0]]["tau"] is None
    fastest = max(rows.values(), key=lambda row: row["speedup"])
    assert f"Against {fastest['name']}, the fastest peer, it is {fastest['best_vs']:.2f} times as fast" in lines[2]
    assert prompts[1:] == [embedded.tokenizer(text)["input_ids"] for text in texts]  # behind a first call
    assert f"{at} writes another text for 3 of 3 prompts, from character " in printed


def test_pays_names_what_is_not_installed(capsys, tmp_path, embedded, monkeypatch):
    absent = {name: (f"no_{module}", package) for name, (module, package) in other_engines.PACKAGES.items()}
    monkeypatch.setattr(other_engines, "PACKAGES", absent)
    monkeypatch.setattr(
        peers,
        "list_generate_functions_and_omissions",
        lambda pair: PeerGenerateFunctions({peers.PLAIN: peers.generate_with_transformers}),
    )
    file = tmp_path / "my.txt"
    file.write_text("\n\n".join([PROMPT] * 3), encoding="utf-8")
    asked = ("--prompts", file, "--systems", "tree:2x2x4", "--tokens", "4", "--device", "cpu", "--peers")
    lines, figures = told(capsys, "pays", *SMALL, *asked)
    assert "llama.cpp is left out: `pip install llama-cpp-python` adds it." in lines and "peers" not in figures
    assert "OpenVINO GenAI is left out: `pip install openvino-genai` adds it." in figures["others"]


def test_llama_cpp_runs_the_file_that_the_target_came_from_as_it_is(embedded, stand_ins, tmp_path, monkeypatch):
    """Beside those that are written of its weights, or alone where none can be written."""
    stand_ins.write([11, 12])
    file = tmp_path / "model.Q4_1.gguf"
    file.write_bytes(b"GGUF")
    pair = replace(embedded, pair=replace(embedded.pair, target=str(file)))
    written = other_engines.export_gguf

    def refuse(pair, folder):
        raise ValueError("it has biases")

    for export, plain in ((lambda _, folder: written(embedded.pair, folder), ["F16", "Q8_0"]), (refuse, [])):
        monkeypatch.setattr(other_engines, "export_gguf", export)
        found = PeerGenerateFunctions()
        other_engines.export_and_add_llama_cpp(found, pair, tmp_path / f"files{len(plain)}")
        kinds = [name.removeprefix(f"{LLAMA_CPP} ") for name in found.function_by_name if "lookup" not in name]
        assert kinds == ["model.Q4_1", *plain] and list(found.variant_names_by_group) == [
            f"{LLAMA_CPP} model.Q4_1 lookup"
        ]
        for name, way in found.function_by_name.items():
            assert way(pair, [1, 2], 2, 0.0) == [11, 12]
            assert (stand_ins.llama.ASKED[-1][0] == file.name) == ("model.Q4_1" in name)
