"""A table of servers that a visitor opens: what is shown of it, and what is refused with the line that is wrong."""

import json

import pytest

from engine.page.screens import answers
from engine.page.screens.pays_servers import LARGEST_FILE, MOST_ROWS
from helpers.remote.rows import served_point, served_row

SLOW = {
    "batch": 4,
    "speedup": 0.8,
    "interval": [0.7, 0.9],
    "answer": "no",
    "tau": None,
    "acceptance": None,
    "waves": 3,
    "gaining": 0,
}


def table(*rows: object) -> str:
    return "\n".join(map(json.dumps, rows)) + "\n"


def opened(*rows: object) -> dict:
    return answers.read_pays(["mine.jsonl", table(*rows)])


def test_a_table_becomes_rows_whose_words_follow_from_their_figures():
    lie = served_row(verdict="yes: buy it", points=[served_point(), served_point(**SLOW)])
    [row] = opened(lie)["servers"]
    assert row["verdict"].startswith("only at 1 stream: elsewhere this server's guesses do not surely pay.")
    assert (row["machine"], row["server"], row["against"]) == ("M2", *["llama-server b9001-abc model.gguf"] * 2)
    assert row["flags"] == "total_slots 4, speculative true"
    assert row["how"] == "T = 0, 12 prompts, up to 128 tokens, as chat messages"
    assert any("3 waves are few" in each for each in row["cautions"])
    assert [point["answer"] for point in row["points"]] == ["yes", "no"] and row["points"][1]["tau"] is None
    plain = served_row(plain=served_row()["plain"] | {"same_server": True})
    assert opened(plain)["servers"][0]["against"] == "itself without guesses"


def test_prompts_are_still_prompts_and_a_broken_table_is_no_prompt():
    assert answers.read_pays(["a.jsonl", '"Once"\n{"prompt": "x", "row": 1}']) == {"prompts": ["Once", "x"]}
    assert answers.read_pays(["a.jsonl", '{"prompt": "x", "row": 1}']) == {"prompts": ["x"]}
    assert 'no "prompt"' in answers.read_prompts(["a.jsonl", table(served_row())])["refused"]
    mixed = answers.read_pays(["mine.jsonl", "\ufeff\n" + table(served_row()) + '"Once"'])
    assert mixed["refused"].startswith("Line 3 of mine.jsonl is no row of `pays --server`. Allowed: a table of")


def test_long_names_are_cut_and_a_name_of_a_file_is_a_few_words():
    [row] = opened(served_row(machine="x" * 9000, model="y " * 4000))["servers"]
    assert len(row["machine"]) == len(row["server"]) == 160 and all(len(each) <= 320 for each in row["cautions"])
    said = answers.read_pays(["n" * 500, table(served_row(row=2))])["refused"]
    assert said.startswith(f"Line 1 of {'n' * 39}… is a row of version 2, and 1 is read here.")


def without(name: str) -> dict:
    row = served_row()
    del row[name]
    return row


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (without("points"), "Line 1 of mine.jsonl is no ServedRow: missing 'points', unknown nothing."),
        (served_row(more=1), "is no ServedRow: missing nothing, unknown 'more'."),
        (served_row(machine=3), "machine must be a text, got 3."),
        (served_row(machine="\ud800"), "machine holds half a character"),
        (served_row(flags={"deep": [1]}), "flags['deep'] must be a short text, a number, true or false, got a list."),
        (served_row(flags={"long": "x" * 20_001}), "flags['long'] must be a short text"),
        (served_row(flags=dict.fromkeys(map(str, range(101)), 1)), "has 101 flags; at most 100 are read."),
        (served_row(plain=None), "plain must be an object, got null."),
        (served_row(points=[]), "points must hold 1 to 64 numbers of streams, got 0."),
        (served_row(points=[served_point()] * 65), "numbers of streams, got 65."),
        (served_row(row=True), "row must be a whole number, got true or false."),
        (served_row(prompts=0), "prompts must be 1 or more, got 0."),
    ],
)
def test_a_wrong_row_is_refused_with_the_field(row, sentence):
    assert sentence in opened(row)["refused"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"speedup": "2"}, "points[0].speedup must be a number, got '2'."),
        ({"speedup": 0}, "points[0].speedup must be above 0 and at most 1e+09, got 0."),
        ({"tokens_per_s": 1e300}, "points[0].tokens_per_s must be above 0 and at most 1e+09, got 1e+300."),
        ({"interval": [1.0]}, "points[0].interval must have two ends, got 1."),
        ({"interval": [2.2, 1.8]}, "points[0].interval must rise from above 0, got 2.2 to 1.8."),
        ({"answer": "maybe"}, "points[0].answer must be one of 'yes', 'no', 'only', got 'maybe'."),
        ({"interval": [0.9, 2.2]}, "answer must be only, which the speedup 2 and its interval say; got yes."),
        ({"gaining": 13}, "points[0].gaining has 13 of 12 waves."),
        ({"identical": 13}, "points[0].identical has 13 of 12 texts."),
        ({"tau": -1.0}, "points[0].tau holds a negative number, -1.0."),
        ({"batch": 2**60}, "points[0].batch is too large a number"),
    ],
)
def test_figures_that_cannot_be_are_refused(changes, sentence):
    assert sentence in opened(served_row(points=[served_point(**changes)]))["refused"]


def test_what_is_not_a_number_is_no_json():
    text = table(served_row()).replace('"speedup": 2.0', '"speedup": NaN')
    assert "NaN is no number" in answers.read_pays(["t.jsonl", text])["refused"]


def test_a_large_file_is_refused_before_it_is_read():
    wide = table(served_row(machine="é" * (LARGEST_FILE // 2)))
    for text in (table(served_row()) * (LARGEST_FILE // 400), wide.replace("\\u00e9", "é")):
        said = answers.read_pays(["big.jsonl", text])["refused"]
        assert said.startswith("big.jsonl has ") and "at most 1,000,000 are read. Allowed:" in said
    many = opened(*[served_row()] * (MOST_ROWS + 1))["refused"]
    assert many.startswith("mine.jsonl has 101 rows; at most 100 are shown.")


@pytest.mark.parametrize(
    "file", [None, ["a.jsonl"], [3, table(served_row())], ["a.jsonl", 3], ["a.jsonl", "[" * 100_000]]
)
def test_whatever_is_sent_is_answered_with_a_sentence(file):
    assert answers.read_pays(file)["refused"].endswith(".")
