"""The table of planted mistakes: every place still exists, once, and every test that must fail is there."""

import ast
import shlex
import subprocess
import sys
from functools import cache

import pytest

from helpers.paths import ROOT
from mutations.mutation import Mutation
from mutations.table import MUTATIONS

COMMAND = [sys.executable, "-m", "tests.mutations"]


@cache
def functions(file: str) -> set[str]:
    return {each.name for each in ast.parse((ROOT / file).read_text("utf-8")).body if isinstance(each, ast.FunctionDef)}


@cache
def right(file: str) -> tuple[str, str]:
    """A file's source, and the same as its syntax tree is written."""
    source = (ROOT / file).read_text(encoding="utf-8")
    return source, ast.unparse(ast.parse(source))


def planted(old: str, new: str, source: str, function: str = "") -> str:
    return Mutation("a name", "a file", function, old, new, "a test").planted(source)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_a_planted_mistake_still_has_its_place(mutation):
    """The new source is another one and still compiles."""
    source, written = right(mutation.file)
    wrong = mutation.planted(source)
    assert wrong != written and mutation.costs in ("text", "speed", "figures", "others")
    compile(wrong, mutation.file, "exec")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_the_tests_that_must_fail_are_there(mutation):
    """Every one is named by its file and its function; words behind -k choose among a function's own cases."""
    named, _, _ = mutation.test.partition(" -k ")
    for each in shlex.split(named):
        file, _, function = each.partition("::")
        assert function.startswith("test_") and function in functions(file), each


def test_no_two_mistakes_share_a_name():
    assert len({each.name for each in MUTATIONS}) == len(MUTATIONS) >= 30


def test_a_place_is_found_however_it_is_written():
    """An operator keeps its rank: a sum that takes the place of a factor stays in brackets."""
    source = "class Tree:\n    def rows(self):\n        return (  # a comment\n            2 * (count)\n        )\n"
    assert planted("count", "count + 1", source, "Tree.rows") == (
        "class Tree:\n\n    def rows(self):\n        return 2 * (count + 1)"
    )
    assert planted("a = 1; b = 2", "b = 2", "if there:\n    a  =  1\n    b = 2\n") == "if there:\n    b = 2"
    assert planted("keep('rows')", "pass", 'keep("rows")\n') == "pass"


@pytest.mark.parametrize(
    ("function", "old", "reason"),
    [
        ("", "1", "'1' 2 times, not once"),
        ("one", "2", "one has '2' 0 times, not once"),
        ("three", "1", "defines three 0 times, not once"),
        ("one.two", "1", "defines one.two 0 times, not once"),
    ],
)
def test_a_place_that_is_not_there_once_is_refused(function, old, reason):
    with pytest.raises(ValueError, match=reason):
        planted(old, "0", "def one():\n    return 1\n\ndef two():\n    return (2, 1)\n", function)


def test_the_command_lists_them_and_refuses_a_name_that_none_has():
    listed = subprocess.run([*COMMAND, "--list"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert len(listed.stdout.splitlines()) == len(MUTATIONS)
    refused = subprocess.run([*COMMAND, "--only", "unicorn"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2 and "No mistake's file or name has 'unicorn' in it" in refused.stderr


@pytest.mark.slow
def test_a_mistake_is_planted_in_a_copy_and_caught_there(tmp_path):
    command = [*COMMAND, "--only", "the best run is the headline", "--keep", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "1 of 1 mistakes are caught.", done.stdout
    assert "1 of 1 in" in done.stderr
    [mutation] = [each for each in MUTATIONS if each.name == "the best run is the headline"]
    _, written = right(mutation.file)
    assert (tmp_path / mutation.file).read_text("utf-8") == written
