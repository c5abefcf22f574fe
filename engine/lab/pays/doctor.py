"""`python -m engine doctor A B`: tell where two runs part and whether rounding explains it.

A and B are each a race file of this project, or a JSON file {"prompt": "...", "tokens": [ids]} with the ids behind the prompt. Of a
race file the last lane is taken unless --lane-a or --lane-b says another. The target of the pair reads the text that both have in
common. Its logits say how near the two best tokens are there. Rounding explains a difference when both runs' tokens are within a
threshold of the best (`engine.lab.pays.rounding`). At a temperature above 0 the seed's noise is added to the
logits first.

`python -m engine doctor --quantisation 8-bit --prompts FILE` measures what the bits change of the target
(`engine.lab.pays.quantised`).
`python -m engine doctor --drafter FOLDER --prompts FILE` examines a learned drafter instead: how often it guesses right by position, by
context and by kind of text, and what is likely wrong with it. Each cause is tried: other feature layers, tokens shifted by one, another
rope_theta and so on. What helps most is named.
"""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.lab.pays import drafter, quantised
from engine.lab.pays.rounding import rounding_threshold_of
from engine.measure.options import load_pair_of_options
from engine.models.pairs import PAIRS, LoadedPair
from engine.models.text import token_text_or_vocabulary_entry
from engine.race import encode_prompt
from engine.record.chat_turns import ChatTurns
from engine.record.files import MOST_BYTES, read_text_file
from engine.record.parsing import CLOSED, BoundedInt, FailFastList, convert_json_value_validated, parse_json
from engine.record.race_file import LaneRecord, Record
from engine.record.trace import first_divergence
from engine.sampling import Sampling

CAUSES = {
    "equal": "There is nothing to explain.",
    "prompt": "The different prompts explain the difference.",
    "end": "One run goes on where the other ends; no token differs.",
    "setup": "The different temperatures or seeds explain the difference.",
    "rule": "The rule of a run does not promise these very tokens, which explains the difference.",
    "rounding": "Rounding explains the difference: both tokens are within the threshold of the best.",
    "other": "Rounding does not explain the difference. Compare weights, tokenizer, dtype, mask, temperature and seed.",
}


@dataclass(frozen=True)
class TokenFile:
    """A file of tokens: the prompt's text, and the ids of the tokens that were written behind it."""

    __pydantic_config__ = CLOSED

    prompt: str
    tokens: FailFastList[BoundedInt]


@dataclass(frozen=True)
class RunToDiagnose:
    """One run. `name` names it in sentences; `lane` says how it ran, and is None for a file of tokens, which does not."""

    name: str
    prompt: str
    tokens: list[int]
    lane: LaneRecord | None

    @property
    def chat_turns_before_prompt(self) -> ChatTurns:
        """Those of a chat before the prompt."""
        return self.lane.trace.turns if self.lane else ()


def read_run_from_file(path: Path, run_letter: str, lane_number: int | None) -> RunToDiagnose:
    """The run in a file, called by `run_letter` in sentences. Of a race file it is the lane of that number, the last one for None.

    Raises `ValueError` that names the file and what is wrong in it, and `OSError` for a file that cannot be opened.
    """
    text = read_text_file(path, "Name a race file, or a file of a prompt and tokens.")
    try:
        value = parse_json(text, MOST_BYTES)
        if isinstance(value, dict) and "lanes" in value:
            return select_lane_as_run(Record.from_json(text).lanes, path.name, run_letter, lane_number)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    try:
        found = convert_json_value_validated(TokenFile, value, "")
    except ValueError as error:
        raise ValueError(f'{path.name}: {error} Name a race file, or {{"prompt": "...", "tokens": [ids]}}.') from None
    if lane_number not in (None, 0):
        raise ValueError(f"{path.name} holds one run, counted as lane 0; got lane {lane_number}.")
    if not found.tokens:
        raise ValueError(f"{path.name} holds no tokens. Write the ids behind the prompt as a list.")
    return RunToDiagnose(f"{run_letter} ({path.name})", found.prompt, found.tokens, None)


