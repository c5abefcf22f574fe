"""`python -m engine train medusa`, or another of `RECIPES`: a learned drafter for any target, from the target's own text."""

import argparse
import hashlib
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.lab.train import dflash, dspark, eagle, medusa, parallel, specblock
from engine.lab.train.data import DOMAINS, load_training_and_held_out
from engine.lab.train.features import FeatureShards, LiveBatches, write_feature_shards
from engine.lab.train.loop import TrainingBudget, train_or_resume_within_budget, training_curve_path_of
from engine.lab.train.self_written.conversations import (
    ChatMarkers,
    Conversation,
    chat_markers_of,
    tokenise_request_ending,
)
from engine.lab.train.self_written.requests import (
    RequestDrawer,
    draw_no_request,
    request_drawer_from_data,
    request_drawer_from_prompts,
    short_request_drawer,
)
from engine.lab.train.self_written.rows import load_or_write_conversation_ids, write_conversation_shards
from engine.lab.train.width import choose_drafter_sizes
from engine.lab.train.writing import ROW, load_or_write_target_rows
from engine.measure.options import CURVE, create_parent_and_validate_output_path
from engine.models.loading import (
    TRAINED_ON,
    collect_stop_ids,
    load_and_check_tokenizer_and_config,
    load_model,
    validate_or_choose_device,
)
from engine.models.pairs import EMBEDDED, PAIRS, Checkpoint
from engine.models.quantising import stored_quantisation_of
from engine.nets import Net, NetConfig
from engine.nets.layer import embedding_and_head_of, share_narrowed_target_tables

RECIPES = {
    "medusa": medusa,
    "parallel": parallel,
    "specblock": specblock,
    "eagle": eagle,
    "dflash": dflash,
    "dspark": dspark,
}
# A drafter's own vocabulary. Of a small one of its target it is a share for EAGLE, which has a head of its own, and all for the others,
# which read the target's. Every row of a head is read for every guess, and 8,000 tokens are most of what a chat model writes.
OWN_MOST, OWN_SHARE, SMALL = 8_000, 0.75, 16_384
SHARING = ("dflash", "dspark", "medusa")  # read rows of the target's head
OWN_ROWS = 2048  # rows that the target writes, unless options say another number
REAL_SHARE = 0.25  # share of corpus rows among the target's own
HELD_OUT_ROWS = 96
READY = "ready"  # this file says that rows/ and held_out/ beside it are complete

ANSWERS_AT = (0.0, 0.0, 0.8)  # temperatures of the answers, a row each
LONGEST_GIVEN = ROW // 2  # tokens of a given request; the target needs room to answer
TrainingAndValidationRequests = tuple[RequestDrawer, RequestDrawer]  # for training and for validation
TrainingAndValidationRows = tuple[np.ndarray, np.ndarray]  # rows for training and for validation, [n, ROW] ids each


def choose_own_vocabulary_size(drafter_kind: str, target_vocab_size: int, requested: int | None = None) -> int:
    """How many of the target's `target_vocab_size` tokens a drafter guesses, 0 for all; `requested` is what is asked for.

    Raises `ValueError` for a number that is not in the target's vocabulary, and for a drafter that always guesses all.
    """
    if requested is not None and not 1 <= requested <= target_vocab_size:
        most = f"{target_vocab_size}, the target's vocabulary"
        raise ValueError(f"--own-vocab must be between 1 and {most}; got {requested}.")
    if drafter_kind == "eagle":
        return requested or min(OWN_MOST, int(target_vocab_size * OWN_SHARE))
    if drafter_kind not in SHARING:
        if requested:
            why = "which guesses all of its target's tokens"
            raise ValueError(f"--own-vocab has no meaning for {drafter_kind}, {why}.")
        return 0
    size = requested or (OWN_MOST if target_vocab_size > SMALL else target_vocab_size)
    return size if size < target_vocab_size else 0


