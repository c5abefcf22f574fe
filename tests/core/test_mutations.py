"""The table of planted mistakes: every place still exists, once, and every test that must fail is there."""

import shlex
import subprocess
import sys

import pytest

from helpers.paths import ROOT
from mutations.table import MUTATIONS


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_a_planted_mistake_still_has_its_place(mutation):
    """The new text is another one and still compiles."""
    source = (ROOT / mutation.file).read_text(encoding="utf-8")
    assert source.count(mutation.old) == 1 and mutation.new not in (mutation.old, "  ")
    compile(source.replace(mutation.old, mutation.new), mutation.file, "exec")
    assert (ROOT / shlex.split(mutation.tests)[0]).is_file() and mutation.costs in (
        "text",
        "speed",
        "figures",
        "others",
    )


def test_no_two_mistakes_share_a_name():
    assert len({each.name for each in MUTATIONS}) == len(MUTATIONS) >= 30


def test_the_command_lists_them_and_refuses_a_name_that_none_has():
    command = [sys.executable, "-m", "tests.mutations"]
    listed = subprocess.run([*command, "--list"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert len(listed.stdout.splitlines()) == len(MUTATIONS)
    refused = subprocess.run([*command, "--only", "unicorn"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2 and "No mistake is called 'unicorn'" in refused.stderr