def select_lane_as_run(
    lanes: list[LaneRecord], file_name: str, run_letter: str, lane_number: int | None
) -> RunToDiagnose:
    """The run of one lane. Raises `ValueError` when there is no such lane, and for one that a constraint bound."""
    number = len(lanes) - 1 if lane_number is None else lane_number
    if not 0 <= number < len(lanes):
        raise ValueError(f"it has the lanes 0 to {len(lanes) - 1}, got {number}.")
    trace = lanes[number].trace
    if trace.constraint:
        raise ValueError(
            "it was written under a constraint, and the doctor reads logits without one. Give a free race."
        )
    return RunToDiagnose(
        f"{run_letter} ({file_name}, lane {number}, {trace.system})", trace.prompt, trace.tokens, lanes[number]
    )


def diagnose_runs(pair: LoadedPair, a: RunToDiagnose, b: RunToDiagnose) -> dict:
    """The facts on two runs, as sentences and as values. Raises `ValueError` for runs that cannot be of this pair.

    `cause` is a key of `CAUSES`. `index` counts the tokens behind the prompt from 0; None where none differs.
    """
    for run in (a, b):
        refuse_run_unfit_for_pair(pair, run)
    facts = [f"{run.name} has {len(run.tokens):,} tokens." for run in (a, b)]
    found: dict[str, Any] = dict.fromkeys(("index", "a", "b", "best", "margin", "threshold"))
    index = first_divergence(a.tokens, b.tokens)
    if a.prompt != b.prompt:
        cause = "prompt"
        facts.append(f"The prompts part at character {first_divergence(a.prompt, b.prompt)}.")
    elif index is None:
        cause = "equal"
        facts.append(f"All {len(a.tokens):,} tokens are equal.")
    elif index == min(len(a.tokens), len(b.tokens)):
        cause, found["index"] = "end", index
        shorter = min(a, b, key=lambda run: len(run.tokens))
        stopped = shorter.tokens[-1] in pair.stop_ids
        facts.append(f"Run {shorter.name[0]} ends {'at a stop token' if stopped else 'without a stop token'}.")
    else:
        cause = add_divergence_facts_and_return_cause(pair, a, b, index, found, facts)
    facts.append(CAUSES[cause])
    return {"cause": cause, "rounding": cause == "rounding", **found, "facts": facts}


def refuse_run_unfit_for_pair(pair: LoadedPair, run: RunToDiagnose) -> None:
    """Raises `ValueError` when the run cannot be one of this pair."""
    trace, why = run.lane and run.lane.trace, ""
    outside = [token for token in run.tokens if not 0 <= token < pair.target.vocab]
    if trace and trace.pair != pair.title:
        names = [name for name, each in PAIRS.items() if each.title == trace.pair]
        wanted = f"Pass --pair {names[0]}." if names else "Name the pair that it ran on."
        why = f"ran on the {trace.pair}, and this pair is the {pair.title}. {wanted}"
    elif trace and trace.chat != pair.chat:
        was, asked = ("raw", "with --raw") if pair.chat else ("as a chat message", "without --raw")
        why = f"was sent {was}, and here the target would read it otherwise. Run the doctor {asked}."
    elif outside:
        why = f"has the token {outside[0]:,}; the target's tokens are 0 to {pair.target.vocab - 1:,}."
    elif not (prompt := encode_prompt(pair, run.prompt, run.chat_turns_before_prompt)):
        why = "has an empty prompt, so the target has nothing to read. Give the prompt that ran."
    elif len(prompt) + len(run.tokens) > pair.context:
        why = f"has {len(run.tokens):,} tokens, too many for the context window of {pair.context:,} with its prompt."
    if why:
        raise ValueError(f"{run.name} {why}")


