"""What several commands ask for: a pair on a device, held-out prompts. Knows argparse and names; measures nothing."""

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tqdm import tqdm

from engine.measure.prompts import read_prompts
from engine.models.pairs import QUANTISATIONS, SPREADS, LoadedPair, Pair, build_pair, find_listed_pair, validate_choice
from engine.record.constraint import validate_constraint
from engine.record.files import read_text_file

if TYPE_CHECKING:  # a command without a server imports no HTTP
    from engine.models.progress import LoadingProgress
    from engine.remote.server import OpenAICompatibleServer


class OneLineErrorParser(ArgumentParser):
    """Says what is wrong with the arguments in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. --help lists what it takes.\n")


ASSETS = Path(__file__).parents[2] / "assets"
PARTS = "treerace.parts"  # entry points of packages that bring parts
CURVE = "curve.jsonl"  # of a drafter's training, in its folder: a line of JSON for every validation


def load_held_out_prompts() -> dict[str, list[str]]:
    """Prompts by domain; nothing was trained or calibrated on them."""
    return json.loads((ASSETS / "held_out.json").read_text(encoding="utf-8"))


def load_page_prompts() -> dict[str, list[dict[str, str]]]:
    """The page's prompts by domain, each with its title."""
    return json.loads((ASSETS / "prompts.json").read_text(encoding="utf-8"))


def load_chat_page_prompts() -> dict[str, list[dict[str, str]]]:
    """As `load_page_prompts`, for a target with a chat template."""
    return json.loads((ASSETS / "chat_examples.json").read_text(encoding="utf-8"))


CHAT, CHAT_FILE = "chat", ASSETS / "chat_prompts.jsonl"  # the domain of requests to a chat model


def load_chat_prompts() -> dict[str, list[str]]:
    """Requests to a chat model by their kind, eight of each; nothing was trained or calibrated on them."""
    kinds: dict[str, list[str]] = {}
    for each in map(json.loads, CHAT_FILE.read_text(encoding="utf-8").splitlines()):
        kinds.setdefault(each["group"], []).append(each["prompt"])
    return kinds


def first_held_out_prompts(domain: str, count: int) -> list[str]:
    """The first `count` held-out prompts of a domain, those for a chat one of each kind in turn.

    Raises `ValueError` for an unknown domain and for more than there are.
    """
    texts = load_held_out_prompts() | {
        CHAT: [prompt for each in zip(*load_chat_prompts().values(), strict=True) for prompt in each]
    }
    if not 1 <= count <= len(texts[validate_choice(texts, domain, "domain")]):
        raise ValueError(f"--prompts must be between 1 and {len(texts[domain])}, got {count}.")
    return texts[domain][:count]


def add_domain_and_prompt_options(parser: ArgumentParser, default_domains: str, default_count: int) -> None:
    """`--domains` and `--prompts`, for `prompts_by_domain_of_options`; by default `default_count` of each of the `default_domains`."""
    texts = f"texts, comma-separated, or all, of {', '.join(load_held_out_prompts())}"
    parser.add_argument(
        "--domains", default=default_domains, help=f"{texts}; or {CHAT}, requests to a target with a chat template"
    )
    parser.add_argument(
        "--prompts",
        type=parse_count_or_file,
        default=default_count,
        metavar="COUNT|FILE",
        help="how many held-out prompts a text; or a file of your own in their place, .jsonl or .txt, as `pays` takes it",
    )


def prompts_by_domain_of_options(options: Namespace) -> dict[str, list[str]]:
    """Prompts by domain, or those of a person's own file by its name. Raises `ValueError` for what there is not."""
    if isinstance(options.prompts, Path):
        return {options.prompts.name: [prompt.text for prompt in read_prompts(options.prompts)]}
    domains = list(load_held_out_prompts()) if options.domains == "all" else options.domains.split(",")
    return {domain: first_held_out_prompts(domain, options.prompts) for domain in domains}


def refuse_chat_domain_without_template(pair: LoadedPair, domains: str) -> None:
    """Raises `ValueError` where these domains have requests to a chat model, and the pair is sent plain prompts."""
    if CHAT in domains.split(",") and not pair.chat:
        raise ValueError(
            f"--domains {CHAT} is for a target with a chat template, and {pair.title} is sent plain prompts."
        )


def parse_positive_count(text: str) -> int:
    """The type of an option that counts something, of which there is at least one."""
    if (number := int(text)) < 1:
        raise ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def parse_count_or_file(text: str) -> int | Path:
    """The type of an option that takes a number of held-out prompts, or a file of a person's own."""
    return int(text) if text.lstrip("-").isdigit() else Path(text)


