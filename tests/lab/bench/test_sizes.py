"""Floor: a row for each model, storage, number of threads and context, with the machine's own reading time beside it."""

import pytest

from engine.lab.bench import sizes
from helpers.commands import run, told


@pytest.fixture(autouse=True)
def small_models(monkeypatch):
    monkeypatch.setattr(sizes, "SIZES", {"small": (64, 1, 1, 64), "large": (128, 2, 2, 128)})
    monkeypatch.setattr(sizes, "APART", 2**20)


def test_every_model_is_measured_with_every_storage_thread_and_context(capsys):
    rows = list(
        sizes.measure_forward_ms_and_bandwidth_share(
            ["small", "large"], ["fp16", "fp32", "int8"], [3, 20], [1, 2], repeats=1
        )
    )
    assert len(rows) == 24
    keys = [(row["model"], row["stored"], row["threads"], row["context"]) for row in rows]
    assert keys[:4] == [("small", "fp16", threads, context) for threads in (1, 2) for context in (3, 20)]
    for row in rows:
        assert tuple(row["ms"]) == sizes.NODES and row["share"] == row["reading_ms"] / row["ms"][1] > 0
    assert rows[4]["mib"] == 2 * rows[0]["mib"] and rows[12]["mib"] > rows[0]["mib"] > rows[8]["mib"]
    assert len(sizes.format_forward_row(rows[0])) == len(sizes.HEAD)


def test_more_bytes_take_longer_to_read():
    few, many = (sizes.measure_memory_read_ms(mib * 2**20, 1, repeats=5) for mib in (1, 32))
    assert many > 4 * few > 0


def test_no_cache_holds_what_is_read(monkeypatch):
    read = []
    monkeypatch.setattr(sizes, "sum_array_compiled", lambda part: read.append(part.nbytes))
    assert sizes.measure_memory_read_ms(2**18, 2, repeats=1) > 0
    assert sum(read) == 2 * sizes.APART  # the first time is not counted


def test_the_command_prints_a_table_and_json(capsys, monkeypatch):
    monkeypatch.setattr(sizes, "SIZES", {"11M": (64, 1, 1, 64)})
    lines, figures = told(
        capsys,
        "bench --by size",
        "--sizes",
        "11M",
        "--stored",
        "fp16",
        "--contexts",
        "4",
        "--threads",
        "1",
        "--repeats",
        "1",
    )
    assert lines[0] == sizes.HEAD and len(figures["rows"]) == len(figures["prompts"]) == 1
    assert figures["prompts"][0]["ms"] > 0 and figures["prompts"][0]["transformers_ms"] > 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--repeats", "0"), "--repeats: must be at least 1, got 0"),
        (("--contexts", "901"), "--contexts must be between 1 and 900, got [901]"),
        (("--threads", "0"), "--threads: must be at least 1, got 0"),
    ],
)
def test_floor_refuses_in_a_sentence(capsys, arguments, sentence):
    with pytest.raises(SystemExit):
        run("bench --by size", *arguments)
    assert sentence in capsys.readouterr().err