def drafter_config_for(
    drafter_kind: str, target: PreTrainedModel, requested_hidden: int | None = None, requested_vocab: int | None = None
) -> NetConfig:
    """A drafter's sizes for this target; what is requested is as in `choose_drafter_sizes` and `choose_own_vocabulary_size`.

    Medusa heads that share the target's head are as wide as the target. Raises `ValueError` where another width is asked of them.
    """
    config = target.config
    own = choose_own_vocabulary_size(drafter_kind, config.vocab_size, requested_vocab)
    if drafter_kind == "medusa" and own:
        if requested_hidden not in (None, config.hidden_size):
            raise ValueError(
                f"Medusa heads that guess {own:,} of {config.vocab_size:,} tokens share their target's head, so they are "
                f"{config.hidden_size} wide; got --hidden {requested_hidden}. Leave it out."
            )
        requested_hidden = config.hidden_size
    return NetConfig(
        kind=drafter_kind,
        **choose_drafter_sizes(config, requested_hidden)._asdict(),
        layers=RECIPES[drafter_kind].LAYERS,
        depth=RECIPES[drafter_kind].DEPTH,
        vocab=config.vocab_size,
        rope_theta=(getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10000.0),
        own_vocab=own,
    )


def write_training_and_validation_rows(
    target: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data_folder: Path,
    domains: list[str],
    work_folder: Path,
    target_written_rows: int,
) -> TrainingAndValidationRows:
    """Rows for training and for validation, `[n, ROW]` ids each."""
    corpus, held_out = (
        each.drop_other_domains(domains) for each in load_training_and_held_out(data_folder, work_folder, tokenizer)
    )
    own = load_or_write_target_rows(target, corpus, work_folder, target_written_rows)
    real = corpus.draw_rows_of_mixed_domains(
        int(len(own) * REAL_SHARE / (1 - REAL_SHARE)), ROW, np.random.default_rng(6)
    ).numpy()
    rows = np.random.default_rng(7).permutation(np.concatenate([own, real.astype(np.int32)]))
    (work_folder / "held_out").mkdir(exist_ok=True)
    return rows, load_or_write_target_rows(target, held_out, work_folder / "held_out", HELD_OUT_ROWS, 16)


def open_training_and_validation_batches(
    target: PreTrainedModel, write_rows: Callable[[], TrainingAndValidationRows], work_folder: Path
) -> tuple[FeatureShards | LiveBatches, FeatureShards | LiveBatches]:
    """Batches of the target's features on the rows of `write_rows`. A CPU keeps them in shards, a GPU computes them for each step."""
    if target.device.type == "cuda":
        rows, held_out = write_rows()
        return LiveBatches(target, rows), LiveBatches(target, held_out)
    if not (work_folder / READY).exists():
        rows, held_out = write_rows()
        write_feature_shards(target, rows, work_folder / "rows")
        write_feature_shards(target, held_out, work_folder / "held_out")
        (work_folder / READY).touch()
    return FeatureShards(work_folder / "rows"), FeatureShards(work_folder / "held_out")


def train_net_by_recipe(
    net: Net,
    options: argparse.Namespace,
    training_and_validation_batches: tuple[FeatureShards | LiveBatches, FeatureShards | LiveBatches],
    work_folder: Path,
    learning_rate_share: float = 1.0,
    save_every_seconds: float = 300.0,
) -> dict[str, float]:
    """Train `net` in place by the options' recipe and budget, at this share of the recipe's learning rate; its figures."""
    name, recipe, (shards, held_out) = options.recipe, RECIPES[options.recipe], training_and_validation_batches
    extra = {"backward_segments": options.segments} if name == "parallel" else {}

    def compute_loss_and_token_count(step: int, share: float) -> tuple[torch.Tensor, int]:
        drawn = shards.shuffled_batch_of_step(step, options.rows or recipe.BATCH)
        batch = drawn.to_device_in_full_precision(options.device)
        return recipe.compute_training_loss(net, batch, step, **extra), batch.ids.numel()

    def validate() -> dict[str, float]:
        net.eval()
        return recipe.measure_accuracy_by_depth(
            net, (batch.to_device_in_full_precision(options.device) for batch in held_out.iterate_batches(8))
        )

    budget = TrainingBudget(options.minutes, options.tokens)
    train_or_resume_within_budget(
        name,
        net,
        compute_loss_and_token_count,
        validate,
        work_folder,
        budget,
        learning_rate_share * recipe.LR,
        save_every_seconds,
        options.bf16,
    )
    return validate()


