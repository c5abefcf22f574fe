"""`python -m engine pays`: tell whether speculative decoding pays for your own prompts; JSON on the last line.

Every lossless system that the pair allows, `auto` included, races over the file's prompts. Plain decoding and `generate()` run
beside it, interleaved. On the first three prompts each system's default shape is raced against two smaller ones. The best of them then
runs over all prompts. The verdict is about the best lossless system:

- "yes": the 95 % interval of its speedup begins above 1.
- "no": the interval ends below 1, or the speedup is below 1.
- "only": anything else; then only some prompts gain.

A speedup compares seconds a token, prefill included. Over prompts it is the geometric mean; its interval is a bootstrap over prompts.
The best of many systems is chosen after the fact, so where several are close the interval is a little too kind.
Over fewer than ten prompts an interval is too narrow.

`accelerate launch -m engine pays` splits the prompts over its processes, a GPU each; all of them run the same settings.

`--batch 1,4,16,32` then decodes so many prompts at once, and `--context 512,2048` races behind so many tokens. Both take the best
setting and `auto`.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from engine.measure import processes
from engine.measure.options import add_memory, add_pair, load_given, refusals
from engine.measure.pays import batch, context, curve_words, words
from engine.measure.pays.prompts import read_all
from engine.measure.pays.racing import Wish, chosen, fitting, race, races
from engine.measure.pays.report import report
from engine.models.earlier_texts import Memory


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m engine pays", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        required=True,
        nargs="+",
        help='.jsonl files of {"prompt": ...} or strings, or .txt files; one a line. A "group" beside a prompt, or else its file, '
        "names the row in which it is counted",
    )
    parser.add_argument("--systems", help="names or mixes, comma-separated; every lossless one when left out")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a prompt")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0, help="of the texts and of the bootstrap")
    parser.add_argument("--batch", metavar="SIZES", help="also decode so many prompts at once, such as 1,4,16,32")
    parser.add_argument("--context", metavar="TOKENS", help="also race behind contexts so long, such as 512,2048,8192")
    add_memory(parser)
    add_pair(parser)
    options = parser.parse_args(arguments)
    with refusals(parser):
        figures = judged(options)
    if not processes.leads():
        return
    print(words.report(figures))
    for name, told in (("batch", curve_words.batches), ("context", curve_words.contexts)):
        if name in figures:
            print("", *told(figures[name]), sep="\n")
    print(json.dumps(figures))


def judged(options: argparse.Namespace) -> dict:
    """The figures, with the verdict's sentence. Raises `ValueError` for a file, a system or a value that cannot be raced."""
    given = read_all(options.prompts)
    prompts = [each.text for each in given]
    sizes = batch.numbers("--batch", options.batch, batch.LARGEST_BATCH) if options.batch else []
    lengths = batch.numbers("--context", options.context, context.LONGEST) if options.context else []
    options.device = processes.own_device(options.device)
    pair = load_given(options)
    pair = replace(pair, memory=Memory()) if options.memory else pair
    wish = Wish(options.temperature, options.tokens, options.seed)
    systems = chosen(pair, options.systems)
    raced, refused = fitting(pair, prompts, wish)
    texts = [prompts[index] for index in raced]
    with tqdm(total=races(len(systems), len(processes.share(texts, pair.target))), desc="races", unit="race") as bar:
        outcome = race(pair, texts, systems, wish, bar.update)
    figures = report(pair, prompts, raced, refused, wish, outcome, [each.group for each in given])
    found = {"verdict": words.sentence(figures)} | figures
    if not processes.leads() and pair.target.processes == 1:  # what follows is the first process's work
        return found
    if sizes:
        settings = batch.settings_for(figures["systems"])
        with tqdm(total=batch.runs(len(settings), len(sizes)), desc="batches", unit="run") as bar:
            found["batch"] = batch.curve(pair, texts, settings, sizes, wish, bar.update)
    if lengths:
        settings = context.settings_for(figures)
        with tqdm(total=context.races(len(texts), lengths), desc="contexts", unit="race") as bar:
            found["context"] = context.by_length(pair, texts, settings, lengths, wish, bar.update)
    return found
