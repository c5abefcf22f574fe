"""Acceptance rules: which guesses survive. One file per rule and one line in `ACCEPTANCES`."""

from typing import Protocol

import torch

from engine.acceptance.independent import Independent
from engine.acceptance.k_seq import KSeq
from engine.acceptance.speculative import Speculative
from engine.acceptance.token_match import TokenMatch
from engine.acceptance.typical import Typical
from engine.acceptance.verdict import Verdict
from engine.acceptance.with_replacement import WithReplacement
from engine.acceptance.without_replacement import WithoutReplacement
from engine.sampling import Sampling
from engine.tree import DraftTree


class Acceptance(Protocol):
    """Decides which path of a verified tree is kept.

    `proposal` says how the tree's tokens must have been picked for the rule to be what it promises: one of the policies' `PROPOSALS`,
    or "any". `guarantee` is "tokens" (the very tokens of plain decoding), "law" (its distribution) or "lossy".
    """

    proposal: str
    guarantee: str

    def decide(self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling, position: int) -> Verdict:
        """`logits [N, V]` are the target's behind every node; `position` is the root's."""


ACCEPTANCES: dict[str, type[Acceptance]] = {
    "token_match": TokenMatch,
    "speculative": Speculative,
    "with_replacement": WithReplacement,
    "without_replacement": WithoutReplacement,
    "k_seq": KSeq,
    "independent": Independent,
    "typical": Typical,
}

__all__ = ["ACCEPTANCES", "Acceptance", "Verdict"]
