"""Acceptance rules: which guesses survive. One file per rule and one line in `ACCEPTANCES`."""

from typing import Protocol

import torch

from engine.acceptance.speculative import Speculative
from engine.acceptance.token_match import TokenMatch
from engine.acceptance.verdict import Verdict
from engine.sampling import Sampling
from engine.tree import DraftTree


class Acceptance(Protocol):
    """Decides which path of a verified tree is kept.

    `proposal` says how the tree's tokens must have been picked for the rule to be right ("ranked" or "drawn"). `guarantee` is
    "tokens" (the very tokens of plain decoding), "law" (its distribution) or "lossy".
    """

    proposal: str
    guarantee: str

    def decide(self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling, position: int) -> Verdict:
        """`logits [N, V]` are the target's behind every node; `position` is the root's."""


ACCEPTANCES: dict[str, type[Acceptance]] = {"token_match": TokenMatch, "speculative": Speculative}

__all__ = ["ACCEPTANCES", "Acceptance", "Verdict"]
