"""The doctor of a learned drafter: acceptance by position, context and kind of text, and the likeliest cause of a bad one.

What raises its tokens a round most is named. Where no repair helps, two comparisons remain: with features of other places, and with
the target's free writing.
"""

import json
import math
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from engine.lab.pays.experiments import CAUSES, RepairExperiment, layers_needed_by_experiments, list_repair_experiments
from engine.lab.pays.followed import (
    DEPTH,
    FREELY,
    LENGTHS,
    DrafterInputChange,
    TargetWrittenText,
    TopGuessesByRound,
    count_tokens_by_round,
    record_top_guesses_along_texts,
    write_texts_with_hidden_states,
)
from engine.measure.options import CURVE, load_pair_of_options, pair_of_options
from engine.measure.prompts import Prompt, read_prompt_files
from engine.models.pairs import LoadedPair
from engine.nets import Net, load_net_from_folder
from engine.nets.assistant import GemmaAssistant
from engine.record.parsing import format_value_for_error

CLEAR = 3.0  # standard errors over texts that a difference must have
LEAST = 0.05  # of the tokens a round, which a repair must add
KNOWN = (
    1.5  # times what it guessed right at the end of its training: a drafter that was better then is not hardly trained
)
USELESS, FEW = 0.5, 0.5  # of the right guesses, which features must be worth; and right guesses a round that are few
LOST = 0.5  # of the right guesses: a drafter that loses more behind long contexts, or behind prompts, was not trained for them
SHORT = 256  # tokens; longer contexts are long where nothing says what the drafter was trained for
MISSING = 0.1  # share of the texts' tokens; a vocabulary that lacks more was chosen on other text
HEALTHY = "none"
# What was tried, where it is not called as its cause
NAMED = {"steps": "one step at a time", "shifted": "shifted tokens", "vocabulary": "the vocabulary map"}


@dataclass(frozen=True, eq=False)
class ExperimentResult:
    """An experiment and what it gave: tokens of each round, `[R]`, and the rounds that it is judged by, bool `[R]`."""

    experiment: RepairExperiment
    tokens_by_round: np.ndarray
    is_judged_round: np.ndarray


def drafter_folder_of(drafter_path: Path) -> Path:
    """The drafter's own folder. Raises `ValueError` where the folder holds none, or several."""
    if (drafter_path / "config.json").is_file():
        return drafter_path
    inside = sorted(path.parent for path in drafter_path.glob("*/config.json"))
    if len(inside) != 1:
        names = f"holds the drafters {', '.join(path.name for path in inside)}" if inside else "holds no drafter"
        raise ValueError(
            f"--drafter {format_value_for_error(str(drafter_path))} {names}. Name the folder of one, with config.json and safetensors."
        )
    return inside[0]


def trained_context_length_of(drafter_folder: Path, target_window: int) -> int:
    """The longest context in tokens that the config says it was trained for; 0 for none, and for the target's `target_window`."""
    said = json.loads((drafter_folder / "config.json").read_text(encoding="utf-8"))
    layer = said.get("transformer_layer_config")
    found = (layer if isinstance(layer, dict) else said).get("max_position_embeddings")
    return found if type(found) is int and 0 < found < target_window else 0


@dataclass(frozen=True)
class TrainingOutcome:
    """How a drafter's training here ended, by its folder: after `trained_tokens`, the share of first guesses that were right."""

    trained_tokens: int
    first_guess_accuracy: float

    @classmethod
    def read_from_training_curve(cls, drafter_folder: Path) -> "TrainingOutcome | None":
        """Reads the last line of the folder's curve. None without a curve, and where that line lacks the figures."""
        try:
            lines = (drafter_folder / CURVE).read_text(encoding="utf-8").strip().splitlines()
            last = json.loads(lines[-1])
            return cls(int(last["tokens"]), float(last["depth 1 top1"]))
        except (OSError, IndexError, KeyError, TypeError, ValueError):
            return None


