"""`python -m engine calibrate`: measure a pair once and write its calibration. Static trees are laid out by it, `auto` chooses its
drafter by it, and systems the shapes that they race in.

The target itself continues the gallery's prompts, or a file's prompts; never the bench's held-out prompts.
"""

import json
from argparse import Namespace
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from engine.acceptance.walk import normalised_residual
from engine.acceptance.without_replacement import MultiRoundWithoutReplacement
from engine.decode import decode
from engine.drafters import DRAFTERS
from engine.kernels.expansion import FAVOURITE, OTHER, cell_of_score
from engine.measure.options import (
    create_parent_and_validate_output_path,
    load_page_prompts,
    load_pair_of_options,
    output_path_or_shipped,
    pair_of_options,
)
from engine.measure.prompts import read_prompts
from engine.measure.racing import explain_unraceable
from engine.measure.ways import decode_plainly
from engine.models.chat import tokenise_prompt
from engine.models.pairs import EMBEDDED, LoadedPair
from engine.race import Settings
from engine.record.calibration import SCORE_CELLS, Calibration, ScoreHitCounts
from engine.record.compact_json import to_compact_json_with_rounded_floats
from engine.record.costs import MeanRoundCountsOfShape
from engine.rounds.pair_costs import PairCosts
from engine.sampling import Sampling
from engine.systems import SHAPE, SYSTEMS, System, format_shape, resolve_system_name
from engine.target import Target
from engine.tree import LARGEST_TREE, DraftTree

CHILDREN = 16  # length of the acceptance vector
RANKS = 16  # favourites told apart at each depth
PROMPTS, TOKENS = 6, 64  # texts by temperature whose rounds are counted by shape; and tokens of each
HEATS = (0.0, 0.8)  # one shape serves all temperatures
SCORED_SHAPE = dict(zip(SHAPE, (5, 3, 12), strict=True))  # of the trees whose guesses are counted by score

PromptAndContinuation = tuple[list[int], list[int]]  # a prompt and what the target wrote behind it


