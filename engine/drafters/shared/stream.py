"""A stream of entries: what a drafter reads that goes on from the target's features. Knows no net."""

import torch

from engine.contracts import LAYERS, Drafter, Features
from engine.forward.devices import select_rows
from engine.tree import DraftTree


def stream_start_after_first_token(prompt: list[int], features: torch.Tensor) -> tuple[int, torch.Tensor]:
    """The position of the first stream entry, and the features `[n, 4, H]` of all entries.

    An entry holds a token and the features of the token before it. Token 0 has none before it, so the stream begins at token 1.
    A prompt of one token begins at token 0, with zeros as its features.
    """
    return (1, features) if len(prompt) > 1 else (0, features.new_zeros(1, *features.shape[1:]))


class FeatureEntryDrafter(Drafter):
    """A drafter whose net reads a stream of entries.

    Invariant: between rounds its cache holds only rows of entries, made from the target's true features. They end just before the first
    token of `pending`, which the next forward reads with `features [n, 4, H]`. The first entry stands at position `first`.
    """

    guess_origin = LAYERS
    reads_features: bool | tuple[int, ...] = True

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.first, self.features = stream_start_after_first_token(prompt, features)
        self.pending = prompt[self.first :]
        self.discard_draft()

    def discard_draft(self) -> None:
        """Drop what was drafted, as at the start of a round."""
        raise NotImplementedError

    def take_pending_entries(self) -> tuple[list[int], torch.Tensor]:
        """The pending tokens and their features, for one forward. None are pending then."""
        entries = self.pending, self.features
        self.pending, self.features = [], self.features[:0]
        return entries

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        self.pending = self.pending + [tree.tokens[node] for node in path] + [bonus]
        self.features = torch.cat([self.features, select_rows(features, [0, *path])])
        self.discard_draft()