def describe_vocabulary_coverage(net: Net, target_token_sample: torch.Tensor) -> str:
    """How much of a `target_token_sample [n]` of the target's tokens the net can guess, for the person who trains it."""
    config = net.config
    if config.own_vocab in (0, config.vocab):
        return f"{config.kind} guesses all {config.vocab:,} tokens of its target."
    share = torch.isin(target_token_sample.to(net.vocabulary.device), net.vocabulary).float().mean()
    return (
        f"{config.kind} guesses {config.own_vocab:,} of its target's {config.vocab:,} tokens, which are {100 * share:.1f} % of what "
        "the target writes in the held-out rows."
    )


def write_and_open_self_written_batches(
    target: PreTrainedModel,
    chat_markers: ChatMarkers,
    tokenise_request: Callable[[str], list[int]],
    request_drawers: TrainingAndValidationRequests,
    row_count: int,
    work_folder: Path,
) -> tuple[FeatureShards | LiveBatches, FeatureShards | LiveBatches]:
    """As `open_training_and_validation_batches`, of `row_count` rows that the target writes by itself, and others for validation.

    `request_drawers` are the requests of both. `tokenise_request` makes tokens of one.
    """

    def build_conversations(requests: RequestDrawer, key: int, first: int, count: int) -> list[Conversation]:
        made = []
        for row in range(first, first + count):
            rng = np.random.default_rng([12, key, row])
            draw = partial(draw_request_tokens, requests, tokenise_request, rng)
            made.append(Conversation(chat_markers, ANSWERS_AT[row % len(ANSWERS_AT)], draw))
        return made

    parts: list[FeatureShards | LiveBatches] = []
    validating = min(HELD_OUT_ROWS, max(1, row_count // 4))
    for key, (name, requests, count) in enumerate(
        (("rows", request_drawers[0], row_count), ("held_out", request_drawers[1], validating))
    ):
        made = partial(build_conversations, requests, key)
        if target.device.type == "cuda":
            rows = load_or_write_conversation_ids(target, made, count, work_folder / f"{name}.npy")
            parts.append(LiveBatches(target, rows))
        else:
            write_conversation_shards(target, made, count, work_folder / name)
            parts.append(FeatureShards(work_folder / name))
    return parts[0], parts[1]


def draw_request_tokens(
    draw_request: RequestDrawer, tokenise_request: Callable[[str], list[int]], rng: np.random.Generator
) -> list[int] | None:
    """The tokens of the next request, None where none is given."""
    request = draw_request(rng)
    return None if request is None else tokenise_request(request)


def train_learned_drafter(
    options: argparse.Namespace, training_and_held_out_prompts: tuple[list[str], list[str]] | None = None
) -> None:
    """Train `options.recipe` for the target and write it to `options.out/NAME`.

    `training_and_held_out_prompts` are a person's own, to learn from and held out. Without them the target goes on from the texts
    in `options.data` where it has no chat template, and else writes by itself, requests and answers.
    """
    name, recipe, device = (
        options.recipe,
        RECIPES[options.recipe],
        validate_or_choose_device(options.device, TRAINED_ON),
    )
    checkpoint = (
        Checkpoint(options.target, options.revision) if options.target else PAIRS[options.pair].target_checkpoint
    )
    tokenizer, kept = load_and_check_tokenizer_and_config(checkpoint)
    chat = bool(tokenizer.chat_template) and not options.raw
    from_corpus = options.data is not None and not chat and training_and_held_out_prompts is None
    quantisation = stored_quantisation_of(kept) if from_corpus else "none"
    embedded = not options.target and options.pair in EMBEDDED  # it serves on CPUs, whatever device trains for it
    dtype = torch.float32 if device.type == "cpu" or embedded or quantisation != "none" else torch.bfloat16
    target = load_model(checkpoint, device, dtype, quantisation).requires_grad_(False)
    work = create_work_folder_for_rows(options, training_and_held_out_prompts)
    rows = options.own_rows or OWN_ROWS
    if (work / READY).exists() and device.type == "cpu":
        seen: tuple[FeatureShards | LiveBatches, FeatureShards | LiveBatches] = (
            FeatureShards(work / "rows"),
            FeatureShards(work / "held_out"),
        )
    elif from_corpus:
        seen = open_training_and_validation_batches(
            target,
            partial(write_training_and_validation_rows, target, tokenizer, options.data, options.domains, work, rows),
            work,
        )
    else:
        turns = chat_markers_of(tokenizer, collect_stop_ids(target, tokenizer), options.raw)
        tokens_of = partial(tokenise_request_ending, tokenizer, max_tokens=LONGEST_GIVEN)
        drawers = request_drawers_of_options(options, training_and_held_out_prompts, turns.has_requests)
        seen = write_and_open_self_written_batches(target, turns, tokens_of, drawers, rows, work)
    torch.manual_seed(0)
    stored = load_file(options.start / "model.safetensors") if options.start else {}
    vocabulary = pop_drafter_vocabulary_ids(stored)
    sample, own_vocab = seen[0].sample_target_tokens(), options.own_vocab
    if vocabulary is not None:  # it goes on with that
        sample, own_vocab = vocabulary, len(vocabulary)
    config = drafter_config_for(name, target, options.hidden, own_vocab)
    net = recipe.build_untrained_net(target, config, sample).to(device)
    if options.shared_tables and config.target_hidden:
        share_narrowed_target_tables(net, *embedding_and_head_of(target))
    ours = {said: name for name, said in net.file_name_by_weight.items()}
    net.load_state_dict(net.state_dict() | {ours.get(key, key): each.float() for key, each in stored.items()})
    print(describe_vocabulary_coverage(net, seen[1].sample_target_tokens()))
    del target  # the net keeps the tables that it reads
    figures = train_net_by_recipe(net, options, seen, work)
    net.save(options.out / name)
    curve = create_parent_and_validate_output_path(options.curve or options.out / name / CURVE)
    shutil.copy(training_curve_path_of(work, name), curve)
    print(json.dumps(figures))
    print(f"{name} is written to {options.out / name}.")


def pop_drafter_vocabulary_ids(tensors: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """The target's ids that a drafter guesses, by its `tensors` tensors; None for all. What its net does not keep is taken out."""
    for name in ("offsets", "d2t"):
        if name in tensors:
            offsets = tensors.pop(name) if name == "d2t" else tensors[name]
            return offsets + torch.arange(len(offsets))
    return tensors.get("vocabulary")


def create_work_folder_for_rows(
    options: argparse.Namespace, training_and_held_out_prompts: tuple[list[str], list[str]] | None
) -> Path:
    """The folder of the target's rows and of checkpoints. Other texts and other prompts have another one."""
    if (options.work / READY).exists():
        return options.work
    subject = "" if len(options.domains) == len(DOMAINS) else "-" + "-".join(options.domains)
    if training_and_held_out_prompts:
        subject += "-prompts-" + hashlib.sha256(json.dumps(training_and_held_out_prompts).encode()).hexdigest()[:16]
    elif options.data is None:
        subject += "-alone"
    subject += "-raw" if options.raw else ""
    work = options.work / "drafters" / ((options.target or options.pair).strip("/").replace("/", "--") + subject)
    work.mkdir(parents=True, exist_ok=True)
    return work


def request_drawers_of_options(
    options: argparse.Namespace, own_and_held_out_prompts: tuple[list[str], list[str]] | None, has_requests: bool
) -> TrainingAndValidationRequests:
    """The requests that are given for training and for validation. A target whose texts have no requests is given none."""
    if own_and_held_out_prompts:
        own, held_out = own_and_held_out_prompts
        return request_drawer_from_prompts(own), request_drawer_from_prompts(held_out, prompt_share=1.0)
    learn, validate = (
        short_request_drawer(held_out) if has_requests else draw_no_request for held_out in (False, True)
    )
    if options.data is None:
        return learn, validate
    return request_drawer_from_data(options.data, False, learn), request_drawer_from_data(options.data, True, validate)
