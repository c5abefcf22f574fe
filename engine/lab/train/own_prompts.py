"""A learned drafter that learns on from its target's text after a person's own prompts. Knows the comparison; knows no recipe."""

import hashlib
import json
import math
import shutil
from argparse import Namespace
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from engine.forward.runner import Runner
from engine.forward.session import default_feature_layers
from engine.lab.train.data import DOMAINS
from engine.lab.train.learned import (
    TrainingAndValidationRows,
    open_training_and_validation_batches,
    train_learned_drafter,
    train_net_by_recipe,
)
from engine.lab.train.writing import ROW, TEMPERATURES, continue_prompts_to_full_rows, load_or_write_rows
from engine.measure.prompts import read_prompts
from engine.measure.verdict import CONFIDENCE, draw_bootstrap_indices, percentile_ends
from engine.models.loading import load
from engine.models.pairs import PAIRS, LoadedPair, Pair, short_name_of
from engine.nets import Net, load_net_from_folder
from engine.nets.dflash import DFlash
from engine.nets.eagle import Eagle
from engine.nets.medusa import Medusa
from engine.race import Race, Settings, encode_prompt
from engine.record.parsing import format_value_for_error
from engine.sampling import build_generator_from_key

FEWEST = 12  # prompts, so that three are held out
HELD_OUT = 0.25  # share of the prompts, never trained on
OWN_ROWS, HELD_OUT_ROWS = 512, 32  # rows of `ROW` tokens that the target writes
AT_ONCE = 32  # texts, so that a few hundred rows have every temperature
LONGEST = ROW // 2  # tokens of a prompt that a row begins with; the target needs room to write
RATE = 0.3  # share of the recipe's rate: at the full one, trained weights drift off before they gain
SAVE_EVERY = 60.0  # seconds
SHAPE = "6x4x16"  # depth, width and nodes in which every drafter is compared
TOKENS = 96  # new tokens a held-out prompt