def add_pair_options(parser: ArgumentParser) -> None:
    """`--pair`, or `--target`, `--draft` and `--drafter` of one's own, for `pair_of_options`; how it is kept and read, and where."""
    where = (
        "a GGUF file, a folder with one or with config.json and safetensors, an installed package with a GGUF file, or "
    )
    where += "OWNER/NAME@COMMIT on the Hugging Face Hub"
    parser.add_argument("--pair", help="a listed pair; embedded when left out, and small for a small machine")
    parser.add_argument("--target", metavar="MODEL", help=f"your own target in place of a listed pair: {where}")
    parser.add_argument("--draft", metavar="MODEL", help="the draft model for --target, found the same way")
    parser.add_argument(
        "--name", help="what --target is called on the page and in tables; the model's own name when left out"
    )
    learned = "a folder of learned drafters for --target, and their calibration.json"
    parser.add_argument("--drafter", metavar="FOLDER", help=learned)
    kept = "keep the target's weights in 8 bits or in 4 (nf4), or not (none); as its files keep them when left out"
    parser.add_argument("--quantisation", choices=QUANTISATIONS, help=kept)
    raw = "send prompts as they are; else they are user messages in the target's chat template, where it has one"
    parser.add_argument("--raw", action="store_true", help=raw)
    spread = "put the target's layers on all GPUs, then in memory, then on a disk; or split its matrices over a torchrun's processes"
    parser.add_argument("--spread", choices=SPREADS, default="none", help=spread)
    parser.add_argument("--device", default=None, help="cpu, cuda or mps; the best one when left out")
    part = "a Python file with a drafter, policy or rule of your own, which mixes then know by the file's name; may be given often"
    parser.add_argument("--part", metavar="FILE", type=Path, action="append", default=[], help=part)


def register_plugin_parts_of_options(options: Namespace) -> None:
    """Adds the parts of installed packages to the registries, and those of `--part` to a command that loads a pair.

    Raises `ValueError` for a wrong one.
    """
    points = entry_points(group=PARTS)
    if not points and not options.part:
        return
    from engine.plugins import (  # imports PyTorch, for which a refusal need not wait
        register_part_of_python_file,
        register_parts_of_entry_points,
    )

    register_parts_of_entry_points(points)
    for file in options.part:
        register_part_of_python_file(file)


def add_system_prompt_and_thinking_options(parser: ArgumentParser) -> None:
    """`--system-prompt` and `--thinking`, for `chat_template_fields_of_options`."""
    before = "a system message before each prompt, for a target with a chat template"
    parser.add_argument("--system-prompt", metavar="TEXT", default="", help=before)
    thinking = "whether the target thinks before it answers, where its chat template has a switch for that"
    parser.add_argument("--thinking", choices=("on", "off"), help=f"{thinking}; as the template has it when left out")


def chat_template_fields_of_options(options: Namespace) -> dict[str, Any]:
    """What the options of `add_system_prompt_and_thinking_options` say, by the names of `LoadedPair`. Raises `ValueError` beside
    `--raw`, which
    uses no template.
    """
    if options.raw and (options.system_prompt or options.thinking):
        raise ValueError(
            "--raw sends prompts without the chat template: leave out --system-prompt and --thinking, or --raw."
        )
    return {
        "system": options.system_prompt.strip(),
        "thinking": None if options.thinking is None else options.thinking == "on",
    }


def pair_of_options(options: Namespace, default_pair: str = "embedded") -> Pair:
    """The pair that the options of `add_pair_options` name; `default_pair` is the listed one when they name none.

    Raises `ValueError` for an unknown pair, for a pair and a target together, and for what `build_pair` refuses.
    """
    if options.target is None:
        for option, what in (("draft", "it drafts for"), ("drafter", "it drafts for"), ("name", "is called so")):
            if (given := getattr(options, option)) is not None:
                raise ValueError(f"--{option} {given!r} needs --target, the model that {what}.")
        return find_listed_pair(default_pair if options.pair is None else options.pair)
    if options.pair is not None:
        raise ValueError(
            f"--target {options.target!r} and --pair {options.pair!r} both name a target: give one of them."
        )
    return build_pair(options.target, options.draft, options.drafter, options.name)


def output_path_or_shipped(requested: Path | None, shipped: Path | None, title_for_error: str) -> Path:
    """Where a command writes: `requested`, or what the repository ships there. Raises `ValueError` for `title_for_error` when both
    are None.
    """
    if requested is None and shipped is None:
        raise ValueError(f"--out is needed for {title_for_error}: the repository ships none of its files.")
    return requested or shipped  # type: ignore[return-value]


