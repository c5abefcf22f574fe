"""Drafters: who guesses. One file per drafter and one line in `DRAFTERS`; all answer the same question, `log_q(tree, nodes)`."""

from typing import Protocol

import torch

from engine.drafters.best_with_copies import BestDrafter
from engine.drafters.bigram import BigramDrafter
from engine.drafters.eagle import EagleDrafter
from engine.drafters.lookup import LookupDrafter
from engine.drafters.medusa import MedusaDrafter
from engine.drafters.model import ModelDrafter
from engine.drafters.none import NoDrafter
from engine.drafters.parallel import ParallelDrafter
from engine.drafters.specblock import SpecBlockDrafter
from engine.drafters.specblock_adapt import AdaptiveSpecBlockDrafter
from engine.tree import DraftTree


class Drafter(Protocol):
    """Guesses what may follow the nodes of a tree. Made as `Drafter(pair, capacity)`, one for each lane.

    The calls come in rounds: `log_q` for the root, then for deeper nodes whose ancestors were asked before, then one `commit`.
    `reads_features` says whether it wants the target's hidden states; others get None for them. `forwards` counts its own forwards.
    One that is compiled may also grow a round's whole tree of favourites by itself: `expands` is True then, and `expand(expansion,
    levels, noise, temperature, terms)` does what `engine.policies.growing.ask` does with `log_q`, for a target of `vocab` tokens.
    """

    reads_features: bool
    forwards: int

    def begin(self, prompt: list[int], features: torch.Tensor | None = None) -> None:
        """Take in the context; its last token is the first root. `features` `[len(prompt) - 1, 4, H]` of all tokens before it."""

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """Log-probabilities `[len(nodes), V]` (float32, temperature 1) of the token after each node; None for no guess at all."""

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: torch.Tensor | None = None) -> None:
        """The accepted nodes and the token after them, which is the next root. `features` `[N, 4, H]` of the tree's nodes."""


DRAFTERS: dict[str, type[Drafter]] = {
    "none": NoDrafter,
    "bigram": BigramDrafter,
    "lookup": LookupDrafter,
    "model": ModelDrafter,
    "medusa": MedusaDrafter,
    "eagle": EagleDrafter,
    "parallel": ParallelDrafter,
    "specblock": SpecBlockDrafter,
    "specblock-adapt": AdaptiveSpecBlockDrafter,
    "best": BestDrafter,
}