def run_unchanged_and_all_experiments(
    pair: LoadedPair, net: Net, texts: list[TargetWrittenText], trained_context_length: int
) -> tuple[TopGuessesByRound, list[ExperimentResult]]:
    """The unchanged drafter and every experiment along the texts. The last one is a control with features of other positions."""
    plain, tried = record_top_guesses_along_texts(pair, net, texts), []
    mixed = RepairExperiment("target", "features of other places", net, DrafterInputChange(reverses_features=True))
    for experiment in tqdm(
        [*list_repair_experiments(pair, net, trained_context_length, int(plain.context_lengths.max())), mixed],
        desc="experiments",
    ):
        drafts = experiment.net is not net or experiment.input_change != DrafterInputChange()
        seen = record_top_guesses_along_texts(pair, experiment.net, texts, experiment.input_change) if drafts else plain
        tokens = count_tokens_by_round(seen.match_guesses_with_text(experiment.depth_offset, experiment.map_token_ids))
        tried.append(ExperimentResult(experiment, tokens, plain.context_lengths > experiment.min_context_tokens))
    return plain, tried


def is_significant_mean_gain(gains: np.ndarray, text_numbers: np.ndarray) -> bool:
    """Whether the mean gain `[R]` is above 0 by `CLEAR` standard errors. Rounds of one text count as one."""
    means = np.array([gains[text_numbers == text].mean() for text in np.unique(text_numbers)])
    return len(means) > 1 and means.mean() > CLEAR * means.std(ddof=1) / math.sqrt(len(means))


def find_best_repair(unchanged_rounds: TopGuessesByRound, results: list[ExperimentResult]) -> ExperimentResult | None:
    """The experiment that raises the tokens of all rounds most, of those with a clear gain; None where none has one."""
    now = count_tokens_by_round(unchanged_rounds.match_guesses_with_text())
    helping = [
        each
        for each in results
        if each.tokens_by_round[each.is_judged_round].mean() >= (1 + LEAST) * now[each.is_judged_round].mean()
    ]
    clear = [
        each
        for each in helping
        if is_significant_mean_gain(
            (each.tokens_by_round - now)[each.is_judged_round], unchanged_rounds.text_numbers[each.is_judged_round]
        )
    ]
    causes = {each.experiment.cause for each in clear}
    able = [each for each in helping if each.experiment.cause in causes]
    return max(able, key=lambda each: float(((each.tokens_by_round - now) * each.is_judged_round).mean()), default=None)


def find_likeliest_cause_and_reason(
    net: Net,
    texts: list[TargetWrittenText],
    unchanged_rounds: TopGuessesByRound,
    results: list[ExperimentResult],
    trained_context_length: int,
    training_outcome: TrainingOutcome | None = None,
) -> tuple[str, str]:
    """The cause, a key of `CAUSES` or `HEALTHY`, and why."""
    now = count_tokens_by_round(unchanged_rounds.match_guesses_with_text())
    mixed, repairs = results[-1].tokens_by_round, results[:-1]
    if best := find_best_repair(unchanged_rounds, repairs):
        experiment, judged = best.experiment, best.is_judged_round
        before, would = now[judged].mean(), best.tokens_by_round[judged].mean()
        least = experiment.min_context_tokens
        behind = f" behind contexts of more than {least:,} tokens" if least else ""
        gives = f"the drafter would give {would:.2f} tokens a round{behind}, now {before:.2f}."
        return experiment.cause, f"with {experiment.repair} {gives}"
    causes = ", ".join(dict.fromkeys(NAMED.get(each.experiment.cause, each.experiment.cause) for each in repairs))
    few = now.mean() - 1 < FEW and not is_significant_mean_gain(now - mixed, unchanged_rounds.text_numbers)
    if few or is_significant_mean_gain(mixed - 1 - (1 - USELESS) * (now - 1), unchanged_rounds.text_numbers):
        first = float(unchanged_rounds.match_guesses_with_text()[:, 0].mean())
        if training_outcome and training_outcome.first_guess_accuracy <= KNOWN * max(first, LEAST):
            return "hardly", (
                f"its first guess is right {100 * first:.0f} % of the time here, and was "
                f"{100 * training_outcome.first_guess_accuracy:.0f} % of the time when its training ended after "
                f"{training_outcome.trained_tokens:,} tokens. The same `python -m engine train {net.config.kind}` with more --minutes "
                "and more --own-rows goes on from there."
            )
        told = f"A drafter that was hardly trained looks the same, and no {CURVE} in its folder tells of its training."
        if training_outcome:
            then = f"{100 * training_outcome.first_guess_accuracy:.0f} % of the time"
            told = f"When its training ended, its first guess was right {then}."
        return "target", (
            f"with features of other places it gives {mixed.mean():.2f} tokens a round, now {now.mean():.2f} tokens a round, "
            f"so that this target's features tell it nothing; {causes} were tried too. {told}"
        )
    bound = trained_context_length or SHORT
    long = unchanged_rounds.context_lengths > bound
    if are_suspect_rounds_significantly_worse(now, ~long, long, unchanged_rounds.text_numbers):
        return "context", (
            f"it gives {now[~long].mean():.2f} tokens a round behind up to {bound:,} tokens and {now[long].mean():.2f} behind more, "
            f"and no window clearly raises that; {causes} were tried too."
        )
    free = np.array([texts[number].group == FREELY for number in unchanged_rounds.text_numbers])
    lacking = share_of_tokens_outside_drafter_vocab(net, texts)
    if free.any() and (
        lacking > MISSING
        or are_suspect_rounds_significantly_worse(now, free, ~free & ~long, unchanged_rounds.text_numbers)
    ):
        lacks = f", and its vocabulary lacks {100 * lacking:.0f} % of these texts' tokens" if lacking > MISSING else ""
        return "text", (
            f"it gives {now[~free].mean():.2f} tokens a round there and {now[free].mean():.2f} in the target's free writing{lacks}; "
            "a drafter of this project's own form is trained on by "
            f"`python -m engine train {net.config.kind} --prompts FILE --start FOLDER --out FOLDER`."
        )
    return HEALTHY, f"no experiment clearly raises that: {causes}, another target and other text were tried."


