"""The commands: each is found under its one name, in the list, in its own help and wherever the repository mentions it."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from engine.__main__ import COMMANDS, main
from helpers.paths import ROOT

WRITTEN = {".py", ".md", ".txt", ".json", ".jsonl", ".js", ".html", ".css", ".yml", ".yaml", ".toml", ".ini", ""}
ROOMS = ("engine", "tests", "assets", ".ci", ".github")  # what a clone holds beside them stands at the top


def texts() -> dict[Path, str]:
    """Every text file of the repository by its path; no environment, no cache, no model."""
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*")] + list(ROOT.iterdir())
    return {
        path.relative_to(ROOT): path.read_text(encoding="utf-8", errors="replace")
        for path in files
        if path.is_file() and path.suffix in WRITTEN and path.name != "tokenizer.json"
    }


def test_the_list_has_every_command_and_needs_no_torch():
    code = "import sys, engine.__main__ as commands; commands.main([]); sys.exit('torch' in sys.modules)"
    listed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert listed.returncode == 0, listed.stderr
    lines = [line.strip() for line in listed.stdout.splitlines() if line.startswith("  ")]
    assert lines == [f"{name:<11}{command.about}" for name, command in COMMANDS.items()]


@pytest.mark.parametrize("asked", [[], ["-h"], ["--help"]])
def test_the_module_lists_them_however_it_is_asked(asked):
    listed = subprocess.run(
        [sys.executable, "-m", "engine", *asked], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert listed.returncode == 0 and listed.stdout.startswith("usage: python -m engine <command>")
    assert all(f"\n  {name} " in listed.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_tells_its_options_under_its_name(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m engine {name} ")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_refuses_an_unknown_option_in_its_own_name(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--perpetual"])
    assert ended.value.code == 2
    assert f"python -m engine {name}" in capsys.readouterr().err


def test_an_unknown_command_is_named_beside_those_there_are(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["perpetual", "--help"])
    told = capsys.readouterr()
    assert ended.value.code == 2 and told.out == ""
    assert told.err == f"Unknown command 'perpetual'. Available: {', '.join(COMMANDS)}.\n"


def test_no_command_has_a_second_way_in():
    for command in COMMANDS.values():
        source = Path(import_module(command.module).__file__).read_text(encoding="utf-8")
        assert "sys.argv" not in source and "__main__" not in source, command.module


def test_every_command_that_is_mentioned_exists_and_has_this_spelling():
    second = re.compile(r"""-m["', ]+engine[.\\]""")
    mentioned = re.compile(r"""-m["', ]+engine["', ]+([\w-]+)""")
    found: dict[str, list[Path]] = {}
    for path, text in texts().items():
        assert not second.search(text), path
        for name in mentioned.findall(text):
            found.setdefault(name, []).append(path)
    assert found.keys() <= COMMANDS.keys(), {name: found[name] for name in found.keys() - COMMANDS.keys()}
    assert len(found["bench"]) > 3  # the search finds what is there
