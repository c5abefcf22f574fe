"""EAGLE drafter: one small layer goes on from the target's hidden states. One forward per tree level answers all branches. A P-EAGLE
net answers all levels in the root's forward, so all nodes of a depth get one guess.

Rows drafted from the drafter's own outputs are thrown away after a round.
"""

import numpy as np
import torch

from engine.contracts import Features
from engine.drafters.shared.drafted_rows import DraftedRowsByNode
from engine.drafters.shared.grows_at_once import CompiledTreeDrafter
from engine.drafters.shared.stream import FeatureEntryDrafter
from engine.models.pairs import LoadedPair
from engine.nets.eagle import Eagle, MaskTokenSession
from engine.nets.eagle_compiled import CompiledEagleSession, log_q_of_level, log_q_of_root
from engine.tree import DraftTree


class EagleDrafter(FeatureEntryDrafter, CompiledTreeDrafter):
    title = "EAGLE"
    about = "A small layer that goes on from the target's own hidden states."
    source = "EAGLE-3 (Li et al. 2025)"
    required_resource = "eagle"

    def __init__(self, pair: LoadedPair, capacity: int):
        super().__init__(pair, capacity)
        net: Eagle = pair.net(self.required_resource)
        self.reads_features, self.window = net.reads_features, net.window
        self.session = net.open_session(capacity)
        if isinstance(self.session, CompiledEagleSession):
            self.compile_and_use_growing_loops(
                log_q_of_root,
                log_q_of_level,
                self.session.cache,
                self.session.parts,
                vocabulary=self.session.vocabulary.numpy(),
            )

    def begin(self, prompt: list[int], features: Features = None) -> None:
        """The cache is empty, and the prompt's entries are pending: the first root's forward reads them."""
        self.session.cache.rows = self.base = 0  # rows of the text
        super().begin(prompt, features)

    def discard_draft(self) -> None:
        self.rows = DraftedRowsByNode()

    @torch.inference_mode()
    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """As `Drafter.log_q`; None where a node stands deeper than a P-EAGLE net guesses."""
        if isinstance(self.session, MaskTokenSession) and nodes != [0]:
            return self.session.log_q_at_depths([tree.depth[node] for node in nodes])
        self.draft_forward_count += 1
        if nodes == [0]:
            return self.session.log_q_of_root(*self.take_pending_entries_for_root_forward())
        # Each node goes on from its parent's output
        return self.session.log_q_of_level(
            [tree.tokens[node] for node in nodes],
            [1 + self.rows.drafted_row_of(tree, tree.parents[node]) for node in nodes],
            [self.first + self.base - 1 + tree.depth[node] for node in nodes],
            self.rows.assign_rows_and_build_mask(tree, nodes),
            max(0, self.base - self.window),
        )

    def take_pending_entries_for_root_forward(self) -> tuple[list[int], torch.Tensor, int, int]:
        """The arguments of the session's `log_q_of_root`, for the pending entries, whose rows stay."""
        (tokens, features), rows = self.take_pending_entries(), self.base
        self.base = rows + len(tokens)
        return tokens, features, self.first + rows, max(0, rows - self.window)

    def take_root_forward_inputs(self) -> tuple[list[int], np.ndarray, int, int, int]:
        tokens, features, position, start = self.take_pending_entries_for_root_forward()
        return tokens, features.contiguous().numpy(), position, start, len(tokens)

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        self.session.cache.rows = self.base
        super().commit(tree, path, bonus, features)
