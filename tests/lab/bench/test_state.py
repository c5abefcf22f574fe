"""`bench --by state`: its figures are those of the rounds that it times, on tiny random checkpoints."""

import pytest

from engine.lab.bench import state
from helpers.checkpoints import write
from helpers.commands import run, told
from helpers.families import STATES, state_folder

WAYS = [("nodes", "plain", 1)] + [
    (way, shape, nodes) for nodes in (4, 8) for shape in ("chain", "tree") for way in ("nodes", "paths")
]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(state, "NODES", (4, 8))
    monkeypatch.setattr(state, "CONTEXT", 16)


@pytest.mark.parametrize("name", ["mamba2", "lfm2"])
def test_rows_and_replays_are_those_of_each_way(name, tiny, capsys, tmp_path):
    lines, figures = told(capsys, "bench --by state", "--target", str(state_folder(name, tmp_path)), "--repeats", "1")
    [model] = figures["models"]
    rows = {(row["way"], row["shape"], row["nodes"]): row for row in model["rows"]}
    assert list(rows) == WAYS and len(lines) == 2 + len(WAYS)
    assert [rows[way]["rows"] for way in WAYS] == [1, 4, 4, 4, 6, 8, 8, 8, 16]
    assert [rows[way]["leaves"] for way in WAYS] == [1, 1, 1, 2, 2, 1, 1, 4, 4]
    kept = {("paths", "chain", 4): 2, ("paths", "tree", 4): 2, ("paths", "chain", 8): 4, ("paths", "tree", 8): 2}
    assert {way: row["replayed"] for way, row in rows.items() if row["replayed"]} == (kept if name == "mamba2" else {})
    by_nodes = [rows["nodes", "tree", nodes]["state_bytes"] for nodes in (4, 8)]
    assert by_nodes == [rows["nodes", "chain", nodes]["state_bytes"] for nodes in (4, 8)]
    assert by_nodes[0] < by_nodes[1] < 2 * by_nodes[0]  # the inputs that convolutions keep of the text count once
    for row in rows.values():
        assert row["vs_plain"] == row["round_ms"] / rows["nodes", "plain", 1]["round_ms"]
        chain = rows.get((row["way"], "chain", row["nodes"]))
        assert row["vs_chain"] == (row["round_ms"] / chain["round_ms"] if chain else None)


def test_random_models_have_a_kind_of_layer_each(tiny, capsys, monkeypatch):
    sizes = {name: (kind.config_class, more) for name, (_, kind, more) in STATES.items()}
    monkeypatch.setattr(state, "RANDOM", sizes)
    lines, figures = told(capsys, "bench --by state", "--families", "qwen3_5", "falcon_h1", "--repeats", "1")
    assert [model["model"] for model in figures["models"]] == ["qwen3_5_text", "falcon_h1"]
    assert len(lines) == 2 * (2 + len(WAYS))


def test_what_cannot_be_measured_is_refused(capsys, tmp_path):
    write(tmp_path, max_position_embeddings=160)
    for arguments, sentence in (
        (("--repeats", "0"), "--repeats must be at least 1, got 0"),
        (("--target", tmp_path), "A llama model keeps no state, so its trees cost what --by tree tells."),
    ):
        with pytest.raises(SystemExit):
            run("bench --by state", *arguments)
        assert sentence in capsys.readouterr().err
