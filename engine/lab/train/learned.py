"""`python -m engine train medusa`, or another of `RECIPES`: a learned drafter for any target, from the target's own text."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from engine.lab.train import dflash, dspark, eagle, medusa, parallel, specblock
from engine.lab.train.data import DOMAINS, corpora
from engine.lab.train.features import Observed, Shards, cache
from engine.lab.train.loop import Budget, train
from engine.lab.train.width import width_for
from engine.lab.train.writing import ROW, own_text
from engine.models.loading import TRAINED_ON, checked_device, load_model, load_tokenizer_and_config
from engine.models.pairs import EMBEDDED, PAIRS, Checkpoint
from engine.models.quantising import kept_in
from engine.nets import Net, NetConfig
from engine.nets.layer import share, tables_of

RECIPES = {
    "medusa": medusa,
    "parallel": parallel,
    "specblock": specblock,
    "eagle": eagle,
    "dflash": dflash,
    "dspark": dspark,
}
OWN_ROWS = 2048  # rows that the target writes, unless options say another number
REAL_SHARE = 0.25  # share of corpus rows among the target's own
HELD_OUT_ROWS = 96

Written = tuple[np.ndarray, np.ndarray]  # rows for training and for validation, [n, ROW] ids each


def config_for(name: str, target: PreTrainedModel, hidden: int | None = None) -> NetConfig:
    """The sizes of a drafter called `name` for this target; `hidden` is as in `width_for`."""
    config = target.config
    return NetConfig(
        kind=name,
        **width_for(config, hidden)._asdict(),
        layers=RECIPES[name].LAYERS,
        depth=RECIPES[name].DEPTH,
        vocab=config.vocab_size,
        rope_theta=(getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10000.0),
        own_vocab=eagle.own_size(config.vocab_size) if name == "eagle" else 0,
    )


def written(target: PreTrainedModel, tokenizer, data: Path, domains: list[str], work: Path, own_rows: int) -> Written:
    """Rows for training and for validation, `[n, ROW]` ids each."""
    corpus, held_out = (each.only(domains) for each in corpora(data, work, tokenizer))
    own = own_text(target, corpus, work, own_rows)
    real = corpus.batch(int(len(own) * REAL_SHARE / (1 - REAL_SHARE)), ROW, np.random.default_rng(6)).numpy()
    rows = np.random.default_rng(7).permutation(np.concatenate([own, real.astype(np.int32)]))
    (work / "held_out").mkdir(exist_ok=True)
    return rows, own_text(target, held_out, work / "held_out", HELD_OUT_ROWS, 16)


def observed(
    target: PreTrainedModel, write: Callable[[], Written], work: Path
) -> tuple[Shards | Observed, Shards | Observed]:
    """What is learned from and what validates: the target's view of the rows of `write`. On a CPU shards keep it for all drafters."""
    if target.device.type == "cuda":
        rows, held_out = write()
        return Observed(target, rows), Observed(target, held_out)
    if not (work / "ready").exists():
        rows, held_out = write()
        cache(target, rows, work / "rows")
        cache(target, held_out, work / "held_out")
        (work / "ready").touch()
    return Shards(work / "rows"), Shards(work / "held_out")


def taught(
    net: Net,
    options: argparse.Namespace,
    seen: tuple[Shards | Observed, Shards | Observed],
    work: Path,
    share: float = 1.0,
    save_every: float = 300.0,
) -> dict[str, float]:
    """Train `net` in place on `seen`, by the options' recipe and budget, at this `share` of the recipe's rate; its figures."""
    name, recipe, (shards, held_out) = options.recipe, RECIPES[options.recipe], seen
    extra = {"segments": options.segments} if name == "parallel" else {}

    def loss_of(step: int, share: float) -> tuple[torch.Tensor, int]:
        batch = shards.batch(step, options.rows or recipe.BATCH).to(options.device)
        return recipe.loss(net, batch, step, **extra), batch.ids.numel()

    def validate() -> dict[str, float]:
        net.eval()
        return recipe.validate(net, (batch.to(options.device) for batch in held_out.all(16)))

    budget = Budget(options.minutes, options.tokens)
    train(name, net, loss_of, validate, work, budget, share * recipe.LR, save_every, options.bf16)
    return validate()


def train_learned(options: argparse.Namespace) -> None:
    """Train `options.recipe` for the target and write it to `options.out/NAME`."""
    name, recipe, device = options.recipe, RECIPES[options.recipe], checked_device(options.device, TRAINED_ON)
    checkpoint = (
        Checkpoint(options.target, options.revision) if options.target else PAIRS[options.pair].target_checkpoint
    )
    subject = "" if len(options.domains) == len(DOMAINS) else "-" + "-".join(options.domains)
    work = options.work / "drafters" / ((options.target or options.pair).strip("/").replace("/", "--") + subject)
    tokenizer, kept = load_tokenizer_and_config(checkpoint)
    quantisation = kept_in(kept)
    embedded = not options.target and options.pair in EMBEDDED  # it serves on CPUs, whatever device trains for it
    dtype = torch.float32 if device.type == "cpu" or embedded or quantisation != "none" else torch.bfloat16
    target = load_model(checkpoint, device, dtype, quantisation)  # as it serves
    target.requires_grad_(False)
    work.mkdir(parents=True, exist_ok=True)

    def write() -> Written:
        return written(target, tokenizer, options.data, options.domains, work, options.own_rows or OWN_ROWS)

    seen = observed(target, write, work)
    torch.manual_seed(0)
    config = config_for(name, target, options.hidden)
    net = recipe.build(target, config, seen[0].ids()).to(device)
    if options.shared_tables and config.target_hidden:
        share(net, *tables_of(target))
    if options.start:
        stored, ours = load_file(options.start / "model.safetensors"), {said: name for name, said in net.names.items()}
        net.load_state_dict(net.state_dict() | {ours.get(key, key): each.float() for key, each in stored.items()})
    figures = taught(net, options, seen, work)
    net.save(options.out / name)
    print(json.dumps(figures))
