"""EAGLE drafter: one small layer goes on from the target's hidden states. One forward per tree level answers all branches. A P-EAGLE
net answers all levels in the root's forward, so all nodes of a depth get one guess.

Invariant: between rounds the cache holds only rows made from the target's true features. They end just before the first token of
`pending`. Rows drafted from the drafter's own outputs are thrown away.
"""

import numpy as np
import torch

from engine.contracts import LAYERS, Features
from engine.drafters.shared.drafted_rows import DraftedRows, stream_start_and_features
from engine.drafters.shared.grows_at_once import CompiledTreeDrafter
from engine.forward.uploads import select_rows
from engine.models.pairs import LoadedPair
from engine.nets.eagle import Eagle, MaskTokenSession
from engine.nets.eagle_compiled import CompiledEagleSession, grow_with_eagle, log_q_of_level
from engine.tree import DraftTree


class EagleDrafter(CompiledTreeDrafter):
    title = "EAGLE"
    about = "A small layer that goes on from the target's own hidden states."
    source = "EAGLE-3 (Li et al. 2025)"
    idea = LAYERS
    reads_features: bool | tuple[int, ...] = True
    takes = "eagle"

    def __init__(self, pair: LoadedPair, capacity: int):
        super().__init__(pair, capacity)
        net: Eagle = pair.net(self.takes)
        self.reads_features, self.window = net.reads, net.window
        self.session = net.open(capacity)
        if isinstance(self.session, CompiledEagleSession):
            example = np.array([0]), np.zeros((1, 1, 1), np.float32), np.array([0]), 0, 0
            self.use_loop(grow_with_eagle, log_q_of_level, self.session.cache, self.session.parts, example)

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.session.cache.rows = 0
        self.first, features = stream_start_and_features(prompt, features)
        self.pending, self.features, self.chosen = prompt[self.first :], features, list(range(len(features)))
        self.discard_draft()

    def discard_draft(self) -> None:
        """Drop what was drafted, as at the start of a round."""
        self.rows, self.asked = DraftedRows(), False

    @torch.inference_mode()
    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """As `Drafter.log_q`; None where a node stands deeper than a P-EAGLE net guesses."""
        if isinstance(self.session, MaskTokenSession) and nodes != [0]:
            return self.session.log_q_at_depths([tree.depth[node] for node in nodes])
        self.forwards += 1
        if nodes == [0]:
            return self.session.log_q_of_root(*self.root_arguments())
        # Each node goes on from its parent's output
        return self.session.log_q_of_level(
            [tree.tokens[node] for node in nodes],
            [1 + self.rows.row_of(tree, tree.parents[node]) for node in nodes],
            [self.first + self.base - 1 + tree.depth[node] for node in nodes],
            self.rows.assign_rows(tree, nodes),
            max(0, self.base - self.window),
        )

    def compiled_loop_arguments(self) -> tuple:
        tokens, features, chosen, position, start = self.root_arguments()
        return np.array(tokens), features.numpy(), np.array(chosen), position, start

    def root_arguments(self) -> tuple:
        """The arguments of the session's `log_q_of_root`: the entries committed since the last round enter with it."""
        rows = self.session.cache.rows
        self.base, self.asked = rows + len(self.pending), True
        return self.pending, self.features, self.chosen, self.first + rows, max(0, rows - self.window)

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        tokens, chosen = [tree.tokens[node] for node in path] + [bonus], [0, *path]
        if self.asked:  # the root's row is committed; rows of drafted features are dropped
            self.session.cache.rows = self.base
            self.pending, self.features, self.chosen = tokens, features, chosen
        else:
            self.pending = self.pending + tokens
            self.features = torch.cat([select_rows(self.features, self.chosen), select_rows(features, chosen)])
            self.chosen = list(range(len(self.pending)))
        self.discard_draft()