def are_suspect_rounds_significantly_worse(
    tokens_by_round: np.ndarray, is_usual_round: np.ndarray, is_suspect_round: np.ndarray, text_numbers: np.ndarray
) -> bool:
    """Whether suspect rounds give clearly less than usual ones, both bool `[R]`, by `LOST` of the right guesses at least."""
    means = [
        [tokens_by_round[part & (text_numbers == text)].mean() for text in np.unique(text_numbers[part])]
        for part in (is_usual_round, is_suspect_round)
    ]
    if min(map(len, means)) < 2:
        return False
    error = math.sqrt(sum(np.var(each, ddof=1) / len(each) for each in means))
    gap = float(np.mean(means[0]) - np.mean(means[1]))
    return gap > CLEAR * error and gap > LOST * float(np.mean(means[0]) - 1)


def share_of_tokens_outside_drafter_vocab(net: Net, texts: list[TargetWrittenText]) -> float:
    """Share of the tokens behind prompts that the drafter's own vocabulary lacks, 0 where it has the target's."""
    vocabulary = getattr(net, "vocabulary", None)
    if vocabulary is None:
        return 0.0
    written = [token for text in texts if text.group != FREELY for token in text.ids[text.continuation_start :]]
    return float(np.mean(~np.isin(written, vocabulary.cpu().numpy())))


def acceptance_by_depth(rounds: TopGuessesByRound) -> Iterator[dict]:
    """For each depth how often it was reached by right guesses, and how often the guess there was right too."""
    right = rounds.match_guesses_with_text()
    reached = np.ones(len(right), dtype=bool)
    for depth in range(DEPTH):
        reached = reached & (rounds.top_guesses[:, depth] >= 0)
        if not reached.any():
            return
        yield {"depth": depth + 1, "rounds": int(reached.sum()), "accepted": float(right[reached, depth].mean())}
        reached = reached & right[:, depth]


def mean_tokens_per_round_by_context_length(rounds: TopGuessesByRound, trained_context_length: int) -> list[dict]:
    """Tokens a round by the context's length, in tokens from `least` to `most`, None for the last; the trained length is a bound."""
    bounds = sorted({0, 64, 128, *LENGTHS, trained_context_length})
    now, found = count_tokens_by_round(rounds.match_guesses_with_text()), []
    for least, most in zip(bounds, [*bounds[1:], None], strict=True):
        inside = (rounds.context_lengths > least) & (rounds.context_lengths <= (most or math.inf))
        if inside.any():
            figures = {"rounds": int(inside.sum()), "tokens_a_round": float(now[inside].mean())}
            beyond = bool(trained_context_length) and least >= trained_context_length
            found.append({"least": least + 1, "most": most, **figures, "beyond_training": beyond})
    return found


def mean_tokens_per_round_by_text_group(rounds: TopGuessesByRound, texts: list[TargetWrittenText]) -> list[dict]:
    """Tokens a round by the kind of text."""
    now = count_tokens_by_round(rounds.match_guesses_with_text())
    groups = np.array([texts[number].group for number in rounds.text_numbers])
    return [
        {"group": group, "rounds": int((groups == group).sum()), "tokens_a_round": float(now[groups == group].mean())}
        for group in dict.fromkeys(groups.tolist())
    ]