def create_parent_and_validate_output_path(file: Path) -> Path:
    """The file, which need not exist, in a folder that does: it is made. Raises `ValueError` where nothing can be written there."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{str(file)!r} cannot be written: {error.strerror}. Name another file.") from None
    if file.is_dir():
        raise ValueError(f"{str(file)!r} is a folder. Name a file in it.")
    return file


def add_remote_server_options(parser: ArgumentParser) -> None:
    """`--remote` and `--remote-model`: another server that writes a lane. No page and no API can name one."""
    lane = "an OpenAI-compatible streaming server (vLLM, SGLang, transformers serve) as a lane, such as http://127.0.0.1:8000/v1"
    parser.add_argument("--remote", metavar="ADDRESS", help=lane)
    parser.add_argument("--remote-model", metavar="NAME", help="the model to ask it for; its own when left out")


def remote_server_of_options(options: Namespace) -> "OpenAICompatibleServer | None":
    """The server that the options of `add_remote_server_options` name. Raises `ValueError` for a wrong address, and for a model
    without one.
    """
    if options.remote is None and options.remote_model is not None:
        raise ValueError(f"--remote-model {options.remote_model!r} needs --remote, the server's address.")
    if options.remote is None:
        return None
    from engine.remote.server import OpenAICompatibleServer

    return OpenAICompatibleServer(options.remote, options.remote_model or "")


def load_pair_of_options(options: Namespace, pair: Pair | None = None) -> LoadedPair:
    """The pair that the options of `add_pair_options` name, or `pair`, in memory. Raises `ValueError` for what cannot be named or
    loaded.
    """
    from engine.models.loading import load  # a command refuses a wrong pair before it imports what would load one

    chosen = pair_of_options(options) if pair is None else pair
    how = {"quantisation": options.quantisation, "spread": options.spread}
    with draw_loading_progress_bars() as tell:
        return replace(load(chosen, options.device, **how, report_progress=tell), sends_raw_prompts=options.raw)


@contextmanager
def draw_loading_progress_bars() -> Iterator[Callable[["LoadingProgress"], None]]:
    """What `load` may tell: it draws a bar on stderr for each model, first while it is fetched, then while it is loaded."""
    bars: dict[str, tqdm] = {}

    def draw(progress: "LoadingProgress") -> None:
        what = f"{progress.activity} {progress.model_name}"
        if what not in bars:
            bars[what] = tqdm(desc=what, unit="B", unit_scale=True)
        bars[what].total = progress.total_bytes
        bars[what].update(progress.done_bytes - bars[what].n)

    try:
        yield draw
    finally:
        for bar in bars.values():
            bar.close()


def add_memory_option(parser: ArgumentParser) -> None:
    copies = "let suffix copy from what it wrote for earlier prompts, never for the same one; the order of prompts then counts"
    parser.add_argument("--memory", action="store_true", help=copies)


def add_constraint_options(parser: ArgumentParser) -> None:
    """`--json-schema`, `--regex` and `--grammar`, for `constraint_of_options`."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--json-schema", metavar="FILE", type=Path, help="every text must be JSON of this schema")
    either.add_argument("--regex", metavar="PATTERN", help="every text must match this regular expression")
    either.add_argument("--grammar", metavar="FILE", type=Path, help="every text must be of this Lark grammar")


def constraint_of_options(options: Namespace) -> str:
    """The constraint that the options of `add_constraint_options` name, "" for none. Raises `ValueError` for one that is wrong."""
    if options.json_schema is not None:
        schema = read_text_file(options.json_schema, "Give --json-schema a JSON schema's file.")
        return validate_constraint(f"json:{schema}")
    if options.grammar is not None:
        return validate_constraint("lark:" + read_text_file(options.grammar, "Give --grammar a Lark grammar's file."))
    return validate_constraint("" if options.regex is None else f"regex:{options.regex}")


def add_shape_option(parser: ArgumentParser) -> None:
    """`--shape`, for `apply_shape_option`."""
    best = "race every system in its best shape on this machine, as far as the pair's calibration has counts"
    parser.add_argument("--shape", choices=("best", "paper"), help=f"{best}, or in its paper's; the best when left out")


def apply_shape_option(options: Namespace, pair: LoadedPair) -> LoadedPair:
    """The pair, whose systems race in the shapes that `add_shape_option` names; of several processes in the papers' own, for one
    choice.
    """
    from engine.measure import processes  # imports PyTorch, for which a refusal need not wait

    return pair.with_shapes({}) if options.shape == "paper" or processes.count_processes() > 1 else pair


def add_json_option(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object, and nothing else")


@contextmanager
def exit_with_sentence_on_refusal() -> Iterator[None]:
    """Ends the command when something inside is refused: the refusal's sentence alone on stderr, exit status 2."""
    try:
        yield
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
