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

from engine.lab.pays.experiments import CAUSES, Experiment, layers_needed_by_experiments, list_experiments
from engine.lab.pays.followed import (
    DEPTH,
    FREELY,
    LENGTHS,
    DraftingView,
    FavouriteRounds,
    TargetText,
    count_tokens_by_round,
    record_favourites_along_texts,
    write_target_texts,
)
from engine.measure.options import CURVE, load_pair_of_options, pair_of_options
from engine.measure.prompts import Prompt, read_prompt_files
from engine.models.pairs import LoadedPair
from engine.nets import Net, load_net_from_folder
from engine.nets.assistant import GemmaAssistant
from engine.record.parsing import quote

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

    experiment: Experiment
    tokens: np.ndarray
    where: np.ndarray


def drafter_folder_of(drafter_path: Path) -> Path:
    """The drafter's own folder. Raises `ValueError` where the folder holds none, or several."""
    if (drafter_path / "config.json").is_file():
        return drafter_path
    inside = sorted(path.parent for path in drafter_path.glob("*/config.json"))
    if len(inside) != 1:
        names = f"holds the drafters {', '.join(path.name for path in inside)}" if inside else "holds no drafter"
        raise ValueError(
            f"--drafter {quote(str(drafter_path))} {names}. Name the folder of one, with config.json and safetensors."
        )
    return inside[0]


def trained_context_length_of(folder: Path, window: int) -> int:
    """The longest context in tokens that the config says the drafter was trained for; 0 for none, and for the target's own `window`."""
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    layer = said.get("transformer_layer_config")
    found = (layer if isinstance(layer, dict) else said).get("max_position_embeddings")
    return found if type(found) is int and 0 < found < window else 0


@dataclass(frozen=True)
class TrainingOutcome:
    """How the training of a drafter here ended, by its folder: after so many `tokens`, the share of first guesses that were right."""

    tokens: int
    right: float

    @classmethod
    def read_training(cls, folder: Path) -> "TrainingOutcome | None":
        """Reads the last line of the folder's curve. None without a curve, and where that line lacks the figures."""
        try:
            lines = (folder / CURVE).read_text(encoding="utf-8").strip().splitlines()
            last = json.loads(lines[-1])
            return cls(int(last["tokens"]), float(last["depth 1 top1"]))
        except (OSError, IndexError, KeyError, TypeError, ValueError):
            return None


def run_all_experiments(
    pair: LoadedPair, net: Net, texts: list[TargetText], trained_length: int
) -> tuple[FavouriteRounds, list[ExperimentResult]]:
    """Runs the unchanged drafter and every experiment along the texts. The last experiment is a control with features of other
    positions.
    """
    plain, tried = record_favourites_along_texts(pair, net, texts), []
    mixed = Experiment("target", "features of other places", net, DraftingView(mixed=True))
    for experiment in tqdm(
        [*list_experiments(pair, net, trained_length, int(plain.contexts.max())), mixed], desc="experiments"
    ):
        drafts = experiment.net is not net or experiment.view != DraftingView()
        seen = record_favourites_along_texts(pair, experiment.net, texts, experiment.view) if drafts else plain
        tokens = count_tokens_by_round(seen.match_favourites(experiment.late, experiment.renamed))
        tried.append(ExperimentResult(experiment, tokens, plain.contexts > experiment.behind))
    return plain, tried


def is_clear_gain(gains: np.ndarray, texts: np.ndarray) -> bool:
    """Whether the mean gain `[R]` is above 0 by `CLEAR` standard errors. Rounds of one text count as one."""
    means = np.array([gains[texts == text].mean() for text in np.unique(texts)])
    return len(means) > 1 and means.mean() > CLEAR * means.std(ddof=1) / math.sqrt(len(means))


def find_best_repair(plain: FavouriteRounds, results: list[ExperimentResult]) -> ExperimentResult | None:
    """The experiment that raises the tokens of all rounds most, of those with a clear gain; None where none has one."""
    now = count_tokens_by_round(plain.match_favourites())
    helping = [each for each in results if each.tokens[each.where].mean() >= (1 + LEAST) * now[each.where].mean()]
    clear = [each for each in helping if is_clear_gain((each.tokens - now)[each.where], plain.texts[each.where])]
    causes = {each.experiment.cause for each in clear}
    able = [each for each in helping if each.experiment.cause in causes]
    return max(able, key=lambda each: float(((each.tokens - now) * each.where).mean()), default=None)


