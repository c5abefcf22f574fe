"""Medusa heads in the official form (`0.0.linear.weight`, `0.1.weight`) and in that of vLLM (`blocks.0.layers.0.weight`).

Either is read as a `Medusa` net. A config may give another number of heads than there are, so heads are counted by their names.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.nets.layer import NetConfig
from engine.nets.medusa import Medusa
from engine.nets.published import refuse_other_tensors, tensors_of

OFFICIAL = {
    "blocks.{}.weight": "{}.0.linear.weight",
    "blocks.{}.bias": "{}.0.linear.bias",
    "unembeds.{}": "{}.1.weight",
}
VLLM = {
    "blocks.{}.weight": "blocks.{}.layers.0.weight",
    "blocks.{}.bias": "blocks.{}.layers.0.bias",
    "unembeds.{}": "lm_heads.{}.weight",
}


def is_form_of(config: dict[str, Any]) -> bool:
    """Whether a config is of one of the two forms."""
    return "medusa_num_heads" in config or ("kind" not in config and config.get("model_type") == "medusa")


@dataclass(frozen=True)
class MedusaCheckpoint:
    """Published heads that fit the target by their config."""

    hidden: int
    vocab: int

    def load(self, folder: Path, embedding: torch.Tensor, head: torch.Tensor) -> Medusa:
        """The net for a target with `embedding [V, H]` and `head [V, H]`. Raises `ValueError` for tensors that do not fit."""
        found, hidden, vocab = tensors_of(folder), self.hidden, self.vocab
        vllm = any(name.startswith(("blocks.", "lm_heads.")) for name in found)
        pattern = r"(?:blocks|lm_heads)\.(\d+)\." if vllm else r"(\d+)\."
        heads = 1 + max((int(at[1]) for name in found if (at := re.match(pattern, name))), default=-1)
        if not 1 <= heads <= len(found):
            raise ValueError(f"{folder} holds no Medusa heads among its tensors {', '.join(sorted(found)[:3])}.")
        forms = VLLM if vllm else OFFICIAL
        names = {ours.format(k): theirs.format(k) for k in range(heads) for ours, theirs in forms.items()}
        shapes = {"weight": (hidden, hidden), "bias": (hidden,)}
        wanted = {theirs: shapes.get(ours.rpartition(".")[2], (vocab, hidden)) for ours, theirs in names.items()}
        biases = {name: wanted.pop(name) for name in list(wanted) if vllm and name.endswith(".bias")}
        refuse_other_tensors(folder, found, wanted, biases)
        net = Medusa(NetConfig("medusa", hidden, 1, 0, 0, heads, vocab), embedding, head)
        weights = {
            ours: found[theirs].float() if theirs in found else torch.zeros(biases[theirs])
            for ours, theirs in names.items()
        }
        net.load_state_dict(weights)
        net.to(embedding.device).eval().requires_grad_(False).pack()
        return net


def checkpoint_of(folder: Path, config: dict[str, Any], embedding: torch.Tensor, layers: int) -> MedusaCheckpoint:
    """The checkpoint that `config` describes, for a target with `embedding [V, H]`; how many `layers` it has does not matter.

    Raises `ValueError` for heads of several blocks, for a truncated vocabulary, and for sizes that do not fit the target.
    """
    vocab, hidden = embedding.shape
    said = config.get("vocab_size") or vocab, config.get("hidden_size") or hidden
    if said != (vocab, hidden):
        raise ValueError(
            f"The drafter in {folder} was trained for a target of {said[0]} tokens and hidden size {said[1]}, this one "
            f"has {vocab} and {hidden}. Use the drafter that was trained for this target."
        )
    blocks = config.get("medusa_num_layers", config.get("num_hidden_layers", 1))
    if blocks != 1:
        raise ValueError(f"{folder} has {blocks!r} blocks in each Medusa head. Only heads of one block are computed.")
    if config.get("truncated_vocab_size") not in (None, vocab):
        raise ValueError(
            f"{folder} guesses only {config['truncated_vocab_size']} tokens of {vocab}. Only heads over the target's "
            "whole vocabulary are computed."
        )
    if config.get("original_lm_head"):
        raise ValueError(f"{folder} uses original_lm_head. Only heads with projections of their own are computed.")
    return MedusaCheckpoint(hidden, vocab)
