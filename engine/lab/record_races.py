"""`python -m engine record`: race files for the page, for replays and for films.

python -m engine record                              the races of assets/races, anew
python -m engine record --prompt "Story: ..." --system eagle --out race.json
python -m engine record --prompt "Story: ..." --system remote --remote http://127.0.0.1:8000/v1
"""

from argparse import Namespace
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

from tqdm import tqdm

from engine.measure.options import (
    ASSETS,
    create_parent_and_validate_output_path,
    load_page_prompts,
    load_pair_of_options,
    output_path_or_shipped,
    pair_of_options,
    remote_server_of_options,
)
from engine.measure.racing import settings_of_options
from engine.measure.repeated import RepeatedRace
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, Settings
from engine.record.compact_json import to_compact_json_with_rounded_floats
from engine.record.race_file import BY_TEXT, Record
from engine.record.trace import dict_without_empty_chat_turns
from engine.systems import find_comparable_chain_name, resolve_system_name

RACES = ASSETS / "races"
# By file: a prompt of the page's gallery, a system, and settings. The page opens with the first one, and its form has the same.
# A "chain" with as many guesses is a thin third lane.
RECORDED: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "1-story-draft-tree": ("stories", "The brave snail", "tree", {"depth": 8, "width": 4, "nodes": 16, "chain": True}),
    "2-story-auto": ("stories", "Two friends and a box", "auto", {}),
    "3-code-eagle": ("code", "Join paths", "eagle", {"max_new_tokens": 160}),
    "4-word-problem-auto": ("word problems", "Hay for the farm", "auto", {"max_new_tokens": 160}),
    "5-story-sampled-eagle": ("stories", "A fox by the river", "eagle", {"temperature": 0.8, "seed": 7}),
}


def race_settings_of_example(domain: str, prompt_title: str, system: str, extra_settings: dict) -> Settings:
    more = dict(extra_settings)
    [prompt] = [each["prompt"] for each in load_page_prompts()[domain] if each["title"] == prompt_title]
    has_chain, raced = more.pop("chain", False), resolve_system_name(system)
    settings = Settings(prompt, (BASELINE, system), **more)
    chain = find_comparable_chain_name(raced, raced.default_shape | settings.explicit_shape) if has_chain else ""
    return replace(settings, systems=(BASELINE, chain, system)) if chain else settings


def run_repeated_race_to_record(pair: LoadedPair, settings: Settings) -> Record:
    """The record of a race run to its end, and again where it is short, with today's date and, on a CPU, the processor's name."""
    with tqdm(total=len(settings.systems) * settings.max_new_tokens, desc="race", unit="token") as bar:
        race = RepeatedRace(pair, settings)
        made = race.to_record()
        for _, step in race.race.run():
            bar.update(len(step.burst))
        bar.total = bar.n  # texts may end early
    for _ in race.repeat_and_show_median_run_in_steps():
        pass
    made.recorded = date.today().isoformat()
    if pair.target.device.type == "cpu" and (name := read_processor_name()):
        for lane in (each for each in made.lanes if each.guarantee != BY_TEXT):
            lane.trace.hardware = f"{lane.trace.hardware}, {name}"
    return made


def read_processor_name() -> str:
    """The processor's name where Linux gives it, else ""."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def write_race_file_and_summarise(path: Path, record: Record) -> str:
    """Writes the race file, its floats to six digits. Returns a line on what it holds."""
    path.write_text(
        to_compact_json_with_rounded_floats(asdict(record, dict_factory=dict_without_empty_chat_turns)),
        encoding="utf-8",
    )
    result, last = record.result(), record.lanes[-1]
    same = {
        True: "identical",
        False: "NOT identical",
        "law": "same distribution",
        "text": "same text, compared by text",
        "failed": "the other server failed",
    }.get(result["identical"], result["identical"])
    figures = result["lanes"][-1]
    spread = f" ({result['least']:.2f} to {result['most']:.2f} in {len(result['runs'])} runs)" if record.runs else ""
    said = f" {result['disturbed']}" if result["disturbed"] else ""
    tau = "no tau" if figures["tau"] is None else f"tau {figures['tau']:.2f}"
    return (
        f"{path.name}: {last.title}, {figures['tokens']} tokens, {tau}, {result['speedup']:.2f}x{spread}, {same}, "
        f"{path.stat().st_size / 1000:.0f} kB.{said}"
    )


def main(options: Namespace) -> None:
    named, remote = pair_of_options(options), remote_server_of_options(options)
    if options.prompt is None:
        folder = output_path_or_shipped(options.out, RACES if named.name == "embedded" else None, named.title)
        files = {
            create_parent_and_validate_output_path(folder / f"{name}.json"): race_settings_of_example(*each)
            for name, each in RECORDED.items()
        }
    else:
        settings = settings_of_options(options, (BASELINE, options.system), options.prompt)
        files = {create_parent_and_validate_output_path(options.out or Path("race.json")): settings}
    pair = replace(load_pair_of_options(options, named), remote=remote)
    for path, settings in files.items():
        print(write_race_file_and_summarise(path, run_repeated_race_to_record(pair, settings)), flush=True)
