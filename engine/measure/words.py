"""Words: the report for people."""

from collections.abc import Callable

from engine.measure.table import Column, format_table, format_text_identity, optional_field_formatter
from engine.record.disturbance import describe_count_of_disturbed_races

PLAIN = "plain decoding"
MOST_PROMPTS = 5  # that gain, and as many that lose
TOO_FEW = 10  # prompts; a percentile bootstrap over fewer is too narrow
BEGINNING = 60  # characters of a prompt


def describe_pays_verdict(figures: dict) -> str:
    """The verdict in a sentence that begins with it, and whether its clocks were disturbed."""
    row, prompts = best_system_row_of(figures), len(figures["prompts"])
    setting, reached, span = row["setting"], f"{row['speedup']:.2f} times", format_interval(row["interval"])
    said = {
        "yes": f"yes: {setting} writes these prompts {reached} as fast as plain decoding, {span}.",
        "no": f"no: the best system, {setting}, reaches {reached} plain decoding, {span}.",
        "only": f"only for {row['gaining']} of {prompts} prompts: {setting} gains there. "
        f"Over all prompts it reaches {reached} plain decoding, {span}.",
    }
    return said[figures["answer"]] + describe_count_of_disturbed_races(row["disturbed"], prompts, "prompts")


def best_system_row_of(figures: dict) -> dict:
    return next(row for row in figures["systems"] if row["name"] == figures["best"])


def format_interval(low_and_high: list[float]) -> str:
    return f"95 % interval {low_and_high[0]:.2f} to {low_and_high[1]:.2f}"


def format_pays_report(figures: dict) -> str:
    """All of it: verdict, systems, time, acceptance by depth, prompts."""
    row, plain, peers = best_system_row_of(figures), figures["plain"], sort_by_speed(figures.get("peers", []))
    count = len(figures["prompts"])
    parts = [
        describe_pays_verdict(figures),
        f"Against generate() it is {row['vs_generate']:.2f} times as fast, {format_interval(row['vs_generate_interval'])}. "
        f"Plain decoding of this engine alone is {plain['vs_generate']:.2f} times as fast.",
        *(
            f"Against {peer['name']}, the fastest peer, it is {peer['best_vs']:.2f} times as fast, "
            f"{format_interval(peer['best_vs_interval'])}."
            for peer in peers[:1]
        ),
        f"{figures['pair']}, {figures['machine']}, {figures['dtype']}, T = {figures['temperature']:g}, "
        f"{count} prompts, up to {figures['tokens']} tokens, {plain['tokens_per_s']:.0f} tokens/s plain"
        + (", with a memory of earlier prompts" if figures["memory"] else "")
        + (", under a constraint; generate() writes without it." if figures["constraint"] else "."),
        "",
        *format_system_and_peer_table(figures),
        "",
        *format_acceptance(row),
        *format_groups(figures),
        "",
        *format_most_gaining_and_losing_prompts(figures),
    ]
    if count < TOO_FEW:
        parts.append(f"The intervals are too narrow: {count} prompts are few. Race {TOO_FEW} or more.")
    if unlike := [each["name"] for each in figures["systems"] if each["identical"] is False]:
        parts.append(f"Another text than plain decoding's: {', '.join(unlike)}. `python -m engine doctor` tells why.")
    parts += [*filter(None, (each["parted"] for each in figures.get("peers", []))), *figures.get("others", [])]
    parts += [f"Prompt {each['index'] + 1} was not raced: {each['why']}" for each in figures["refused"]]
    return "\n".join(parts)


def sort_by_speed(rows_with_speedup: list[dict]) -> list[dict]:
    return sorted(rows_with_speedup, key=lambda row: -row["speedup"])


def format_system_and_peer_table(figures: dict) -> list[str]:
    """A line for every system, the fastest first, and for every peer. Shares are of a system's own time."""
    plain = {"setting": PLAIN, "speedup": 1.0, "tau": 1.0, **figures["plain"]}
    peers = [{"setting": peer["name"], **peer} for peer in sort_by_speed(figures.get("peers", []))]
    return format_table(SYSTEMS, [*sort_by_speed(figures["systems"]), plain, *peers])


def format_speedup_interval(row: dict) -> str:
    """The interval of a speedup, "" for plain decoding, which has none."""
    return "{:.2f}-{:.2f}".format(*row["interval"]) if "interval" in row else ""


def phase_share_formatter(phase_name: str) -> Callable[[dict], str]:
    """A phase's share of the time, "" of a peer, which does not tell it."""
    return lambda row: f"{row['time'][phase_name]:.0%}" if "time" in row else ""


SYSTEMS: list[Column] = [
    ("best setting", "{setting}"),
    ("speedup", "{speedup:.2f}x"),
    ("95 %", format_speedup_interval),
    ("x generate()", "{vs_generate:.2f}x"),
    ("tau", optional_field_formatter("tau", ".2f")),
    *((phase, phase_share_formatter(phase)) for phase in ("draft", "verify", "prefill", "rest")),
    ("gain", lambda row: str(row.get("gaining", ""))),
    ("identical", lambda row: format_text_identity(row) if "identical" in row else ""),
]
GROUPS: list[Column] = [
    ("group", lambda row: shorten_prompt(row["group"])),
    ("prompts", "{prompts}"),
    ("speedup", "{speedup:.2f}x"),
    ("tau", "{tau:.2f}"),
    ("first guess true", optional_field_formatter("accepted", ".0%")),
]


def format_acceptance(system_row: dict) -> list[str]:
    """How often a guess was accepted, by depth, where those above it were."""
    if not system_row["acceptance"]:
        return [f"{system_row['setting']} guessed nothing on these prompts."]
    found = ", ".join(f"{each['depth']}: {each['accepted']:.0%}" for each in system_row["acceptance"])
    ranks = ", ".join(f"{each['rank']}: {each['accepted']:.0%}" for each in system_row["acceptance_by_rank"])
    return [
        f"Acceptance by depth of {system_row['setting']}, where the depths above were accepted: {found}.",
        f"By rank among siblings, the drafter's favourite first: {ranks}.",
    ]


def format_groups(figures: dict) -> list[str]:
    """A line for every group of prompts, the one that gains most first."""
    found = sort_by_speed(figures["groups"])
    return ["", *format_table(GROUPS, found)] if found else []


def format_most_gaining_and_losing_prompts(figures: dict) -> list[str]:
    """The prompts that gain most and those that lose most with the best system."""
    ranked, setting, lines = sort_by_speed(figures["prompts"]), best_system_row_of(figures)["setting"], []
    gain = [each for each in ranked if each["speedup"] > 1]
    lose = [each for each in ranked[::-1] if each["speedup"] < 1]
    for word, found in (("gain", gain), ("lose", lose)):
        lines.append(f"{len(found)} of {len(ranked)} prompts {word} with {setting}" + ":" * bool(found))
        for each in found[:MOST_PROMPTS]:
            lines.append(f"  {each['speedup']:.2f}x  {each['index'] + 1}: {shorten_prompt(each['prompt'])}")
    return lines


def shorten_prompt(prompt: str) -> str:
    """The prompt's first characters on one line. What a terminal would obey is shown as a question mark."""
    words = "".join(each if each.isprintable() else "?" for each in " ".join(prompt.split()))
    return words if len(words) <= BEGINNING else words[: BEGINNING - 1] + "…"
