"""Medusa drafter: heads on the target's last hidden state, one a depth, which do not know the path. No forward and no cache."""

import torch

from engine.contracts import LAYERS, Drafter, Features
from engine.models.pairs import LoadedPair
from engine.nets.medusa import Medusa
from engine.tree import DraftTree


class MedusaDrafter(Drafter):
    title = "Medusa"
    about = "Heads on the target, one for each place ahead; none knows what the others guess."
    source = "Medusa (Cai et al. 2024)"
    guess_origin = LAYERS
    reads_features = True
    required_resource = "medusa"

    def __init__(self, pair: LoadedPair, capacity: int):
        self.net: Medusa = pair.net(self.required_resource)

    def begin(self, prompt: list[int], features: Features = None) -> None:
        behind = features[-1] if len(features) else features.new_zeros(features.shape[1:])
        self.set_features_and_clear_guesses(behind)

    def set_features_and_clear_guesses(self, features: torch.Tensor) -> None:
        """Guess from `features [4, H]`, the features of the token before the root."""
        self.final, self.levels = features[-1:], []

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        if max(tree.depth[node] for node in nodes) >= self.net.config.depth:
            return None
        while len(self.levels) <= max(tree.depth[node] for node in nodes):
            self.levels.append(self.net.log_q(self.final, len(self.levels)))
        return torch.cat([self.levels[tree.depth[node]] for node in nodes])

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        self.set_features_and_clear_guesses(features[([0, *path])[-1]])
