"""`python -m engine export`: a trained drafter in the layout of speculators, which this engine reads as a published drafter.

The weights are written as they are stored. A pair's calibration belongs to the drafter's guesses, which do not change.
"""

import json
from argparse import Namespace
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig

from engine.models.pairs import Pair, named, own_pair
from engine.models.refusals import in_plain_words
from engine.nets import NETS, NetConfig
from engine.nets.formats.checked import refuse_other_tensors, tensors_of
from engine.nets.formats.exported import EXPORTS, Verifier
from engine.nets.layer import ANEW

CARD = """# {kind} drafter for {target}

Written by `python -m engine export {kind}` of TreeRace, in the layout of speculators. It was trained for {target} alone.

{readers}
"""


def trained(pair: Pair, kind: str) -> tuple[NetConfig, dict[str, torch.Tensor]]:
    """The sizes and the stored weights of the pair's trained drafter. Raises `ValueError` when there is none of that kind."""
    folder = Path(pair.drafters or "") / kind
    if pair.drafters is None or not (folder / "config.json").is_file():
        raise ValueError(
            f"The pair {pair.title} has no trained {kind} drafter. Train one with `python -m engine train {kind} {pair.training}`."
        )
    stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not isinstance(stored, dict) or stored.get("kind") != kind:
        raise ValueError(f"{folder} holds no {kind} drafter that was trained here. {ANEW}")
    try:
        config = NetConfig(**stored)
    except TypeError as error:
        raise ValueError(f"{folder}/config.json holds no drafter's sizes: {error}. {ANEW}") from error
    weights = tensors_of(folder)
    with torch.device("meta"):  # shapes alone
        blank = torch.empty(config.vocab, config.hidden)
        shapes = {name: tuple(each.shape) for name, each in NETS[kind](config, blank, blank).state_dict().items()}
    refuse_other_tensors(folder, weights, shapes)
    return config, weights


def export(pair: Pair, kind: str, folder: Path) -> int:
    """Write config.json, model.safetensors and README.md of the pair's drafter to `folder`. Returns how many tensors there are.

    Raises `ValueError` when the pair has no such drafter, when the layout cannot hold it, or when `folder` has weights already.
    """
    if any(folder.glob("*.safetensors")):
        raise ValueError(f"{folder} holds safetensors already. Choose another folder.")
    config, weights = trained(pair, kind)
    with in_plain_words(pair.target_checkpoint):
        target = AutoConfig.from_pretrained(**pair.target_checkpoint.source)
    verifier = Verifier(
        pair.target, target.architectures or [], target.num_hidden_layers, target.max_position_embeddings
    )
    exported = EXPORTS[kind](config, weights, verifier)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(exported.config, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(
        CARD.format(kind=kind, target=pair.title, readers=exported.readers), encoding="utf-8"
    )
    save_file({name: each.contiguous() for name, each in exported.tensors.items()}, folder / "model.safetensors")
    return len(exported.tensors)


def main(options: Namespace) -> None:
    if options.drafter is not None and options.target is None:
        raise ValueError(f"--drafter {options.drafter!r} needs --target, the model that it drafts for.")
    pair = own_pair(options.target, None, options.drafter) if options.target else named(options.pair)
    count = export(pair, options.kind, options.folder)
    print(f"Wrote {count} tensors to {options.folder / 'model.safetensors'}.")
