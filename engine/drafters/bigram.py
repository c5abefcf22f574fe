"""Bigram drafter: guesses from the last token alone, out of a table of counts. Costs no forward."""

from typing import Any

import torch

from engine.contracts import COPIES, Drafter
from engine.models.advice import TABLE
from engine.models.pairs import LoadedPair
from engine.tree import DraftTree


class BigramDrafter(Drafter):
    title = "bigram table"
    about = "A table of which token follows which; it looks one token back."
    source = "tree-based speculative decoding for nanoGPT"
    guess_origin = COPIES
    required_resource = TABLE

    def __init__(self, pair: LoadedPair, capacity: int):
        super().__init__(pair, capacity)
        self.table: Any = pair.bigram

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        return self.table.log_q([tree.tokens[node] for node in nodes])
