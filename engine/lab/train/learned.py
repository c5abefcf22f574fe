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
from transformers import PreTrainedModel

from engine.lab.train import dflash, dspark, eagle, medusa, parallel, specblock
from engine.lab.train.data import DOMAINS, load_training_and_held_out
from engine.lab.train.features import FeatureShards, LiveBatches, write_feature_shards
from engine.lab.train.loop import TrainingBudget, curve_path_of, train_within_budget
from engine.lab.train.self_written.conversations import (
    ChatMarkers,
    Conversation,
    chat_markers_of,
    tokenise_request_ending,
)
from engine.lab.train.self_written.requests import (
    Requests,
    draw_no_request,
    request_drawer_from_data,
    request_drawer_from_prompts,
)
from engine.lab.train.self_written.rows import write_conversation_ids, write_conversation_shards
from engine.lab.train.width import choose_drafter_sizes
from engine.lab.train.writing import ROW, write_target_text_rows
from engine.measure.options import CURVE, validate_output_path
from engine.models.loading import TRAINED_ON, collect_stop_ids, load_model, load_tokenizer_and_config, validate_device
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
Given = tuple[Requests, Requests]  # for training and for validation
Written = tuple[np.ndarray, np.ndarray]  # rows for training and for validation, [n, ROW] ids each


def choose_own_vocabulary_size(name: str, vocab: int, requested: int | None = None) -> int:
    """How many of the target's `vocab` tokens a drafter guesses, 0 for all; `requested` is what is asked for.

    Raises `ValueError` for a number that is not in the target's vocabulary, and for a drafter that always guesses all.
    """
    if requested is not None and not 1 <= requested <= vocab:
        raise ValueError(f"--own-vocab must be between 1 and {vocab}, the target's vocabulary; got {requested}.")
    if name == "eagle":
        return requested or min(OWN_MOST, int(vocab * OWN_SHARE))
    if name not in SHARING:
        if requested:
            raise ValueError(f"--own-vocab has no meaning for {name}, which guesses all of its target's tokens.")
        return 0
    size = requested or (OWN_MOST if vocab > SMALL else vocab)
    return size if size < vocab else 0


def drafter_config_for(
    name: str, target: PreTrainedModel, hidden: int | None = None, own_vocab: int | None = None
) -> NetConfig:
    """The sizes of a drafter called `name` for this target; `hidden` is as in `choose_drafter_sizes`, `own_vocab` as in
    `choose_own_vocabulary_size`.

    Medusa heads that share the target's head are as wide as the target. Raises `ValueError` where another width is asked of them.
    """
    config = target.config
    own = choose_own_vocabulary_size(name, config.vocab_size, own_vocab)
    if name == "medusa" and own:
        if hidden not in (None, config.hidden_size):
            raise ValueError(
                f"Medusa heads that guess {own:,} of {config.vocab_size:,} tokens share their target's head, so they are "
                f"{config.hidden_size} wide; got --hidden {hidden}. Leave it out."
            )
        hidden = config.hidden_size
    return NetConfig(
        kind=name,
        **choose_drafter_sizes(config, hidden)._asdict(),
        layers=RECIPES[name].LAYERS,
        depth=RECIPES[name].DEPTH,
        vocab=config.vocab_size,
        rope_theta=(getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10000.0),
        own_vocab=own,
    )


def write_training_rows(
    target: PreTrainedModel, tokenizer, data: Path, domains: list[str], work: Path, own_rows: int
) -> Written:
    """Rows for training and for validation, `[n, ROW]` ids each."""
    corpus, held_out = (each.restrict_to(domains) for each in load_training_and_held_out(data, work, tokenizer))
    own = write_target_text_rows(target, corpus, work, own_rows)
    real = corpus.draw_batch(int(len(own) * REAL_SHARE / (1 - REAL_SHARE)), ROW, np.random.default_rng(6)).numpy()
    rows = np.random.default_rng(7).permutation(np.concatenate([own, real.astype(np.int32)]))
    (work / "held_out").mkdir(exist_ok=True)
    return rows, write_target_text_rows(target, held_out, work / "held_out", HELD_OUT_ROWS, 16)


