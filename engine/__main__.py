"""`python -m engine`: lists the commands and runs one. Knows their names and modules; imports only the module that it runs."""

import sys
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """A module with `main(arguments)`, and one line on what it does."""

    module: str
    about: str


COMMANDS = {
    "bench": Command("engine.measure.bench", "race systems over held-out prompts; with --peers beside generate()"),
    "pays": Command("engine.measure.pays.command", "tell whether speculative decoding pays for your own prompts"),
    "doctor": Command("engine.measure.pays.doctor", "tell where two runs part, and whether rounding explains it"),
    "overhead": Command("engine.measure.overhead", "tell where a round's time goes: forwards, policy, rule, commit"),
    "growth": Command("engine.measure.growth", "tell how cost grows with length, tree, context, model and races"),
    "floor": Command(
        "engine.measure.floor", "tell how near forwards come to the machine's bandwidth, by model and tree"
    ),
    "load": Command("engine.measure.load", "let fifty visitors race at once, and tell what each of them got"),
    "study": Command("engine.measure.study.command", "tell which of the papers' claims hold here, by counts alone"),
    "drift": Command("engine.measure.drift", "run one drafter over a changing subject, frozen against adapting"),
    "attention": Command(
        "engine.measure.attention", "time attention that skips a tree mask's empty tiles, by node order"
    ),
    "gpu": Command("engine.measure.gpu.command", "measure everything that a GPU changes and write it to one JSON file"),
    "calibrate": Command("engine.measure.calibrate", "measure a pair and write the calibration for its static trees"),
    "train": Command("engine.train.recipes", "train the embedded pair, or a learned drafter for any target"),
    "convert": Command("engine.models.convert", "write a published drafter's pickled weights as safetensors"),
    "export": Command("engine.models.export", "write a trained drafter in the layout of speculators"),
    "memory": Command("engine.train.memory", "tell the peak memory of a training step by number of segments"),
    "record": Command("engine.measure.record_races", "record a race to a file, or the page's recorded races anew"),
    "gif": Command("engine.views.gif", "turn a race file into an animated GIF"),
    "replay": Command("engine.views.standalone", "turn a race file into a page that plays without a network"),
}


def overview() -> str:
    """The commands, one a line."""
    lines = [f"  {name:<11}{command.about}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: python -m engine <command> [options]", "", *lines, "", "Each has a --help of its own."])


def main(arguments: list[str]) -> None:
    """Runs the command that the first argument names, with the other arguments. Without any, prints the overview.

    Ctrl-C ends it with a sentence and exit status 130.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview())
        return
    name, *others = arguments
    if name not in COMMANDS:
        print(f"Unknown command {name!r}. Available: {', '.join(COMMANDS)}.", file=sys.stderr)
        sys.exit(2)
    try:
        import_module(COMMANDS[name].module).main(others)
    except KeyboardInterrupt:  # also while torch is imported
        print(f"\nThe command {name} was stopped before it was done.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