def write_continuations(
    pair: LoadedPair, prompts: list[str], max_tokens: int, temperature: float
) -> list[PromptAndContinuation]:
    """The prompts with the target's own continuations, up to `max_tokens` tokens each."""
    begun = [tokenise_prompt(pair, prompt)[: pair.context // 2] for prompt in prompts]
    sampling = Sampling(temperature)
    return [
        (ids, decode_plainly(pair, ids, max_tokens, sampling))
        for ids in tqdm(begun, desc=f"texts at T = {temperature:g}")
    ]


@torch.inference_mode()
def measure_first_acceptance_by_child(
    pair: LoadedPair, continuations: list[PromptAndContinuation], temperature: float
) -> list[float]:
    """For b = 1 ... 16: the probability that the b-th child drawn without replacement from the draft is the first accepted one."""
    sampling, rule = Sampling(temperature), MultiRoundWithoutReplacement()
    chances, positions = torch.zeros(CHILDREN, dtype=torch.float64), 0
    for number, (prompt, written) in enumerate(tqdm(continuations, desc="acceptance")):
        ids = prompt + written
        logits = [
            each.open_session(len(ids)).forward(ids, list(range(len(ids))))[0].cpu()
            for each in (pair.target, pair.draft)
        ]
        start, vocab = len(prompt) - 1, min(each.shape[-1] for each in logits)
        p = sampling.probabilities(logits[0][start:, :vocab])
        q = sampling.draft_probabilities(logits[1][start:, :vocab])
        for at, drawn in enumerate(sampling.draw_without_replacement(q, CHILDREN, "calibrate", number)):
            r, d, reached = p[at], q[at], 1.0
            for child, (token, _) in enumerate(drawn):
                accepted = min(1.0, float(r[token] / d[token]))
                chances[child] += reached * accepted
                reached *= 1 - accepted
                r, law = normalised_residual(r, d, p[at]), rule.distribution_of_next_draw(d, token)
                if law is None or reached == 0:
                    break
                d = law
        positions += len(q)
    return (chances / positions).tolist()


@torch.inference_mode()
def measure_target_rank_frequencies_by_depth(
    pair: LoadedPair,
    drafter_name: str,
    continuations: list[PromptAndContinuation],
    max_depth: int = 8,
    tokens_between_rounds: int = 2,
) -> list[list[float]]:
    """How often the target's own token at depth d + 1 is the drafter's favourite r: `[max_depth][16]`, for any drafter.

    Every guess is made behind the tokens that the target wrote. Rounds start `tokens_between_rounds` tokens apart, depth + 1 at
    most. The deepest levels are left out where the drafter never guessed.
    """
    tokens_between_rounds = min(tokens_between_rounds, max_depth + 1)
    counts, asked = torch.zeros(max_depth, RANKS, dtype=torch.float64), torch.zeros(max_depth, dtype=torch.float64)
    guessed = 0  # the deepest level with a guess
    for prompt, written in tqdm(continuations, desc=f"ranks of {drafter_name}"):
        capacity = len(prompt) + len(written) + LARGEST_TREE
        drafter = DRAFTERS[drafter_name](pair, capacity)
        target = Target(pair.target, capacity, drafter.reads_features)
        drafter.bind_target_cache(target.session.cache)
        drafter.begin(prompt, target.prefill_and_return_features(prompt[:-1]))
        root = prompt[-1]
        for start in range(0, len(written) - max_depth, tokens_between_rounds):
            tree = DraftTree.from_root_token(root)
            for level, token in enumerate(written[start : start + max_depth]):
                log_q = drafter.log_q(tree, [level])
                asked[level] += 1
                if log_q is not None:
                    guessed = max(guessed, level + 1)
                    rank = int((log_q[0] > log_q[0, token]).sum())
                    if rank < RANKS:
                        counts[level, rank] += 1
                tree.add(level, token, 1.0, 1.0)
            path, root = list(range(1, tokens_between_rounds)), written[start + tokens_between_rounds - 1]
            _, features = target.verify(tree)
            target.commit(path)
            drafter.commit(tree, path, root, features)
    return (counts / asked.clamp(min=1)[:, None])[:guessed].tolist()


@torch.inference_mode()
def count_hits_by_score(
    pair: LoadedPair, drafter_name: str, prompts: list[str], max_tokens: int, temperature: float
) -> ScoreHitCounts:
    """How often the drafter's guesses came true by their scores, in trees of `SCORED_SHAPE` behind the prompts.

    A guess counts where its parent came true. A guess's own score is its path's over its parent's.
    """
    system, counts = resolve_system_name(f"{drafter_name}/best_first/token_match"), np.zeros((2, SCORE_CELLS), int)
    for prompt in tqdm(prompts, desc=f"scores of {drafter_name} at T = {temperature:g}"):
        ids = tokenise_prompt(pair, prompt)[: pair.context // 2]
        capacity = min(pair.context, len(ids) + max_tokens) + LARGEST_TREE
        work = system.open_rounds(pair, capacity, SCORED_SHAPE, Sampling(temperature))
        for done in decode(work, ids, max_tokens, pair.stop_ids, pair.context):
            tree, right = done.tree, {0, *done.verdict.path}
            for node in range(1, len(tree)):
                parent = tree.parents[node]
                if parent in right:
                    kind = FAVOURITE if parent not in tree.parents[:node] else OTHER
                    cell = cell_of_score(tree.score[node] / tree.score[parent], kind)
                    counts[:, cell] += node in right, 1
    return ScoreHitCounts(*counts.tolist())


def calibrate(
    pair: LoadedPair, prompts: list[str], tokens_per_prompt: int, acceptance_temperature: float
) -> Calibration:
    """Everything that can be measured about the pair. A draft model or heads that it lacks are left out."""
    has_draft = pair.draft is not None
    # Medusa's ranks are read for static trees, and those of what `best` chooses from
    compared = [*(["medusa"] if "medusa" in pair.learned else []), *DRAFTERS["best"].inner_drafter_candidates(pair)]
    drawn = write_continuations(pair, prompts, tokens_per_prompt, acceptance_temperature) if has_draft else []
    greedy = write_continuations(pair, prompts, tokens_per_prompt, 0.0) if compared else []
    measured = Calibration(
        acceptance=round_values(measure_first_acceptance_by_child(pair, drawn, acceptance_temperature))
        if has_draft
        else [],
        ranks={
            name: [round_values(row) for row in found]
            for name in compared
            if (found := measure_target_rank_frequencies_by_depth(pair, name, greedy))
        },
        score_hits={
            name: (
                count_hits_by_score(pair, name, prompts, tokens_per_prompt, 0.0),
                count_hits_by_score(pair, name, prompts, tokens_per_prompt, HEATS[-1]),
            )
            for name in DRAFTERS["best"].inner_drafter_candidates(pair)
            if DRAFTERS[name].required_resource
        },
        costs=PairCosts(pair).get_or_measure_costs("model" if has_draft else "none"),
        source=f"{pair.title}, {pair.hardware}, {pair.dtype}; {len(prompts)} prompts x {tokens_per_prompt} tokens, acceptance at "
        f"T = {acceptance_temperature:g}, ranks at T = 0, scores and shapes at T = {' and '.join(f'{heat:g}' for heat in HEATS)}; "
        "python -m engine calibrate",
    )
    # Static trees are laid out by what was measured first
    return replace(measured, shapes=count_round_means_by_system_and_shape(replace(pair, calibration=measured), prompts))


def count_round_means_by_system_and_shape(
    pair: LoadedPair, prompts: list[str]
) -> dict[str, dict[str, MeanRoundCountsOfShape]]:
    """Of every named system that takes a shape and guesses something on this pair: its rounds by shape, its own shape first.

    Nothing is timed; `System.best_shape_for` weighs these figures with what forwards cost on a machine. The texts are few and short, so
    that all systems take minutes: with 40 tokens two shapes' tau had the ratio that they have in 128 tokens of all prompts, within 5 %.
    """
    texts = [tokenise_prompt(pair, prompt)[: pair.context // 2] for prompt in prompts[:: -(-len(prompts) // PROMPTS)]]
    able = [
        each
        for each in SYSTEMS.values()
        if each.guesses and not each.sizes_trees and not explain_unraceable(pair, each)
    ]
    found: dict[str, dict[str, MeanRoundCountsOfShape]] = {}
    for system in (bar := tqdm(able, desc="shapes")):
        bar.set_postfix_str(system.name)
        own = count_round_means_of_shape(pair, system, system.default_shape, texts)
        if own.verified_rows > 1:
            found[system.name] = {format_shape(system.default_shape): own} | {
                format_shape(shape): count_round_means_of_shape(pair, system, shape, texts)
                for shape in list_non_default_candidate_shapes(system)
            }
    return found


def list_non_default_candidate_shapes(system: System) -> list[dict[str, int]]:
    """The shapes to try beside the system's own."""
    shapes = [dict(zip(SHAPE, sizes, strict=True)) for sizes in system.parts[1].list_candidate_shapes(system.width)]
    return [shape for shape in shapes if shape != system.default_shape]


@torch.inference_mode()
def count_round_means_of_shape(
    pair: LoadedPair, system: System, shape: dict[str, int], prompts_token_ids: list[list[int]]
) -> MeanRoundCountsOfShape:
    """The means over all rounds after these prompts, at all of `HEATS`. A round that a text's end cuts short is not counted."""
    depth = shape["depth"]
    sums = np.zeros(4, int)  # rounds, tokens, rows, levels
    for temperature in HEATS:
        for ids in prompts_token_ids:
            capacity = min(pair.context, len(ids) + TOKENS + depth) + LARGEST_TREE
            work, forwards = system.open_rounds(pair, capacity, shape, Sampling(temperature)), 0
            for done in decode(work, ids, TOKENS + depth, pair.stop_ids, pair.context):
                drafted, forwards = work.draft_forward_count - forwards, work.draft_forward_count
                if done.end and sums[0]:
                    break
                emitted = len(done.verdict.path) + 1
                sums += 1, emitted, len(done.tree), max(drafted, *done.tree.depth)
                if done.position + emitted >= len(ids) - 1 + TOKENS:
                    break
    return MeanRoundCountsOfShape(*(round(float(each), 3) for each in sums[1:] / sums[0]))


def round_values(values: list[float]) -> list[float]:
    return [round(value, 5) for value in values]


def serialise_calibration(calibration: Calibration) -> str:
    """The calibration as JSON, a line for each of its fields."""
    lines = [
        f" {json.dumps(name)}: {to_compact_json_with_rounded_floats(value)}"
        for name, value in asdict(calibration).items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(options: Namespace) -> None:
    pair = pair_of_options(options)
    shipped = Path(pair.calibration_path) if pair.name in EMBEDDED and pair.calibration_path else None
    out = create_parent_and_validate_output_path(output_path_or_shipped(options.out, shipped, pair.title))
    if options.data is None:
        prompts = [each["prompt"] for domain in load_page_prompts().values() for each in domain]
    else:
        prompts = [prompt.text for prompt in read_prompts(options.data, "--data", min_count=1)]
    Settings("a prompt", (), temperature=options.temperature, max_new_tokens=options.tokens)
    loaded = load_pair_of_options(options, pair)
    measured = calibrate(loaded, prompts, options.tokens, options.temperature)
    out.write_text(serialise_calibration(measured), encoding="utf-8")
    print(f"{out}: {measured}")