def open_batches_by_device(
    target: PreTrainedModel, write_rows: Callable[[], Written], work: Path
) -> tuple[FeatureShards | LiveBatches, FeatureShards | LiveBatches]:
    """Batches of the target's features for training and validation, of the rows of `write_rows`. A CPU keeps them in shards, a GPU
    computes them for each step.
    """
    if target.device.type == "cuda":
        rows, held_out = write_rows()
        return LiveBatches(target, rows), LiveBatches(target, held_out)
    if not (work / READY).exists():
        rows, held_out = write_rows()
        write_feature_shards(target, rows, work / "rows")
        write_feature_shards(target, held_out, work / "held_out")
        (work / READY).touch()
    return FeatureShards(work / "rows"), FeatureShards(work / "held_out")


def train_net_by_recipe(
    net: Net,
    options: argparse.Namespace,
    batches: tuple[FeatureShards | LiveBatches, FeatureShards | LiveBatches],
    work: Path,
    rate_share: float = 1.0,
    save_every: float = 300.0,
) -> dict[str, float]:
    """Train `net` in place on `batches`, by the options' recipe and budget, at this `rate_share` of the recipe's rate; its figures."""
    name, recipe, (shards, held_out) = options.recipe, RECIPES[options.recipe], batches
    extra = {"segments": options.segments} if name == "parallel" else {}

    def loss_of(step: int, share: float) -> tuple[torch.Tensor, int]:
        batch = shards.batch_of_step(step, options.rows or recipe.BATCH).to(options.device)
        return recipe.loss(net, batch, step, **extra), batch.ids.numel()

    def validate() -> dict[str, float]:
        net.eval()
        return recipe.validate(net, (batch.to(options.device) for batch in held_out.iterate_batches(8)))

    budget = TrainingBudget(options.minutes, options.tokens)
    train_within_budget(name, net, loss_of, validate, work, budget, rate_share * recipe.LR, save_every, options.bf16)
    return validate()


def describe_vocabulary_coverage(net: Net, sample: torch.Tensor) -> str:
    """How much of a `sample [n]` of the target's tokens the net can guess, for the person who trains it."""
    config = net.config
    if config.own_vocab in (0, config.vocab):
        return f"{config.kind} guesses all {config.vocab:,} tokens of its target."
    share = torch.isin(sample.to(net.vocabulary.device), net.vocabulary).float().mean()
    return (
        f"{config.kind} guesses {config.own_vocab:,} of its target's {config.vocab:,} tokens, which are {100 * share:.1f} % of what "
        "the target writes in the held-out rows."
    )


