"""Draft-model drafter: a small language model with its own KV cache. One forward per tree level answers all branches.

Invariant: between rounds the cache holds the rows of the committed context without `pending`.
"""

import numpy as np
import torch

from engine.contracts import Counterpart, Features
from engine.drafters.model_compiled import DraftCache, behind_level, grow_with_model
from engine.drafters.shared.drafted_rows import DraftedRows
from engine.drafters.shared.grows_at_once import GrowsAtOnce
from engine.forward.layer_ops import fitted
from engine.forward.llama_eight_bit import EightBitLlama
from engine.forward.uploads import uploaded
from engine.kernels.expansion import Expansion
from engine.kernels.named_arrays import NamedArrays
from engine.models.pairs import LoadedPair
from engine.tree import LARGEST_TREE, DraftTree

NOTHING = torch.zeros(1, 0, dtype=torch.bool)  # the drafted rows that the root sees


class ModelDrafter(GrowsAtOnce):
    title = "draft model"
    about = "A small language model beside the target."
    source = "Leviathan et al. 2023, Chen et al. 2023"
    counterpart = Counterpart("draft model")

    def __init__(self, pair: LoadedPair, capacity: int):
        if pair.draft is None:
            raise ValueError(f"The pair {pair.title} has no draft model. Choose the system lookup or another pair.")
        self.session, self.vocab = pair.draft.open(capacity), pair.target.vocab
        net, cache = pair.draft.own, self.session.cache
        if isinstance(net, EightBitLlama) and pair.draft.vocab == self.vocab:
            parts = NamedArrays(*net.weights.nests, DraftCache(cache.numbers))
            self.grow_by(grow_with_model, behind_level, cache, parts, (np.array([0]),))

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.session.prefill(prompt[:-1])
        self.pending = [prompt[-1]]  # committed tokens without a row; the last one is the root
        self.rows = DraftedRows()
        # Of the nodes that were answered last: which drafted rows each sees, bool [n, rows], and their position
        self.visible, self.position = NOTHING, 0

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        """As `Drafter.log_q`. The root's forward also reads the tokens committed since the last one."""
        self.forwards += 1
        if nodes == [0]:
            logits, _ = self.session.prefill(self.pending)
            self.pending, self.base = [], self.session.rows
            self.visible, self.position = NOTHING, self.base - 1
        else:
            self.visible, self.position = self.rows.write(tree, nodes), self.base - 1 + tree.depth[nodes[0]]
            positions = [self.base - 1 + tree.depth[node] for node in nodes]
            logits, _ = self.session.forward([tree.tokens[node] for node in nodes], positions, self.visible)
            self.session.keep(list(range(len(nodes))))
        return fitted(logits, self.vocab)  # type: ignore[arg-type]  # at least the root is pending

    def deeper(self, tokens: torch.Tensor, above: torch.Tensor) -> torch.Tensor | None:
        session, count = self.session, len(tokens)
        unwritten = LARGEST_TREE - len(self.rows.seen)  # nodes that may be asked about yet
        if session.rows + count + unwritten > session.cache.capacity:
            return None
        own = torch.eye(count, dtype=torch.bool, device=tokens.device)
        visible = torch.cat([uploaded(self.visible, tokens.device).index_select(0, above), own], 1)
        logits = session.forward_on_device(tokens, self.position + 1, visible)
        if logits is None:
            return None
        session.keep(list(range(count)))
        self.rows.ahead(count)
        self.visible, self.position = visible, self.position + 1
        return fitted(logits, self.vocab)

    def drafted(self, tree: DraftTree, nodes: list[int], rows: list[int]) -> None:
        self.forwards += 1
        self.rows.asked(tree, nodes, rows)

    def entering(self) -> tuple:
        return (np.array(self.pending),)

    def grow(self, expansion: Expansion, noise: np.ndarray) -> None:
        super().grow(expansion, noise)
        self.pending, self.base = [], self.session.rows
        count, columns = expansion.counts["nodes"], expansion.columns
        keys, places = columns["key"][:count].tolist(), columns["place"][:count].tolist()
        self.rows.seen = {key: [place - 1] for key, place in zip(keys, places, strict=True) if place}
        self.rows.count = len(self.rows.seen)

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        if not self.pending:  # this round wrote rows: keep those of the path; they cover its first nodes
            kept = self.rows.of(tree, path)
            self.session.rewind(self.base)
            self.session.keep(kept)
            path = path[len(kept) :]
        self.pending += [tree.tokens[node] for node in path] + [bonus]
        self.rows = DraftedRows()