def continue_training_and_save_if_better(options: Namespace) -> dict:
    """Train `options.recipe` on from `options.start`, and write it to `options.out/NAME` where it became better. Its figures.

    Raises `ValueError` for prompts, options and drafters that cannot be trained on or with.
    """
    refuse_wrong_continuation_options(options)
    learn, held_out = split_prompts_into_training_and_held_out(
        [prompt.text for prompt in read_prompts(options.prompts, min_count=FEWEST)]
    )
    alone = target_pair_of_options(options).target_only
    pair = replace(load(alone, options.device), sends_raw_prompts=options.raw)
    before, net = (load_net_from_folder(options.start, pair.target.model) for _ in range(2))
    refuse_untrainable_drafter(net, options, pair.target.config.num_hidden_layers)
    ids, held_ids = (tokenise_prompt_endings(pair, prompts) for prompts in (learn, held_out))

    rows = options.own_rows or OWN_ROWS
    work = options.work / "own prompts" / hashed_run_folder_name(options, alone, [*learn, *held_out], rows)
    work.mkdir(parents=True, exist_ok=True)
    was = race_and_count_tokens_and_forwards(pair, before, held_out, "before")

    def write_rows() -> TrainingAndValidationRows:
        ends = pair.stop_ids
        return (
            load_or_write_continuation_rows(pair.target, ids, rows, work / "own.npy", ends),
            load_or_write_continuation_rows(pair.target, held_ids, HELD_OUT_ROWS, work / "held out.npy", ends),
        )

    seen = open_training_and_validation_batches(pair.target.model, write_rows, work)
    train_net_by_recipe(net.requires_grad_(True), options, seen, work, RATE, SAVE_EVERY)
    net.save(work / "trained")
    now = race_and_count_tokens_and_forwards(
        pair, load_net_from_folder(work / "trained", pair.target.model), held_out, "after"
    )

    about = {"drafter": options.recipe, "target": pair.title, "prompts": len(learn), "rows": rows}
    figures = about | compare_tau(was, now)
    folder = options.out / options.recipe
    if figures["after"] > figures["before"]:
        shutil.copytree(work / "trained", folder, dirs_exist_ok=True)
        (folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(describe_outcome(figures, folder, options.start))
    return figures


def train_new_drafter_and_measure_tau(options: Namespace) -> dict:
    """Trains a first drafter `options.recipe` on requests of which most are own prompts, and returns its figures on held-out ones.

    Raises `ValueError` for prompts and options that cannot be trained with.
    """
    learn, held_out = split_prompts_into_training_and_held_out(
        [prompt.text for prompt in read_prompts(options.prompts, min_count=FEWEST)]
    )
    train_learned_drafter(options, (learn, held_out))
    pair = replace(load(target_pair_of_options(options).target_only, options.device), sends_raw_prompts=options.raw)
    folder = options.out / options.recipe
    tokens, forwards = (
        race_and_count_tokens_and_forwards(pair, load_net_from_folder(folder, pair.target.model), held_out, "after")
        .sum(0)
        .tolist()
    )
    figures = {"drafter": options.recipe, "target": pair.title, "prompts": len(learn), "held_out": len(held_out)}
    figures["tokens_a_round"] = tokens / forwards
    where = f"on {len(held_out)} held-out prompts"
    print(f"{options.recipe} writes {tokens / forwards:.2f} tokens a round {where}; plain decoding writes one.")
    return figures


def target_pair_of_options(options: Namespace) -> Pair:
    """The pair whose target the options name."""
    given = PAIRS.get(options.pair) if options.target is None else None
    return given or Pair("own", short_name_of(options.target), options.target, target_revision=options.revision)


def refuse_wrong_continuation_options(options: Namespace) -> None:
    """Raises `ValueError` for what is missing beside --prompts and --start, and for what has no meaning there."""
    if options.out is None:
        raise ValueError("--start with --prompts needs --out: name a folder for the better drafter.")
    if not (options.start / "config.json").is_file():
        raise ValueError(
            f"--start {str(options.start)!r} has no config.json. Name a drafter's own folder, with config.json and safetensors."
        )
    if (options.out / options.recipe).resolve() == options.start.resolve():
        raise ValueError(f"--out {str(options.out)!r} would write over the drafter of --start. Name another folder.")
    if options.hidden is not None:
        raise ValueError(f"--hidden {options.hidden} has no meaning with --prompts: a drafter keeps its width.")
    if list(options.domains) != list(DOMAINS):
        raise ValueError(f"--domains {' '.join(options.domains)} has no meaning with --prompts, which are the texts.")


def refuse_untrainable_drafter(net: Net, options: Namespace, target_layer_count: int) -> None:
    """Raises `ValueError` for a drafter of another kind than the recipe, and for a form that the recipe does not compute."""
    if net.config.kind != options.recipe:
        raise ValueError(
            f"--start {str(options.start)!r} holds a drafter {net.config.kind}, got {options.recipe}. Train it with "
            f"`python -m engine train {net.config.kind}`."
        )
    other = (isinstance(net, Medusa) and net.published) or (isinstance(net, Eagle) and net.form is not None)
    if isinstance(net, DFlash):
        read = (
            set(net.reads_features) <= set(default_feature_layers(target_layer_count))
            and net.published.get("num_target_layers") == target_layer_count
        )
        other = not read or bool(net.sizes.layer_masks) or "speculators_model_type" in net.published
    if other:
        raise ValueError(
            f"The drafter in {str(options.start)!r} has a form that is drafted with here and not trained. It must read the layers "
            f"{', '.join(map(str, default_feature_layers(target_layer_count)))}, "
            f"as `python -m engine train {options.recipe}` writes it."
        )


def split_prompts_into_training_and_held_out(prompts: list[str]) -> tuple[list[str], list[str]]:
    """Prompts to learn from and held-out ones, each text once, parted by a hash of it. Raises `ValueError` for too few."""
    texts = list(dict.fromkeys(prompts))
    if len(texts) < FEWEST:
        raise ValueError(f"The file has {len(texts)} different prompts; at least {FEWEST} are needed.")
    by_hash = sorted(texts, key=lambda text: hashlib.sha256(text.encode()).hexdigest())
    held_out = set(by_hash[: math.ceil(HELD_OUT * len(texts))])
    return [text for text in texts if text not in held_out], [text for text in texts if text in held_out]


def tokenise_prompt_endings(pair: LoadedPair, prompts: list[str]) -> list[list[int]]:
    """The prompts' tokens; of a longer one the last `LONGEST`. Raises `ValueError` for one that cannot be raced."""
    found = []
    for prompt in prompts:
        try:
            found.append(encode_prompt(pair, Settings(prompt).prompt)[-LONGEST:])
        except ValueError as error:
            raise ValueError(f"{error} It is the prompt {format_value_for_error(prompt)} of --prompts.") from error
    return found


def hashed_run_folder_name(options: Namespace, pair: Pair, prompts: list[str], row_count: int) -> str:
    """The name of this run's folder. It differs with the prompts, the target, the start and the number of rows."""
    start = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(options.start.glob("*.safetensors"))]
    told = [pair.target, pair.target_revision, options.raw, start, row_count, prompts]
    return f"{options.recipe}-{hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]}"


