"""Draft-model drafter: a small language model with its own KV cache. One forward per tree level answers all branches.

Invariant: between rounds the cache holds the rows of the committed context without `pending`.
"""

from typing import cast

import numpy as np
import torch

from engine.contracts import SMALL_MODEL, Features
from engine.drafters.shared.drafted_rows import DraftedRowsByNode
from engine.drafters.shared.grows_at_once import CompiledTreeDrafter
from engine.forward.layer_ops import log_q_of_padded_logits
from engine.forward.llama_eight_bit import EightBitLlama, log_q_of_level, log_q_of_root
from engine.forward.runner import Runner
from engine.kernels.expansion import TreeExpansion
from engine.models.advice import DRAFT
from engine.models.pairs import LoadedPair
from engine.tree import DraftTree

NO_FEATURES = np.zeros((0, 0, 0), np.float32)


class ModelDrafter(CompiledTreeDrafter):
    title = "draft model"
    about = "A small language model beside the target."
    source = "Leviathan et al. 2023, Chen et al. 2023"
    guess_origin = SMALL_MODEL
    required_resource = DRAFT

    def __init__(self, pair: LoadedPair, capacity: int):
        super().__init__(pair, capacity)
        draft = cast(Runner, pair.draft)
        self.session = draft.open_session(capacity)
        net = draft.own
        if isinstance(net, EightBitLlama) and draft.vocab == self.vocab:
            cache = self.session.cache
            self.compile_and_use_growing_loops(log_q_of_root, log_q_of_level, cache, net.weights_and_lane_arrays(cache))

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.session.prefill(prompt[:-1])
        self.pending = [prompt[-1]]  # committed tokens without a row; the last one is the root
        self.rows = DraftedRowsByNode()

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        """As `Drafter.log_q`. The root's forward also reads the tokens committed since the last one."""
        self.draft_forward_count += 1
        if nodes == [0]:
            logits, _ = self.session.prefill(self.pending)
            self.pending, self.base = [], self.session.rows
        else:
            visible = self.rows.assign_rows_and_build_mask(tree, nodes)
            positions = [self.base - 1 + tree.depth[node] for node in nodes]
            logits, _ = self.session.forward([tree.tokens[node] for node in nodes], positions, visible)
            self.session.keep(list(range(len(nodes))))
        return log_q_of_padded_logits(logits, self.vocab)  # type: ignore[arg-type]  # at least the root is pending

    def take_root_forward_inputs(self) -> tuple[list[int], np.ndarray, int, int, int]:
        return self.pending, NO_FEATURES, self.session.rows, 0, len(self.pending)

    def grow_compiled_tree_into_expansion(self, expansion: TreeExpansion) -> None:
        super().grow_compiled_tree_into_expansion(expansion)
        self.pending, self.base = [], self.session.rows
        count, columns = expansion.counts["nodes"], expansion.columns
        keys, places = columns["key"][:count].tolist(), columns["place"][:count].tolist()
        self.rows.seen = {key: [place - 1] for key, place in zip(keys, places, strict=True) if place}
        self.rows.count = len(self.rows.seen)

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        if not self.pending:  # this round wrote rows: keep those of the path; they cover its first nodes
            kept = self.rows.drafted_rows_of_path(tree, path)
            self.session.rewind(self.base)
            self.session.keep(kept)
            path = path[len(kept) :]
        self.pending += [tree.tokens[node] for node in path] + [bonus]
        self.rows = DraftedRowsByNode()
