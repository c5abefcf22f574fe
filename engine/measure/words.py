"""Words: the report for people."""

from engine.measure.peers import SAME
from engine.record.disturbance import describe_repeated_disturbance

PLAIN = "plain decoding"
MOST_PROMPTS = 5  # that gain, and as many that lose
TOO_FEW = 10  # prompts; a percentile bootstrap over fewer is too narrow
NO_SHARES = 30  # characters of the columns that a peer does not tell
BEGINNING = 60  # characters of a prompt


def describe_verdict(figures: dict) -> str:
    """The verdict in a sentence that begins with it, and whether its clocks were disturbed."""
    row, prompts = best_row_of(figures), len(figures["prompts"])
    setting, reached, span = row["setting"], f"{row['speedup']:.2f} times", format_interval(row["interval"])
    said = {
        "yes": f"yes: {setting} writes these prompts {reached} as fast as plain decoding, {span}.",
        "no": f"no: the best system, {setting}, reaches {reached} plain decoding, {span}.",
        "only": f"only for {row['gaining']} of {prompts} prompts: {setting} gains there. "
        f"Over all prompts it reaches {reached} plain decoding, {span}.",
    }
    return said[figures["answer"]] + describe_repeated_disturbance(row["disturbed"], prompts, "prompts")


def best_row_of(figures: dict) -> dict:
    return next(row for row in figures["systems"] if row["name"] == figures["best"])


def format_interval(ends: list[float]) -> str:
    return f"95 % interval {ends[0]:.2f} to {ends[1]:.2f}"


def format_report(figures: dict) -> str:
    """All of it: verdict, systems, time, acceptance by depth, prompts."""
    row, plain, peers = best_row_of(figures), figures["plain"], sort_by_speed(figures.get("peers", []))
    count = len(figures["prompts"])
    parts = [
        describe_verdict(figures),
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
        *format_systems(figures),
        "",
        *format_acceptance(row),
        *format_groups(figures),
        "",
        *format_prompts(figures),
    ]
    if count < TOO_FEW:
        parts.append(f"The intervals are too narrow: {count} prompts are few. Race {TOO_FEW} or more.")
    if unlike := [each["name"] for each in figures["systems"] if each["identical"] is False]:
        parts.append(f"Another text than plain decoding's: {', '.join(unlike)}. `python -m engine doctor` tells why.")
    parts += [*filter(None, (each["parted"] for each in figures.get("peers", []))), *figures.get("others", [])]
    parts += [f"Prompt {each['index'] + 1} was not raced: {each['why']}" for each in figures["refused"]]
    return "\n".join(parts)


def sort_by_speed(rows: list[dict]) -> list[dict]:
    return sorted(rows, key=lambda row: -row["speedup"])


def format_systems(figures: dict) -> list[str]:
    """A line for every system, the fastest first, and for every peer. Shares are of a system's own time."""
    rows, peers = sort_by_speed(figures["systems"]), sort_by_speed(figures.get("peers", []))
    wide = max(len(name) for name in (PLAIN, *(row["setting"] for row in rows), *(peer["name"] for peer in peers))) + 2
    lines = [
        f"{'best setting':<{wide}}{'speedup':>8}{'95 %':>14}{'x generate()':>14}{'tau':>6}{'draft':>7}{'verify':>8}{'prefill':>9}"
        f"{'rest':>6}{'gain':>6}{'identical':>11}"
    ]
    for row in rows:
        low, high = row["interval"]
        lines.append(
            f"{row['setting']:<{wide}}{row['speedup']:>7.2f}x{f'{low:.2f}-{high:.2f}':>14}{row['vs_generate']:>13.2f}x{row['tau']:>6.2f}"
            f"{format_shares(row['time'])}{row['gaining']:>6}{SAME[row['identical']]:>11}"
        )
    plain = figures["plain"]
    lines.append(
        f"{PLAIN:<{wide}}{1:>7.2f}x{'':>14}{plain['vs_generate']:>13.2f}x{1:>6.2f}{format_shares(plain['time'])}"
    )
    for peer in peers:
        low, high = peer["interval"]
        tau = "-" if peer["tau"] is None else f"{peer['tau']:.2f}"
        lines.append(
            f"{peer['name']:<{wide}}{peer['speedup']:>7.2f}x{f'{low:.2f}-{high:.2f}':>14}{peer['vs_generate']:>13.2f}x{tau:>6}"
            f"{'':>{NO_SHARES}}{peer['gaining']:>6}{SAME[peer['identical']]:>11}"
        )
    return lines


def format_shares(time: dict[str, float]) -> str:
    return f"{time['draft']:>7.0%}{time['verify']:>8.0%}{time['prefill']:>9.0%}{time['rest']:>6.0%}"


def format_acceptance(row: dict) -> list[str]:
    """How often a guess was accepted, by depth, where those above it were."""
    if not row["acceptance"]:
        return [f"{row['setting']} guessed nothing on these prompts."]
    found = ", ".join(f"{each['depth']}: {each['accepted']:.0%}" for each in row["acceptance"])
    ranks = ", ".join(f"{each['rank']}: {each['accepted']:.0%}" for each in row["acceptance_by_rank"])
    return [
        f"Acceptance by depth of {row['setting']}, where the depths above were accepted: {found}.",
        f"By rank among siblings, the drafter's favourite first: {ranks}.",
    ]


def format_groups(figures: dict) -> list[str]:
    """A line for every group of prompts, the one that gains most first."""
    if not (found := sort_by_speed(figures["groups"])):
        return []
    wide = max(len(shorten_prompt(each["group"])) for each in found) + 2
    lines = ["", f"{'group':<{wide}}{'prompts':>8}{'speedup':>9}{'tau':>6}{'first guess true':>18}"]
    for each in found:
        first = "-" if each["accepted"] is None else f"{each['accepted']:.0%}"
        lines.append(
            f"{shorten_prompt(each['group']):<{wide}}{each['prompts']:>8}{each['speedup']:>8.2f}x{each['tau']:>6.2f}{first:>18}"
        )
    return lines


def format_prompts(figures: dict) -> list[str]:
    """The prompts that gain most and those that lose most with the best system."""
    ranked, setting, lines = sort_by_speed(figures["prompts"]), best_row_of(figures)["setting"], []
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