def load_or_write_continuation_rows(
    runner: Runner, prompt_ids: list[list[int]], row_count: int, path: Path, stop_ids: frozenset[int]
) -> np.ndarray:
    """`[row_count, ROW]` ids that the target wrote after the prompts, each as often. The file keeps them. Behind an end another
    follows.
    """

    def write_more_rows(done: int) -> torch.Tensor:
        order = np.random.default_rng([11, done])
        now = min(AT_ONCE, row_count - done)
        drawn = [order.permutation(len(prompt_ids)) for _ in range(math.ceil(now / len(prompt_ids)))]
        opening = [prompt_ids[index] for index in np.concatenate(drawn)[:now]]
        others = (prompt_ids[order.integers(len(prompt_ids))] for _ in count())
        temperature = TEMPERATURES[done // AT_ONCE % len(TEMPERATURES)]
        with runner.without_torch_threads(), torch.inference_mode():
            return continue_prompts_to_full_rows(
                runner, opening, temperature, build_generator_from_key("own prompts", done), stop_ids, others
            )

    return load_or_write_rows(path, row_count, write_more_rows)


def race_and_count_tokens_and_forwards(
    pair: LoadedPair, net: Net, prompts: list[str], progress_label: str
) -> np.ndarray:
    """Tokens and target forwards `[prompts, 2]` of the drafter's greedy races, in one fixed shape."""
    name, found = net.config.kind, []
    with_net = replace(pair, learned={name: net})
    for prompt in tqdm(prompts, desc=f"tau {progress_label}", unit="prompt"):
        system = f"{name}/best_first/token_match:{SHAPE}"
        [trace] = Race(with_net, Settings(prompt, (system,), max_new_tokens=TOKENS)).run_to_traces()
        found.append((len(trace.tokens), trace.target_forwards))
    return np.array(found)


def compare_tau(counts_before: np.ndarray, counts_after: np.ndarray) -> dict:
    """Tau before and after, of what `race_and_count_tokens_and_forwards` returned, and the gain. Its interval is a bootstrap over
    the prompts of both.
    """
    drawn = draw_bootstrap_indices(len(counts_before), seed=0)
    means = [each[drawn].sum(1) for each in (counts_before, counts_after)]
    gains = (means[1][:, 0] / means[1][:, 1]) / (means[0][:, 0] / means[0][:, 1])
    before, after = (float(each[:, 0].sum() / each[:, 1].sum()) for each in (counts_before, counts_after))
    return {
        "held_out": len(counts_before),
        "before": before,
        "after": after,
        "gain": after / before,
        "interval": percentile_ends(gains).tolist(),
        "written": after > before,
    }


def describe_outcome(figures: dict, output_folder: Path, start_folder: Path) -> str:
    """What became of the drafter, for the person who trained it."""
    (low, high), before, after = figures["interval"], figures["before"], figures["after"]
    where = f"on {figures['held_out']} held-out prompts"
    sure = f"{100 * CONFIDENCE:.0f} % interval {low:.2f} to {high:.2f}"
    if figures["written"]:
        return (
            f"{figures['drafter']} now writes {after:.2f} tokens a round {where}, before {before:.2f}: {figures['gain']:.2f} times "
            f"as many, {sure}. It is written to {output_folder}."
        )
    worse = f"{100 * (1 - figures['gain']):.1f} % fewer" if after < before else "as many"
    return (
        f"{figures['drafter']} did not get better: it writes {after:.2f} tokens a round {where}, before {before:.2f}, {worse}; {sure}. "
        f"Nothing is written. Go on with the drafter in {start_folder}, with more --minutes, or with more prompts."
    )