def open_self_written_batches(
    target: PreTrainedModel,
    turns: ChatMarkers,
    tokens_of: Callable[[str], list[int]],
    request_sources: Given,
    rows: int,
    work: Path,
) -> tuple[FeatureShards | LiveBatches, FeatureShards | LiveBatches]:
    """As `open_batches_by_device`, of `rows` rows that the target writes by itself, and others for validation, at most `HELD_OUT_ROWS`.

    `request_sources` are the requests of both. `tokens_of` makes tokens of one.
    """

    def conversations(requests: Requests, key: int, first: int, count: int) -> list[Conversation]:
        made = []
        for row in range(first, first + count):
            rng = np.random.default_rng([12, key, row])
            draw = partial(draw_request_tokens, requests, tokens_of, rng)
            made.append(Conversation(turns, ANSWERS_AT[row % len(ANSWERS_AT)], draw))
        return made

    parts: list[FeatureShards | LiveBatches] = []
    validating = min(HELD_OUT_ROWS, max(1, rows // 4))
    for key, (name, requests, count) in enumerate(
        (("rows", request_sources[0], rows), ("held_out", request_sources[1], validating))
    ):
        made = partial(conversations, requests, key)
        if target.device.type == "cuda":
            parts.append(LiveBatches(target, write_conversation_ids(target, made, count, work / f"{name}.npy")))
        else:
            write_conversation_shards(target, made, count, work / name)
            parts.append(FeatureShards(work / name))
    return parts[0], parts[1]


def draw_request_tokens(
    requests: Requests, tokens_of: Callable[[str], list[int]], rng: np.random.Generator
) -> list[int] | None:
    """The tokens of the next request, None where none is given."""
    request = requests(rng)
    return None if request is None else tokens_of(request)


def train_learned_drafter(options: argparse.Namespace, prompts: tuple[list[str], list[str]] | None = None) -> None:
    """Train `options.recipe` for the target and write it to `options.out/NAME`.

    `prompts` are a person's own, to learn from and held out. Without them the target goes on from the texts in `options.data` where it
    has no chat template, and else writes by itself, requests and answers.
    """
    name, recipe, device = options.recipe, RECIPES[options.recipe], validate_device(options.device, TRAINED_ON)
    checkpoint = (
        Checkpoint(options.target, options.revision) if options.target else PAIRS[options.pair].target_checkpoint
    )
    tokenizer, kept = load_tokenizer_and_config(checkpoint)
    chat = bool(tokenizer.chat_template) and not options.raw
    from_corpus = options.data is not None and not chat and prompts is None
    quantisation = stored_quantisation_of(kept) if from_corpus else "none"
    embedded = not options.target and options.pair in EMBEDDED  # it serves on CPUs, whatever device trains for it
    dtype = torch.float32 if device.type == "cpu" or embedded or quantisation != "none" else torch.bfloat16
    target = load_model(checkpoint, device, dtype, quantisation).requires_grad_(False)
    work = work_folder_of_rows(options, prompts)
    rows = options.own_rows or OWN_ROWS
    if (work / READY).exists() and device.type == "cpu":
        seen: tuple[FeatureShards | LiveBatches, FeatureShards | LiveBatches] = (
            FeatureShards(work / "rows"),
            FeatureShards(work / "held_out"),
        )
    elif from_corpus:
        seen = open_batches_by_device(
            target, partial(write_training_rows, target, tokenizer, options.data, options.domains, work, rows), work
        )
    else:
        turns = chat_markers_of(tokenizer, collect_stop_ids(target, tokenizer), options.raw)
        tokens_of = partial(tokenise_request_ending, tokenizer, longest=LONGEST_GIVEN)
        seen = open_self_written_batches(target, turns, tokens_of, request_sources(options, prompts), rows, work)
    torch.manual_seed(0)
    stored = load_file(options.start / "model.safetensors") if options.start else {}
    vocabulary = take_vocabulary_from(stored)
    sample, own_vocab = seen[0].sample_target_tokens(), options.own_vocab
    if vocabulary is not None:  # it goes on with that
        sample, own_vocab = vocabulary, len(vocabulary)
    config = drafter_config_for(name, target, options.hidden, own_vocab)
    net = recipe.build_untrained_net(target, config, sample).to(device)
    if options.shared_tables and config.target_hidden:
        share_narrowed_target_tables(net, *embedding_and_head_of(target))
    ours = {said: name for name, said in net.names.items()}
    net.load_state_dict(net.state_dict() | {ours.get(key, key): each.float() for key, each in stored.items()})
    print(describe_vocabulary_coverage(net, seen[1].sample_target_tokens()))
    del target  # the net keeps the tables that it reads
    figures = train_net_by_recipe(net, options, seen, work)
    net.save(options.out / name)
    shutil.copy(curve_path_of(work, name), validate_output_path(options.curve or options.out / name / CURVE))
    print(json.dumps(figures))
    print(f"{name} is written to {options.out / name}.")


def take_vocabulary_from(tensors: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """The target's ids that a drafter guesses, by its `tensors` tensors; None for all. What its net does not keep is taken out."""
    for name in ("offsets", "d2t"):
        if name in tensors:
            offsets = tensors.pop(name) if name == "d2t" else tensors[name]
            return offsets + torch.arange(len(offsets))
    return tensors.get("vocabulary")


def work_folder_of_rows(options: argparse.Namespace, prompts: tuple[list[str], list[str]] | None) -> Path:
    """The folder of the target's rows and of checkpoints. Other texts and other prompts have another one."""
    if (options.work / READY).exists():
        return options.work
    subject = "" if len(options.domains) == len(DOMAINS) else "-" + "-".join(options.domains)
    if prompts:
        subject += "-prompts-" + hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:16]
    elif options.data is None:
        subject += "-alone"
    subject += "-raw" if options.raw else ""
    work = options.work / "drafters" / ((options.target or options.pair).strip("/").replace("/", "--") + subject)
    work.mkdir(parents=True, exist_ok=True)
    return work


def request_sources(options: argparse.Namespace, prompts: tuple[list[str], list[str]] | None) -> Given:
    """The requests that are given for training and for validation, as far as any are."""
    if prompts:
        return request_drawer_from_prompts(prompts[0]), request_drawer_from_prompts(prompts[1], share=1.0)
    if options.data is None:
        return draw_no_request, draw_no_request
    return request_drawer_from_data(options.data, held_out=False), request_drawer_from_data(options.data, held_out=True)