def judge_drafter(
    net: Net,
    texts: list[TargetText],
    plain: FavouriteRounds,
    results: list[ExperimentResult],
    trained_length: int,
    training: TrainingOutcome | None = None,
) -> tuple[str, str]:
    """The cause, a key of `CAUSES` or `HEALTHY`, and why."""
    now, mixed, repairs = count_tokens_by_round(plain.match_favourites()), results[-1].tokens, results[:-1]
    if best := find_best_repair(plain, repairs):
        experiment, before, would = best.experiment, now[best.where].mean(), best.tokens[best.where].mean()
        behind = f" behind contexts of more than {experiment.behind:,} tokens" if experiment.behind else ""
        gives = f"the drafter would give {would:.2f} tokens a round{behind}, now {before:.2f}."
        return experiment.cause, f"with {experiment.repair} {gives}"
    causes = ", ".join(dict.fromkeys(NAMED.get(each.experiment.cause, each.experiment.cause) for each in repairs))
    few = now.mean() - 1 < FEW and not is_clear_gain(now - mixed, plain.texts)
    if few or is_clear_gain(mixed - 1 - (1 - USELESS) * (now - 1), plain.texts):
        first = float(plain.match_favourites()[:, 0].mean())
        if training and training.right <= KNOWN * max(first, LEAST):
            return "hardly", (
                f"its first guess is right {100 * first:.0f} % of the time here, and was {100 * training.right:.0f} % of the time when "
                f"its training ended after {training.tokens:,} tokens. The same `python -m engine train {net.config.kind}` with more "
                "--minutes and more --own-rows goes on from there."
            )
        told = f"A drafter that was hardly trained looks the same, and no {CURVE} in its folder tells of its training."
        if training:
            told = f"When its training ended, its first guess was right {100 * training.right:.0f} % of the time."
        return "target", (
            f"with features of other places it gives {mixed.mean():.2f} tokens a round, now {now.mean():.2f} tokens a round, "
            f"so that this target's features tell it nothing; {causes} were tried too. {told}"
        )
    bound = trained_length or SHORT
    long = plain.contexts > bound
    if is_clear_loss(now, ~long, long, plain.texts):
        return "context", (
            f"it gives {now[~long].mean():.2f} tokens a round behind up to {bound:,} tokens and {now[long].mean():.2f} behind more, "
            f"and no window clearly raises that; {causes} were tried too."
        )
    free = np.array([texts[number].group == FREELY for number in plain.texts])
    lacking = missing_vocabulary_share_of(net, texts)
    if free.any() and (lacking > MISSING or is_clear_loss(now, free, ~free & ~long, plain.texts)):
        lacks = f", and its vocabulary lacks {100 * lacking:.0f} % of these texts' tokens" if lacking > MISSING else ""
        return "text", (
            f"it gives {now[~free].mean():.2f} tokens a round there and {now[free].mean():.2f} in the target's free writing{lacks}; "
            "a drafter of this project's own form is trained on by "
            f"`python -m engine train {net.config.kind} --prompts FILE --start FOLDER --out FOLDER`."
        )
    return HEALTHY, f"no experiment clearly raises that: {causes}, another target and other text were tried."


def is_clear_loss(tokens: np.ndarray, is_in_group: np.ndarray, is_in_reference: np.ndarray, texts: np.ndarray) -> bool:
    """Whether rounds `is_in_reference` give clearly less than those `is_in_group`, both bool `[R]`, by `LOST` of the right guesses
    at least.
    """
    means = [
        [tokens[part & (texts == text)].mean() for text in np.unique(texts[part])]
        for part in (is_in_group, is_in_reference)
    ]
    if min(map(len, means)) < 2:
        return False
    error = math.sqrt(sum(np.var(each, ddof=1) / len(each) for each in means))
    gap = float(np.mean(means[0]) - np.mean(means[1]))
    return gap > CLEAR * error and gap > LOST * float(np.mean(means[0]) - 1)


def missing_vocabulary_share_of(net: Net, texts: list[TargetText]) -> float:
    """Share of the tokens behind prompts that the drafter's own vocabulary lacks, 0 where it has the target's."""
    vocabulary = getattr(net, "vocabulary", None)
    if vocabulary is None:
        return 0.0
    written = [token for text in texts if text.group != FREELY for token in text.ids[text.start :]]
    return float(np.mean(~np.isin(written, vocabulary.cpu().numpy())))


