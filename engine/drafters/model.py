"""Draft-model drafter: a small language model with its own KV cache. One forward per tree level answers all branches.

Invariant: between rounds the cache holds the rows of the committed context without `pending`.
"""

import numpy as np
import torch

from engine.contracts import Counterpart
from engine.drafters.at_once.growing import GrowsAtOnce
from engine.drafters.at_once.model_compiled import Context, behind_level, grow_with_model
from engine.drafters.drafted_rows import DraftedRows
from engine.forward.llama_eight_bit import EightBitLlama
from engine.kernels.expansion import Expansion
from engine.kernels.named_arrays import NamedArrays
from engine.models.pairs import LoadedPair
from engine.tree import DraftTree


class ModelDrafter(GrowsAtOnce):
    title = "draft model"
    about = "A small language model beside the target."
    source = "Leviathan et al. 2023, Chen et al. 2023"
    counterpart = Counterpart("draft model")
    on_device = True

    def __init__(self, pair: LoadedPair, capacity: int):
        """Raises `ValueError` when the pair has no draft model."""
        if pair.draft is None:
            raise ValueError(f"The pair {pair.title} has no draft model. Choose the system lookup or another pair.")
        self.session, self.vocab = pair.draft.open(capacity), pair.target.vocab
        self.forwards, net, cache = 0, pair.draft.lean, self.session.cache
        if isinstance(net, EightBitLlama) and pair.draft.vocab == self.vocab:
            parts = NamedArrays(*net.weights.nests, Context(cache.numbers))
            self.grow_by(grow_with_model, behind_level, cache, parts, (np.array([0]),))

    def begin(self, prompt: list[int], features: torch.Tensor | None = None) -> None:
        self.session.prefill(prompt[:-1])
        self.pending = [prompt[-1]]  # committed tokens without a row; the last one is the root
        self.drafted = DraftedRows()

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        logits = self.first_level() if nodes == [0] else self.level(tree, nodes)
        self.forwards += 1
        width = logits.shape[-1]
        if width != self.vocab:  # drafts may pad their logits to another size than the target's
            logits = torch.nn.functional.pad(logits[:, : self.vocab], (0, max(0, self.vocab - width)), value=-torch.inf)
        return logits.float().log_softmax(-1)

    def entering(self) -> tuple:
        return (np.array(self.pending),)

    def grow(self, expansion: Expansion, noise: np.ndarray) -> None:
        super().grow(expansion, noise)
        self.pending, self.base = [], self.session.rows
        count, columns = expansion.counts["nodes"], expansion.columns
        keys, places = columns["key"][:count].tolist(), columns["place"][:count].tolist()
        self.drafted.seen = {key: [place - 1] for key, place in zip(keys, places, strict=True) if place}

    def first_level(self) -> torch.Tensor:
        """Logits `[1, V]` behind the root. The same forward reads the tokens committed since the last one."""
        logits, _ = self.session.prefill(self.pending)
        self.pending = []
        self.base = self.session.rows
        return logits  # type: ignore[return-value]  # at least the root is pending

    def level(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        """Logits `[n, V]` behind nodes whose ancestors' rows are written."""
        visible = self.drafted.write(tree, nodes)
        positions = [self.base - 1 + tree.depth[node] for node in nodes]
        logits, _ = self.session.forward([tree.tokens[node] for node in nodes], positions, visible)
        self.session.keep(list(range(len(nodes))))
        return logits

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: torch.Tensor | None = None) -> None:
        if not self.pending:  # this round wrote rows: keep those of the path; they cover its first nodes
            kept = self.drafted.of(tree, path)
            self.session.rewind(self.base)
            self.session.keep(kept)
            path = path[len(kept) :]
        self.pending += [tree.tokens[node] for node in path] + [bonus]
        self.drafted = DraftedRows()
