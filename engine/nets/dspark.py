"""DSpark's net (deepseek-ai/DeepSpec `modeling/dspark`): DFlash's block, and a low-rank bias by the token before each guess.

Every slot of the block predicts the token behind it, the anchor's own slot too. A slot does not know the path, so a Markov head tells
it the last token of it: the logits behind token t take the bias W2 W1[t]. The bias is the same at every depth.

DeepSpec's files say all in one flat config. They bring a confidence head, which cuts a chain short. Trees are cut by their scores
instead, so that head is not read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from engine.nets import dflash_formats
from engine.nets.dflash import DFlash, DFlashSizes
from engine.nets.dflash_compiled import CompiledDSpark
from engine.nets.layer import Linear

ARCHITECTURE = "Qwen3DSparkModel"


@dataclass(frozen=True)
class DSparkSizes(DFlashSizes):
    """As `DFlashSizes`. `rank` is the number of columns of W1 and W2, and `confident` that of a confidence head, 0 without one."""

    rank: int = 0
    confident: int = 0


class DSpark(DFlash):
    kind = "dspark"
    sizes: DSparkSizes

    def __init__(
        self,
        sizes: DSparkSizes,
        embedding: torch.Tensor,
        head: torch.Tensor,
        vocabulary: torch.Tensor,
        published: dict[str, Any],
    ):
        super().__init__(sizes, embedding, head, vocabulary, published)
        before, after = nn.Embedding(sizes.vocab, sizes.rank), Linear(sizes.rank, sizes.vocab)
        nn.init.zeros_(after.weight)
        self.markov_head = nn.ModuleDict({"markov_w1": before, "markov_w2": after})

    def packed(self) -> CompiledDSpark | None:
        return None if super().packed() is None else CompiledDSpark(self)

    def bias(self, tokens: torch.Tensor) -> torch.Tensor:
        """What is added to the logits `[..., V]` behind `tokens [...]`."""
        return self.markov_head["markov_w2"](self.markov_head["markov_w1"](tokens))

    def following(self, slots: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        """Log-probabilities `[n, V]` behind `tokens [n]`, from the log-probabilities `[n, V]` of slots that do not know them."""
        if self.compiled:
            return self.compiled.following(slots, tokens)
        return (slots + self.bias(torch.tensor(tokens, device=slots.device))).log_softmax(-1)


@dataclass(frozen=True)
class DSparkCheckpoint(dflash_formats.DFlashCheckpoint):
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

    Raises `ValueError` for another Markov head, and as `engine.nets.dflash_formats.checkpoint_of`.
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
    plain = dflash_formats.checkpoint_of(folder, {**config, "dflash_config": block}, embedding, layers).sizes
    confident = 0
    if config.get("enable_confidence_head"):
        confident = plain.hidden + (rank if config.get("confidence_head_with_markov") else 0)
    fields = {**vars(plain), "from_anchor": True, "rank": rank, "confident": confident}
    return DSparkCheckpoint(DSparkSizes(**fields), whole=False, config=config)
