"""The commands: each is found under its one name, in the list, in its own help and wherever the repository mentions it."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from engine import __main__ as commands
from engine.__main__ import ALL, BY, COMMANDS, GROUPS, Command, main
from engine.lab.bench import length
from engine.lab.pays import doctor
from engine.shell import names
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
    assert list(GROUPS) == ["race", "measure", "models", "media"]
    assert all(f"\n\n{group}\n" in listed.stdout for group in GROUPS)


@pytest.mark.parametrize("asked", [[], ["-h"], ["--help"]])
def test_the_module_lists_them_however_it_is_asked(asked):
    listed = subprocess.run(
        [sys.executable, "-m", "engine", *asked], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert listed.returncode == 0 and listed.stdout.startswith("usage: python -m engine <command>")
    assert all(f"\n  {name} " in listed.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", ALL)
def test_a_command_tells_its_options_under_its_name(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: python -m engine {name} ") and f"Example: python -m engine {name} " in said


@pytest.mark.parametrize("name", ALL)
def test_the_example_in_a_commands_help_can_be_parsed(name):
    assert commands.build_command_parser(name).parse_args(shlex.split(ALL[name].example))


def test_the_help_of_every_command_imports_nothing_slow():
    code = """
import sys
from engine.__main__ import ALL, main
for name in ALL:
    try:
        main([*name.split(), "--help"])
    except SystemExit:
        pass
