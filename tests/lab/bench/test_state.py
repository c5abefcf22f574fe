"""`bench --by state`: its figures are those of the rounds that it times, on tiny random checkpoints."""

import pytest

from engine.lab.bench import state
from helpers.checkpoints import write
from helpers.commands import run, told
from helpers.families import STATES, state_folder

SHAPES = [("plain", 1)] + [(shape, nodes) for nodes in (4, 8) for shape in ("chain", "tree")]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(state, "NODES", (4, 8))
    monkeypatch.setattr(state, "CONTEXT", 16)


@pytest.mark.parametrize("name", ["mamba2", "lfm2"])
def test_trees_stand_beside_chains_of_as_many_nodes(name, tiny, capsys, tmp_path):
    lines, figures = told(capsys, "bench --by state", "--target", str(state_folder(name, tmp_path)), "--repeats", "1")
    [model] = figures["models"]
    rows = {(row["shape"], row["nodes"]): row for row in model["rows"]}
    assert list(rows) == SHAPES and len(lines) == 2 + len(SHAPES)
    assert [row["leaves"] for row in rows.values()] == [1, 1, 2, 1, 4]
    held = [rows["tree", nodes]["state_bytes"] for nodes in (4, 8)]
    assert held == [rows["chain", nodes]["state_bytes"] for nodes in (4, 8)]
    assert held[0] < held[1] < 2 * held[0]  # the inputs that convolutions keep of the text count once
    for row in rows.values():
        assert row["vs_plain"] == row["verify_ms"] / rows["plain", 1]["verify_ms"]
        chain = rows.get(("chain", row["nodes"]))
        assert row["vs_chain"] == (row["verify_ms"] / chain["verify_ms"] if chain else None)


def test_random_models_have_a_kind_of_layer_each(tiny, capsys, monkeypatch):
    sizes = {name: (kind.config_class, more) for name, (_, kind, more) in STATES.items()}
    monkeypatch.setattr(state, "RANDOM", sizes)
    lines, figures = told(capsys, "bench --by state", "--families", "qwen3_5", "falcon_h1", "--repeats", "1")
    assert [model["model"] for model in figures["models"]] == ["qwen3_5_text", "falcon_h1"]
    assert len(lines) == 2 * (2 + len(SHAPES))


def test_what_cannot_be_measured_is_refused(capsys, tmp_path):
    write(tmp_path, max_position_embeddings=160)
    for arguments, sentence in (
        (("--repeats", "0"), "--repeats: must be at least 1, got 0"),
        (("--target", tmp_path), "A llama model keeps no state, so its trees cost what --by tree tells."),
    ):
        with pytest.raises(SystemExit):
            run("bench --by state", *arguments)
        assert sentence in capsys.readouterr().err
