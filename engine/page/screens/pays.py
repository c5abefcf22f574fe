"""Does it pay: the figures of `python -m engine pays` for a visitor's prompts, within limits. Knows races; knows no page."""

from typing import Any

from engine.measure import forced, racing, words
from engine.measure.prompts import FEWEST
from engine.measure.report import report
from engine.models.pairs import LoadedPair
from engine.page.screens.own_prompts import beginning, checked_prompts
from engine.page.screens.pays_what_if import Point, speedup
from engine.page.views.wire import Steps
from engine.race import Settings
from engine.record.parsing import shown
from engine.record.quiet import Quiet
from engine.record.trace_statistics import decode_seconds_per_token
from engine.rounds.timing import costs_of
from engine.systems import find

MOST_PROMPTS, MOST_TOKENS, MOST_SYSTEMS = 20, 72, 16
ALLOWED = f"{FEWEST} to {MOST_PROMPTS} prompts, at most {MOST_TOKENS} new tokens each"
SHOWN = 160  # characters of a prompt
COMMAND = "`python -m engine pays` takes more."


def wish(prompts: object, systems: object, acceptance: object = 0, **settings: Any) -> Settings:
    """How the races are run. Raises `ValueError` for what no race takes and for more than a page may ask."""
    if acceptance != 0:
        forced.checked(acceptance)
    count = len(checked_prompts(prompts))
    if not FEWEST <= count <= MOST_PROMPTS:
        raise ValueError(
            f"“Does it pay?” needs {FEWEST} to {MOST_PROMPTS} prompts here, got {count}. "
            f"{'Add some.' if count < FEWEST else f'Leave some out; {COMMAND}'}"
        )
    named(systems)
    asked = Settings("a prompt", **settings)
    if asked.max_new_tokens > MOST_TOKENS:
        raise ValueError(
            f"“Does it pay?” writes at most {MOST_TOKENS} new tokens a prompt here, got {asked.max_new_tokens:,}. {COMMAND}"
        )
    return asked


def named(systems: object) -> list[str]:
    """The systems' names; an empty list stands for all that the pair allows. Raises `ValueError` for what cannot be asked about."""
    if not isinstance(systems, list | tuple) or not all(isinstance(each, str) for each in systems):
        raise ValueError(f'The systems must be a list of names such as ["tree", "auto"], got {shown(systems)}.')
    if len(systems) > MOST_SYSTEMS:
        raise ValueError(f"“Does it pay?” compares at most {MOST_SYSTEMS} systems here, got {len(systems)}. {COMMAND}")
    for at, name in enumerate(systems):
        if name in systems[:at]:
            raise ValueError(f"{shown(name)} is named twice. Name every system once.")
        system = find(name)
        if not system.guesses or system.guarantee == "lossy":
            why = "keeps no text" if system.guesses else "guesses nothing"
            raise ValueError(f"{shown(name)} {why}, so it cannot pay. Name systems that guess and keep the text.")
    return list(systems)


def results(pair: LoadedPair, prompts: list[str], systems: list[str], acceptance: float = 0, **settings: Any) -> Steps:
    """Races the systems, or all that the pair allows, as the command does. Closing the iterator frees everything.

    Yields plain values between quiet steps. The first carries "start"; "done" counts pieces of work out of "of", and
    "doing" says what comes next. The last carries "end" with the figures, the best system's "costs" and its "point" for the what-if.
    An `acceptance` length above 0 adds what every best setting would give with so many tokens a round, under that name.
    """
    asked = wish(prompts, systems, acceptance, **settings)
    raced, refused = racing.fitting(pair, prompts, asked)
    chosen = named(systems) or racing.chosen(pair, None)
    for name in chosen:
        if reason := racing.allows(pair, find(name)):
            raise ValueError(reason)
    work, done = racing.steps(pair, [prompts[index] for index in raced], chosen, asked), 0
    total = racing.races(len(chosen), len(raced))
    yield {"start": True, "prompts": len(raced), "systems": len(chosen), **progress(0, total, chosen)}
    try:
        while True:
            try:
                step = next(work)
            except StopIteration as end:
                outcome = end.value
                break
            done += step is Quiet.PIECE
            yield progress(done, total, chosen) if step is Quiet.PIECE else step
    finally:
        work.close()
    figures = report(pair, [beginning(prompt, SHOWN) for prompt in prompts], raced, refused, asked, outcome)
    settings_of = [row["setting"] for row in figures["systems"]]
    estimated = {"acceptance": forced.estimates(pair, settings_of, acceptance)} if acceptance else {}
    yield {"end": True, "verdict": words.sentence(figures), **figures, **what_if(pair, outcome, figures), **estimated}


def progress(done: int, total: int, systems: list[str]) -> dict:
    """How far it is, and what comes next in words."""
    if done < len(systems):
        doing = f"Trying settings of {find(systems[done]).title}"
    else:
        each = 1 + len(racing.groups(systems))  # generate() and the races of a prompt
        prompts = (total - len(systems)) // each
        doing = f"Racing prompt {min((done - len(systems)) // each + 1, prompts)} of {prompts}"
    return {"done": done, "of": total, "doing": doing}


def what_if(pair: LoadedPair, outcome: racing.Races, figures: dict) -> dict:
    """What the page's sliders start from: costs of forwards on this machine, and the point that the best system's races measured."""
    best = next(row for row in figures["systems"] if row["name"] == figures["best"])
    costs = costs_of(pair, find(best["setting"]).drafter)
    lanes = outcome.raced[best["name"]]
    point = Point.of(lanes.traces, lanes.plain)
    measured = {
        "decoding": decode_seconds_per_token(lanes.plain) / decode_seconds_per_token(lanes.traces),
        "speedup": best["speedup"],
    }
    return {
        "titles": {row["name"]: find(row["setting"]).title for row in figures["systems"]},
        "costs": costs.to_dict(),
        "point": vars(point) | {"expected": speedup(costs, point), **measured},
    }