sys.exit(" ".join({"torch", "numba", "numpy", "transformers", "accelerate", "gradio", "httpx", "PIL"} & sys.modules.keys()) or 0)
"""
    helped = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert helped.returncode == 0, helped.stderr
    assert helped.stdout.count("Example: ") == len(ALL)


def test_the_names_that_options_offer_are_those_of_the_modules():
    from engine import race
    from engine.lab.bench import sizes
    from engine.lab.train import data, learned, pretrain
    from engine.models import export
    from engine.nets.formats import exported

    assert names.SHAPE == race.SHAPE
    assert (tuple(sizes.SIZES), sizes.CONTEXTS) == (names.MODEL_SIZES, names.CONTEXTS)
    assert (tuple(sizes.STORED), tuple(pretrain.SIZES)) == (names.STORED, names.TARGET_SIZES)
    assert (tuple(learned.RECIPES), data.DOMAINS) == (names.RECIPES, names.DOMAINS)
    assert (tuple(exported.EXPORTS), tuple(export.WHOLE)) == (names.EXPORTS, names.WHOLE)


def given_figures(monkeypatch, figures):
    """`doctor`, whose work prints a table and returns these figures."""

    def work(options):
        print("a table for people")
        return figures

    monkeypatch.setattr(doctor, "main", work)


def test_json_is_all_that_a_command_prints_when_it_is_asked_for(monkeypatch, capsys):
    given_figures(monkeypatch, {"cause": "equal"})
    main(["doctor", "a.json", "b.json", "--json"])
    assert capsys.readouterr().out == '{"cause": "equal"}\n'


def test_no_json_follows_a_table(monkeypatch, capsys):
    given_figures(monkeypatch, {"cause": "equal"})
    main(["doctor", "a.json", "b.json"])
    assert capsys.readouterr().out == "a table for people\n"


def test_a_command_that_is_stopped_says_so_and_ends_with_130(monkeypatch, capsys):
    def stop(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(length, "main", stop)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--by", "length", "--json"])
    said = capsys.readouterr()
    assert (
        ended.value.code == 130 and said.out == "" and "bench --by length was stopped before it was done." in said.err
    )


def test_bench_tells_what_it_measures_by_and_refuses_another(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    said = capsys.readouterr().out
    assert all(f"\n  {kind:<10}{command.about}" in said for kind, command in BY.items())
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--by", "colour"])
    assert ended.value.code == 2 and "invalid choice: 'colour'" in capsys.readouterr().err


# Each is refused before a model is loaded, and the sentence is all that is printed.
REFUSED = {
    "an unknown system": (["bench", "--systems", "perpetual"], "Unknown system 'perpetual'."),
    "an unknown system of pays": (
        ["pays", "--prompts", "{file}", "--systems", "perpetual"],
        "Unknown system 'perpetual'.",
    ),
    "too hot": (["bench", "--temperature", "nan"], "Temperature must be a number between 0.0 and 5.0, got nan."),
    "too long": (["pays", "--prompts", "{file}", "--tokens", "0"], "Max new tokens must be between 1 and 900, got 0."),
    "no such system to grow": (["bench", "--by", "length", "--systems", "perpetual"], "Unknown system 'perpetual'."),
    "no such file": (
        ["calibrate", "--data", "nowhere.txt"],
        "There is no file 'nowhere.txt'. Give --data a file of prompts.",
    ),
    "a folder to write into": (["record", "--prompt", "A", "-o", "{folder}"], "is a folder. Name a file in it."),
    "a file for a folder": (["calibrate", "--out", "{file}/c.json"], "cannot be written: File exists."),
    "no such race": (["replay", "nowhere.json"], "There is no file 'nowhere.json'. Name a race file,"),
    "a replay for a folder": (
        ["replay", "assets/races/1-story-draft-tree.json", "-o", "{folder}"],
        "is a folder. Name a file in it.",
    ),
    "no such folder of texts": (["train", "pair", "--data", "nowhere"], "There is no folder 'nowhere'."),
}


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_one_sentence_before_a_model_is_loaded(arguments, sentence, tmp_path, monkeypatch, capsys):
    def load(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("engine.models.loading.load", load)
    file = tmp_path / "my.txt"
    file.write_text("Story: a fox\n\nStory: a hen\n\nStory: a dog\n", encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main([each.format(file=file, folder=tmp_path) for each in arguments])
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == "" and sentence in said.err and said.err.count("\n") == 1


@pytest.mark.parametrize("name", ALL)
def test_a_command_refuses_an_unknown_option_in_its_own_name(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--perpetual"])
    assert ended.value.code == 2
    assert f"python -m engine {name}" in capsys.readouterr().err


NEW = '''"""Greets somebody, for example in a test."""


def main(options):
    print(f"Good morning, {options.name}.")
    return {"greeted": options.name}
'''


def test_a_new_command_is_a_module_its_options_and_an_entry(tmp_path, monkeypatch, capsys):
    (tmp_path / "greeting.py").write_text(NEW, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def greet(parser):
        """Greet somebody."""
        parser.add_argument("--name")

    entry = Command("greeting", greet, "--name Ada")
    assert {name: each for group in GROUPS.values() for name, each in group.items()} | {
        f"bench --by {kind}": each for kind, each in BY.items()
    } == ALL
    for registry in (commands.ALL, GROUPS["race"]):  # the first follows from the second when the module is imported
        monkeypatch.setitem(registry, "greet", entry)
    main(["greet", "--name", "Ada"])
    assert capsys.readouterr().out == "Good morning, Ada.\n"
    assert "\n  greet      greet somebody\n" in commands.describe_commands()
    with pytest.raises(SystemExit):
        main(["greet", "--help"])
    said = capsys.readouterr().out
    assert "Greets somebody, for example in a test." in said and "engine greet --name Ada\n" in said
    with pytest.raises(SystemExit):
        main(["greet", "--help"])
    said = capsys.readouterr().out
    assert NEW.split('"""')[1] in said and said.endswith(f"{entry.example}\n")


def test_an_unknown_command_is_named_beside_those_there_are(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["perpetual", "--help"])
    told = capsys.readouterr()
    assert ended.value.code == 2 and told.out == ""
    assert told.err == f"Unknown command 'perpetual'. Available: {', '.join(COMMANDS)}.\n"


def test_no_command_has_a_second_way_in():
    for command in ALL.values():
        source = Path(import_module(command.module).__file__).read_text(encoding="utf-8")
        assert "sys.argv" not in source and "__main__" not in source, command.module


def test_every_command_that_is_mentioned_exists_and_has_this_spelling():
    second = re.compile(r"""-m["', ]+engine[.\\]""")
    mentioned = re.compile(r"""-m["', ]+engine["', ]+([\w-]+)""")
    by = re.compile(r"""-m engine bench --by (\w+)""")
    found: dict[str, list[Path]] = {}
    for path, text in texts().items():
        assert not second.search(text), path
        assert set(by.findall(text)) <= {*BY, "THING"}, path
        for name in mentioned.findall(text):
            found.setdefault(name, []).append(path)
    assert found.keys() <= COMMANDS.keys(), {name: found[name] for name in found.keys() - COMMANDS.keys()}
    assert len(found["bench"]) > 3  # the search finds what is there