def add_divergence_facts_and_return_cause(
    pair: LoadedPair, a: RunToDiagnose, b: RunToDiagnose, index: int, figures: dict[str, Any], facts: list[str]
) -> str:
    """The cause of two different tokens at `index`. Adds the figures to `figures` and the sentences to `facts`."""
    ids = encode_prompt(pair, a.prompt, a.chat_turns_before_prompt) + a.tokens[:index]
    session = pair.target.open_session(len(ids))
    session.prefill(ids[:-1])
    logits, _ = session.forward(ids[-1:], [len(ids) - 1])
    lanes = [run.lane for run in (a, b) if run.lane]
    traces = [lane.trace for lane in lanes]
    sampling = Sampling()
    if traces:  # noise as a race of this pair makes it
        sampling = Sampling(traces[0].temperature, seed=traces[0].seed, device=pair.target.noise_place)
    scores = sampling.scale_logits_and_add_gumbel_noise(logits, [len(ids)])[0].cpu().double() * (
        sampling.temperature or 1
    )
    (first, second), (best, other) = scores.topk(2)[0].tolist(), scores.topk(2)[1].tolist()
    limit = rounding_threshold_of(pair, logits[0].float(), [trace.dtype for trace in traces])
    names = {
        token: repr(token_text_or_vocabulary_entry(pair.tokenizer, token))
        for token in (best, other, a.tokens[index], b.tokens[index])
    }
    facts += [
        f"They part at token {index + 1:,} behind the prompt: A writes {names[a.tokens[index]]}, B writes {names[b.tokens[index]]}.",
        f"The target's two best tokens there are {names[best]} and {names[other]}, {first - second:.3g} logits apart.",
    ]
    below = []
    for key, run in (("a", a), ("b", b)):
        token = run.tokens[index]
        below.append(first - float(scores[token]))
        figures[key] = {
            "token": token,
            "text": token_text_or_vocabulary_entry(pair.tokenizer, token),
            "below_best": below[-1],
        }
        facts.append(f"Token {names[token]} of {key.upper()} is {below[-1]:.3g} logits below the best.")
    figures |= {"index": index, "best": [best, other], "margin": first - second, "threshold": limit}
    kinds = " and ".join(sorted({pair.dtype, *(trace.dtype for trace in traces)}))
    if sampling.temperature:
        facts.append(f"These logits hold the noise of seed {sampling.seed} at temperature {sampling.temperature:g}.")
    facts.append(f"Rounding in {kinds} may turn around logits that are up to {limit:.3g} apart here.")
    if not lanes:
        facts.append("The files name no temperature, so both runs are taken as greedy.")
    return name_divergence_cause(
        [(lane.trace.temperature, lane.trace.seed, lane.guarantee) for lane in lanes], max(below) <= limit
    )


def name_divergence_cause(temperatures_seeds_and_guarantees: list[tuple[float, int, str]], is_near_tie: bool) -> str:
    """Why tokens differ. `temperatures_seeds_and_guarantees` are temperature, seed and guarantee of the runs that state them.
    `is_near_tie`: both are near the best.
    """
    noises = {(temperature, seed if temperature else 0) for temperature, seed, _ in temperatures_seeds_and_guarantees}
    if len(noises) > 1:
        return "setup"
    if any(
        kind == "lossy" or (kind == "law" and temperature) for temperature, _, kind in temperatures_seeds_and_guarantees
    ):
        return "rule"
    return "rounding" if is_near_tie else "other"


def main(options: Namespace) -> dict:
    if options.prompts is not None and options.a is None:
        plain = options.quantisation in (None, "none") or options.drafter is not None
        return drafter.main(options) if plain else quantised.main(options)
    if options.prompts is not None or options.b is None:
        raise ValueError(
            "Give two runs, A and B, or --drafter FOLDER and --prompts FILE for a learned drafter, or "
            "--quantisation 8-bit and --prompts FILE for what the bits change of a target."
        )
    a, b = read_run_from_file(options.a, "A", options.lane_a), read_run_from_file(options.b, "B", options.lane_b)
    pair = load_pair_of_options(options)
    found = diagnose_runs(pair, a, b) | {"pair": pair.title, "dtype": pair.dtype}
    print("\n".join(found["facts"]))
    return found