def diagnose_drafter(
    pair: LoadedPair,
    net: Net,
    prompts: list[Prompt],
    trained_context_length: int,
    training_outcome: TrainingOutcome | None = None,
) -> dict[str, Any]:
    """All figures of a drafter on the prompts, with the `cause` and the `sentence`."""
    layers = layers_needed_by_experiments(net, pair.target.config.num_hidden_layers)
    texts = write_texts_with_hidden_states(pair, prompts, trained_context_length, layers)
    if not texts:
        raise ValueError(
            f"The target writes fewer than {DEPTH + 2} tokens behind every prompt, so nothing can be guessed."
        )
    plain, tried = run_unchanged_and_all_experiments(pair, net, texts, trained_context_length)
    now = count_tokens_by_round(plain.match_guesses_with_text())
    cause, why = find_likeliest_cause_and_reason(net, texts, plain, tried, trained_context_length, training_outcome)
    sentence = f"The drafter gives {now.mean():.2f} tokens a round, and {why}"
    if cause != HEALTHY:
        sentence = f"The likeliest cause is that {CAUSES[cause]}: {why}"
    return {
        "drafter": net.config.kind,
        "pair": pair.title,
        "dtype": pair.dtype,
        "texts": len(texts),
        "rounds": len(plain.context_lengths),
        "tokens_a_round": float(now.mean()),
        "trained_context": trained_context_length,
        "by_depth": list(acceptance_by_depth(plain)),
        "by_context": mean_tokens_per_round_by_context_length(plain, trained_context_length),
        "by_group": mean_tokens_per_round_by_text_group(plain, texts),
        "experiments": [
            {
                "cause": each.experiment.cause,
                "with": each.experiment.repair,
                "rounds": int(each.is_judged_round.sum()),
                "tokens_a_round": float(each.tokens_by_round[each.is_judged_round].mean()),
                "without": float(now[each.is_judged_round].mean()),
            }
            for each in tried
        ],
        "cause": cause,
        "sentence": sentence,
    }


def format_drafter_diagnosis(figures: dict[str, Any]) -> str:
    """The figures in a few lines, for people."""
    lines = [
        f"{figures['drafter']} for the target of the {figures['pair']}, in {figures['rounds']:,} rounds "
        f"along {figures['texts']} of its texts",
        f"tokens a round  {figures['tokens_a_round']:.2f}",
        "by position     " + "  ".join(f"{row['depth']}: {100 * row['accepted']:.0f} %" for row in figures["by_depth"]),
    ]
    spans = []
    for row in figures["by_context"]:
        beyond = ", beyond training" if row["beyond_training"] else ""
        span = f"{row['least']:,} on" if row["most"] is None else f"{row['least']:,} to {row['most']:,}"
        spans.append(f"{span}{beyond}: {row['tokens_a_round']:.2f}")
    kinds = (f"{row['group']}: {row['tokens_a_round']:.2f}" for row in figures["by_group"])
    lines += ["by context      " + "  ".join(spans), "by kind of text " + "  ".join(kinds)]
    best = sorted(figures["experiments"], key=lambda row: row["without"] - row["tokens_a_round"])[:5]
    tries = (f"  {row['with']:<52}{row['tokens_a_round']:.2f}, without {row['without']:.2f}" for row in best)
    return "\n".join([*lines, "with …", *tries, "", figures["sentence"]])


def main(options: Namespace) -> dict[str, Any]:
    """Raises `ValueError` for a drafter whose files do not fit the target, with the sentence of what reads them."""
    if options.drafter is None:
        raise ValueError("--prompts needs --drafter: name the folder of the learned drafter to examine.")
    folder, prompts = drafter_folder_of(Path(options.drafter)), read_prompt_files(options.prompts)
    given = pair_of_options(Namespace(**{**vars(options), "drafter": None}))
    pair = load_pair_of_options(options, given.target_only)
    net = load_net_from_folder(folder, pair.target.model)
    if isinstance(net, GemmaAssistant):
        raise ValueError(
            f"{folder.name} is an assistant of Gemma 4, which reads the target's cache, and the doctor shows a drafter hidden states. "
            "Measure it with `python -m engine bench --target FOLDER --drafter FOLDER --systems mtp`."
        )
    found = diagnose_drafter(
        pair,
        net,
        prompts,
        trained_context_length_of(folder, pair.context),
        TrainingOutcome.read_from_training_curve(folder),
    )
    print(format_drafter_diagnosis(found))
    return found
