"""`python -m engine`: lists the commands and runs one. Knows their names, options and modules; imports only the module that it runs."""

import io
import json
import os
import shlex
import sys
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from ast import get_docstring, parse
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from engine.measure.options import OneLineErrorParser, exit_with_sentence_on_refusal, register_plugin_parts_of_options
from engine.shell import bench, models, race


class Command(NamedTuple):
    """A module with `main(add_options)`, what adds its options, and the arguments of an example.

    The docstring of `add_options` says what the command does. `main` returns the figures that --json prints, or None.
    """

    module: str
    add_options: Callable[[ArgumentParser], None]
    example: str

    @property
    def about(self) -> str:
        """What it does, for a list."""
        words = (self.add_options.__doc__ or "").rstrip(".")
        return words[:1].lower() + words[1:]


GROUPS = {
    "race": {
        "bench": Command("engine.lab.bench.command", bench.add_bench_options, "--systems auto,eagle,tree --prompts 5"),
        "pays": Command("engine.lab.pays.command", race.add_pays_options, "--prompts my.jsonl --systems auto,lookup"),
        "doctor": Command("engine.lab.pays.doctor", race.add_doctor_options, "mine.json yours.json"),
    },
    "measure": {
        "study": Command("engine.lab.study.command", race.add_study_options, "--claims gbv --prompts 2"),
        "gpu": Command("engine.lab.gpu.command", race.add_gpu_options, "--quick --out gpu.json"),
    },
    "models": {
        "calibrate": Command(
            "engine.lab.calibrate",
            models.add_calibrate_options,
            "--target FOLDER --draft FOLDER --out calibration.json",
        ),
        "train": Command("engine.lab.train.recipes", models.add_train_options, "eagle --target FOLDER --minutes 15"),
        "convert": Command("engine.models.convert", models.add_convert_options, "pytorch_model.bin FOLDER"),
        "export": Command("engine.models.export", models.add_export_options, "eagle FOLDER"),
    },
    "media": {
        "record": Command(
            "engine.lab.record_races",
            race.add_record_command_options,
            '--prompt "Story: A fox" --system auto -o race.json',
        ),
        "curves": Command("engine.lab.record_curves", race.add_curves_options, "--only nodes"),
        "examples": Command("engine.page.screens.examples", race.add_examples_options, "--only sweep"),
        "replay": Command("engine.page.views.standalone", race.add_replay_options, "race.json -o race.html"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
BY = {  # what `bench --by` measures in place of a race
    "length": Command("engine.lab.bench.length", bench.add_bench_by_length_options, "--systems tree,auto --prompts 2"),
    "size": Command("engine.lab.bench.sizes", bench.add_bench_by_size_options, "--sizes 11M --stored fp16"),
}
ALL = COMMANDS | {f"bench --by {kind}": command for kind, command in BY.items()}


def describe_commands() -> str:
    """The commands, one a line, by group."""
    lines = ["usage: python -m engine <command> [options]"]
    for group, commands in GROUPS.items():
        lines += ["", group, *(f"  {name:<11}{command.about}" for name, command in commands.items())]
    return "\n".join([*lines, "", "Each has a --help of its own, with an example."])


def build_command_parser(command_name: str) -> OneLineErrorParser:
    """The parser of a command of `ALL`.

    Its description is the module's docstring, read from the source: importing it may take ten seconds.
    """
    command, example = ALL[command_name], f"Example: python -m engine {command_name} {ALL[command_name].example}"
    kinds = ["In place of a race, --by measures:", *(f"  {kind:<10}{each.about}" for kind, each in BY.items()), ""]
    source = Path(str(find_spec(command.module).origin)).read_text(encoding="utf-8")  # type: ignore[union-attr]
    parser = OneLineErrorParser(
        prog=f"python -m engine {command_name}",
        description=get_docstring(parse(source)),
        epilog="\n".join([*(kinds if command_name == "bench" else []), example]),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.set_defaults(by=command_name.partition(" --by ")[2])
    command.add_options(parser)
    return parser


def split_command_name_and_arguments(arguments: list[str]) -> tuple[str, list[str]]:
    """The name in `ALL` of what the arguments ask for, and the other arguments."""
    name, *others = arguments
    if name != "bench":
        return name, others
    parser = OneLineErrorParser(prog="python -m engine bench", add_help=False, allow_abbrev=False)
    parser.add_argument("--by", choices=BY)
    found, others = parser.parse_known_args(others)
    return f"bench --by {found.by}" if found.by else name, others


def main(arguments: list[str]) -> None:
    """Runs the command that the first argument names, with the other arguments. Without any, prints the overview.

    With --json the command's figures are all that is printed. What it refuses is a sentence, and exit status 2. Ctrl-C ends it with a
    sentence and exit status 130.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(describe_commands())
        return
    called, others = split_command_name_and_arguments(arguments)
    if called not in ALL:
        print(f"Unknown command {called!r}. Available: {', '.join(COMMANDS)}.", file=sys.stderr)
        sys.exit(2)
    options = build_command_parser(called).parse_args(others)
    options.command = shlex.join(["python", "-m", "engine", *arguments])
    alone = getattr(options, "json", False)
    try:
        with exit_with_sentence_on_refusal(), redirect_stdout(io.StringIO()) if alone else nullcontext():
            if "part" in options:
                register_plugin_parts_of_options(options)
            figures = import_module(ALL[called].module).main(options)
    except KeyboardInterrupt:  # also while torch is imported
        print(f"\nThe command {called} was stopped before it was done.", file=sys.stderr)
        sys.exit(130)
    if alone and figures is not None:
        print(json.dumps(figures))


if __name__ == "__main__":
    # Warnings of libraries are no news to who runs a command: none is printed, unless the environment or `python -W` asks for them
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # read when transformers is imported
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    main(sys.argv[1:])
