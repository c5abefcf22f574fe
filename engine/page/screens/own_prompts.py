"""Own prompts: reads a visitor's file within limits, then runs a fair race on every prompt. Knows files and races; knows no page."""

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from engine.measure.prompts import parse_prompt_and_group, split_paragraphs
from engine.measure.racing import PromptResult, PromptRuns, run_races
from engine.models.pairs import LoadedPair
from engine.race import BASELINE, LONGEST_PROMPT, WARM_UP_TEXT, Race, Settings, encode_prompt
from engine.record.disturbance import describe_count_of_disturbed_races
from engine.record.parsing import has_lone_surrogate, require
from engine.record.quiet import MessageAndSignalGenerator, MessageIntervalTimer, WorkSignal

MOST_PROMPTS = 50
LARGEST_FILE = 1_000_000  # bytes of UTF-8
LINES = (".jsonl", ".ndjson")  # endings of files with one prompt on every line
ALLOWED = (
    f"Allowed: at most {MOST_PROMPTS} prompts of at most {LONGEST_PROMPT:,} characters, {LARGEST_FILE // 1_000_000} MB a file, UTF-8; "
    "a text file separates prompts by blank lines, a .jsonl file has one JSON string, or an object with a “prompt”, on every line."
)
BATCH_SECONDS = 1 / 4  # between two messages on how far the race is
BEGINNING = 80  # characters of a prompt that its row shows
LONGEST_NAME = 40  # characters of a file's name that a sentence shows
MEDIANS = ("speedup", "tau", "draft_share", "verify_share")


def parse_prompt_file(file_name: str, text: str) -> list[str]:
    """The prompts of a file. Raises `ValueError` saying what is wrong, where, and what is allowed."""
    with append_hint_to_value_errors(ALLOWED):
        require(isinstance(file_name, str) and isinstance(text, str), "The file is no text.")
        by_line, file_name = file_name.lower().endswith(LINES), shorten_file_name(file_name)
        require(not has_lone_surrogate(text), f"{file_name} is not UTF-8.")
        size = len(text) if len(text) > LARGEST_FILE else len(text.encode())
        require(size <= LARGEST_FILE, f"{file_name} has {size:,} bytes; at most {LARGEST_FILE:,} are read.")
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        lines = enumerate(text.split("\n"), 1)
        prompts = (
            [parse_prompt_and_group(line, number)[0] for number, line in lines if line.strip()]
            if by_line
            else split_paragraphs(text)
        )
    return validate_prompts(prompts, file_name)


@contextmanager
def append_hint_to_value_errors(hint: str) -> Iterator[None]:
    """Appends `hint` to the sentence of every refusal inside."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} {hint}") from None


def shorten_file_name(file_name: str) -> str:
    """A file's name as a sentence has it."""
    return shorten_prompt(file_name, LONGEST_NAME).encode("utf-8", "replace").decode()


@append_hint_to_value_errors(ALLOWED)
def validate_prompts(prompts: Any, name_in_error: str = "The list") -> list[str]:
    """The prompts themselves. Raises `ValueError` when there are none, and for the first one that breaks a limit."""
    texts = isinstance(prompts, list) and all(isinstance(prompt, str) for prompt in prompts)
    require(texts, "Prompts must be a list of strings.")
    require(bool(prompts), f"{name_in_error} has no prompt in it.")
    require(
        len(prompts) <= MOST_PROMPTS, f"{name_in_error} has {len(prompts):,} prompts; at most {MOST_PROMPTS} are raced."
    )
    for number, prompt in enumerate(prompts, 1):
        require(bool(prompt.strip()), f"Prompt {number} is empty.")
        long = f"Prompt {number} has {len(prompt):,} characters; at most {LONGEST_PROMPT:,} are read."
        require(len(prompt) <= LONGEST_PROMPT, long)
        require(not has_lone_surrogate(prompt), f"Prompt {number} holds half a character, which is not UTF-8.")
    return prompts


def race_system_and_baseline_on_prompts(
    pair: LoadedPair, prompts: list[str], system: str, **settings: Any
) -> MessageAndSignalGenerator:
    """Races plain decoding and the system, in its own shape, on every prompt in turn. Closing the iterator ends the race under way.

    Yields plain values between quiet steps. The first carries "start" with what will run. While a race runs, "at" is the
    prompt's index and "tokens" what was written so far. Each prompt ends with a "row" and the "summary" of all rows so far; "end" comes
    last. A prompt that cannot be raced is a row whose "refused" says why. A race whose clocks were disturbed runs once more;
    "disturbed" is a sentence where that was disturbed too. Raises `ValueError` for settings under which no prompt can be raced.
    """
    prompts = validate_prompts(prompts)
    chosen = Settings(WARM_UP_TEXT, (BASELINE, system), **settings)
    title = Race(pair, chosen).lanes[1].system.title  # refuses a system or a shape that the pair cannot run
    yield {"start": True, "prompts": len(prompts), "system": system, "title": title}
    rows: list[dict] = []
    for index, prompt in enumerate(prompts):
        rows.append({"index": index, "prompt": shorten_prompt(prompt)})
        yield {"at": index, "tokens": 0}
        try:
            encode_prompt(pair, prompt)
        except ValueError as error:
            rows[-1]["refused"] = str(error)
        else:
            tokens, ticker = 0, MessageIntervalTimer(BATCH_SECONDS)
            for each in run_races(pair, [prompt], [system], chosen):
                if isinstance(each, PromptRuns):
                    rows[-1] |= extract_prompt_row_figures(*each.results_by_setting[system])
                elif isinstance(each, Race):
                    tokens = max(tokens, len(each.lanes[1].trace.tokens))
                    yield {"at": index, "tokens": tokens} if ticker.restart_if_interval_passed() else WorkSignal.STEP
        yield {"row": rows[-1], "summary": compute_medians_and_totals(rows)}
    yield {"end": True}


def extract_prompt_row_figures(prompt_result: PromptResult) -> dict:
    lane, base = prompt_result.trace, prompt_result.plain_trace
    return {
        "tokens": len(lane.tokens),
        "tau": lane.tau,
        "draft_share": lane.phase_share("draft"),
        "verify_share": lane.phase_share("verify"),
        "seconds": lane.seconds,
        "identical": prompt_result.text_verdict,
        "base_tokens": len(base.tokens),
        "base_seconds": base.seconds,
        "speedup": base.seconds_per_token / lane.seconds_per_token,
        "disturbed": prompt_result.disturbance,
    }


def compute_medians_and_totals(prompt_rows: list[dict]) -> dict:
    """Medians and totals of the prompts that were raced. `speedup_total` is of all their tokens; `disturbed` is a sentence, or ""."""
    raced = [row for row in prompt_rows if "refused" not in row]
    totals = {key: sum(row[key] for row in raced) for key in ("tokens", "seconds", "base_tokens", "base_seconds")}
    rates = totals["tokens"] * totals["base_seconds"], totals["base_tokens"] * totals["seconds"]
    return {
        **totals,
        **{key: median(row[key] for row in raced) if raced else None for key in MEDIANS},
        "raced": len(raced),
        "refused": len(prompt_rows) - len(raced),
        "identical": sum(row["identical"] is True for row in raced),
        "speedup_total": rates[0] / rates[1] if raced else None,
        "disturbed": describe_count_of_disturbed_races(
            sum(bool(row["disturbed"]) for row in raced), len(raced), "prompts"
        ).strip(),
    }


def shorten_prompt(prompt: str, max_characters: int = BEGINNING) -> str:
    words = " ".join(prompt.split())
    return words if len(words) <= max_characters else words[: max_characters - 1] + "…"
