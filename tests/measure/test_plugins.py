"""Parts from outside this repository: an installed package's drafter and a file's race without a word about them in the engine."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from engine import plugins
from engine.drafters import DRAFTERS
from engine.plugins import register_part, register_part_of_python_file, register_parts_of_entry_points
from helpers.commands import run
from helpers.paths import ROOT

ECHO = """
import torch

from engine.contracts import Drafter


class Echo(Drafter):
    title, about, source = "echo of a letter", "Says the last token again.", "a test"

    def log_q(self, tree, nodes):
        rows = torch.full((len(nodes), self.vocab), -9.0)
        for row, node in zip(rows, nodes):
            row[tree.tokens[node]] = 0.0
        return rows.log_softmax(-1)
"""
MIX = "echo/best_first/token_match"
SHORT = ("--pair", "small", "--prompts", "1", "--domains", "stories", "--tokens", "8", "--systems", MIX, "--json")


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(DRAFTERS, "data", dict(DRAFTERS.data))


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "echo.py"
    path.write_text(ECHO, encoding="utf-8")
    return path


def test_a_file_brings_a_drafter_to_a_command(file, capsys):
    run("bench", *SHORT, "--part", file)
    [row] = json.loads(capsys.readouterr().out)["systems"]
    assert row["identical"] is True and row["tau"] >= 1


def test_an_installed_package_brings_a_drafter_to_every_command(tmp_path, capsys):
    """Without a word on the command line. The package is a wheel, installed by pip into a folder of its own."""
    wheel, info = tmp_path / "echo_part-1.0-py3-none-any.whl", "echo_part-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("echo_part.py", ECHO)
        packed.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: echo-part\nVersion: 1.0\n")
        packed.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{info}/entry_points.txt", "[treerace.parts]\necho = echo_part:Echo\n")
        packed.writestr(f"{info}/RECORD", "")
    folder = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", folder, wheel]
    subprocess.run(install, check=True, timeout=120)
    command = [sys.executable, "-m", "engine", "bench", *SHORT]
    here = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=ROOT, env=here, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["systems"]
    assert row["identical"] is True
    with pytest.raises(SystemExit):
        run("bench", *SHORT)
    assert "Unknown drafter 'echo'" in capsys.readouterr().err


def test_a_file_is_a_part_by_its_own_name(file):
    register_part_of_python_file(file)
    assert DRAFTERS["echo"].title == "echo of a letter"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("two.py", ECHO + ECHO.replace("class Echo", "class Other"), "it defines Echo, Other"),
        ("none.py", "x = 1", "it defines none"),
        ("broken.py", "import nothing_of_this_name", "cannot be run: ModuleNotFoundError: No module named"),
        ("model.py", ECHO, "is named 'model', as a drafter is already. Give it another name"),
        ("a b.py", ECHO, "is named 'a b'. A part's name has small letters"),
        ("mute.py", ECHO.replace('"a test"', '""'), "says no source: a part declares title, about, source"),
        ("echo.txt", ECHO, "is no Python file. Give --part a file whose name ends in .py"),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(tmp_path, name, text, said):
    (tmp_path / name).write_text(text, encoding="utf-8")
    before = list(DRAFTERS)
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        register_part_of_python_file(tmp_path / name)
    assert list(DRAFTERS) == before


def test_a_missing_file_and_a_wrong_entry_point_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no file .*nowhere\.py.*Give --part a Python file"):
        register_part_of_python_file(tmp_path / "nowhere.py")
    with pytest.raises(ValueError, match=r"The entry point 'x' of a package cannot be imported: ModuleNotFoundError"):
        register_parts_of_entry_points([EntryPoint("x", "nothing_of_this_name:X", "treerace.parts")])
    with pytest.raises(ValueError, match=r"is no Drafter, Policy or Acceptance of engine\.contracts, but 3\."):
        register_part("x", 3, "It")


def test_a_part_that_is_registered_twice_stays_what_it_is(file):
    """A command may be run twice in a process."""
    part = DRAFTERS["bigram"]
    register_part("bigram", part, "It")
    assert plugins.REGISTRIES[next(kind for kind in plugins.REGISTRIES if issubclass(part, kind))]["bigram"] is part