def acceptance_by_depth(plain: FavouriteRounds) -> Iterator[dict]:
    """For each depth how often it was reached by right guesses, and how often the guess there was right too."""
    right = plain.match_favourites()
    reached = np.ones(len(right), dtype=bool)
    for depth in range(DEPTH):
        reached = reached & (plain.favourites[:, depth] >= 0)
        if not reached.any():
            return
        yield {"depth": depth + 1, "rounds": int(reached.sum()), "accepted": float(right[reached, depth].mean())}
        reached = reached & right[:, depth]


def tokens_by_context(plain: FavouriteRounds, trained_length: int) -> list[dict]:
    """Tokens a round by the length of the context, in tokens from `least` to `most`, None for the last; `trained_length` is a bound."""
    bounds = sorted({0, 64, 128, *LENGTHS, trained_length})
    now, found = count_tokens_by_round(plain.match_favourites()), []
    for least, most in zip(bounds, [*bounds[1:], None], strict=True):
        inside = (plain.contexts > least) & (plain.contexts <= (most or math.inf))
        if inside.any():
            figures = {"rounds": int(inside.sum()), "tokens_a_round": float(now[inside].mean())}
            beyond = bool(trained_length) and least >= trained_length
            found.append({"least": least + 1, "most": most, **figures, "beyond_training": beyond})
    return found


def tokens_by_group(plain: FavouriteRounds, texts: list[TargetText]) -> list[dict]:
    """Tokens a round by the kind of text."""
    now, groups = (
        count_tokens_by_round(plain.match_favourites()),
        np.array([texts[number].group for number in plain.texts]),
    )
    return [
        {"group": group, "rounds": int((groups == group).sum()), "tokens_a_round": float(now[groups == group].mean())}
        for group in dict.fromkeys(groups.tolist())
    ]


def diagnose_drafter(
    pair: LoadedPair, net: Net, prompts: list[Prompt], trained_length: int, training: TrainingOutcome | None = None
) -> dict[str, Any]:
    """All figures of a drafter on the prompts, with the `cause` and the `sentence`. `trained_length` is as in `write_target_texts`."""
    texts = write_target_texts(
        pair, prompts, trained_length, layers_needed_by_experiments(net, pair.target.config.num_hidden_layers)
    )
    if not texts:
        raise ValueError(
            f"The target writes fewer than {DEPTH + 2} tokens behind every prompt, so nothing can be guessed."
        )
    plain, tried = run_all_experiments(pair, net, texts, trained_length)
    now = count_tokens_by_round(plain.match_favourites())
    cause, why = judge_drafter(net, texts, plain, tried, trained_length, training)
    sentence = f"The drafter gives {now.mean():.2f} tokens a round, and {why}"
    if cause != HEALTHY:
        sentence = f"The likeliest cause is that {CAUSES[cause]}: {why}"
    return {
        "drafter": net.config.kind,
        "pair": pair.title,
        "dtype": pair.dtype,
        "texts": len(texts),
        "rounds": len(plain.contexts),
        "tokens_a_round": float(now.mean()),
        "trained_context": trained_length,
        "by_depth": list(acceptance_by_depth(plain)),
        "by_context": tokens_by_context(plain, trained_length),
        "by_group": tokens_by_group(plain, texts),
        "experiments": [
            {
                "cause": each.experiment.cause,
                "with": each.experiment.repair,
                "rounds": int(each.where.sum()),
                "tokens_a_round": float(each.tokens[each.where].mean()),
                "without": float(now[each.where].mean()),
            }
            for each in tried
        ],
        "cause": cause,
        "sentence": sentence,
    }


def format_table(figures: dict[str, Any]) -> str:
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
    pair = load_pair_of_options(options, given.without_drafters)
    net = load_net_from_folder(folder, pair.target.model)
    if isinstance(net, GemmaAssistant):
        raise ValueError(
            f"{folder.name} is an assistant of Gemma 4, which reads the target's cache, and the doctor shows a drafter hidden states. "
            "Measure it with `python -m engine bench --target FOLDER --drafter FOLDER --systems mtp`."
        )
    found = diagnose_drafter(
        pair, net, prompts, trained_context_length_of(folder, pair.context), TrainingOutcome.read_training(folder)
    )
    print(format_table(found))
    return found
