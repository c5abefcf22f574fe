"""DSpark checkpoints in the form of DeepSpec, as `DSpark` nets.

One flat config says all. The files bring a confidence head, which cuts a chain short. Trees are cut by their scores instead, so that
head is not read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.nets.dspark import DSpark, DSparkSizes
from engine.nets.formats import dflash

ARCHITECTURE = "Qwen3DSparkModel"


@dataclass(frozen=True)
class DSparkCheckpoint(dflash.DFlashCheckpoint):
    """A published DSpark drafter that fits the target by its config."""

    sizes: DSparkSizes
    kind = DSpark

    def optional(self) -> dict[str, tuple[int, ...]]:
        sizes = self.sizes
        shared = (sizes.vocab, sizes.hidden)
        found: dict[str, tuple[int, ...]] = {"embed_tokens.weight": shared, "lm_head.weight": shared}
        if sizes.confident:
            found |= {"confidence_head.proj.weight": (1, sizes.confident), "confidence_head.proj.bias": (1,)}
        return found


def is_form_of(config: dict[str, Any]) -> bool:
    """Whether a config is DeepSpec's."""
    return ARCHITECTURE in (config.get("architectures") or ())


def checkpoint_of(folder: Path, config: dict[str, Any], embedding: torch.Tensor, layers: int) -> DSparkCheckpoint:
    """The checkpoint that `config` describes, for a target of so many `layers` and `embedding [V, H]`.

    Raises `ValueError` for another Markov head, and as `engine.nets.formats.dflash.checkpoint_of`.
    """
    rank, head = config.get("markov_rank"), config.get("markov_head_type")
    if type(rank) is not int or rank < 1:
        raise ValueError(
            f"{folder}/config.json must give markov_rank as a whole number from 1 on, got {rank!r}. Without a Markov head it is "
            "DFlash, which is read in the form of z-lab and in that of speculators."
        )
    if head != "vanilla":
        raise ValueError(f"{folder} has a Markov head of the type {head!r}. Only 'vanilla' is computed.")
    block = {name: config.get(name) for name in ("mask_token_id", "target_layer_ids")}
    plain = dflash.checkpoint_of(folder, {**config, "dflash_config": block}, embedding, layers).sizes
    confident = 0
    if config.get("enable_confidence_head"):
        confident = plain.hidden + (rank if config.get("confidence_head_with_markov") else 0)
    fields = {**vars(plain), "from_anchor": True, "rank": rank, "confident": confident}
    return DSparkCheckpoint(DSparkSizes(**fields), whole=False, config=config)
