"""A drafter around another one. Knows the contract of drafters alone."""

from typing import Any

import torch

from engine.contracts import Drafter, Features
from engine.forward.cache import KVCache
from engine.tree import DraftTree


class DrafterWrapper(Drafter):
    """Answers as its `inner` drafter does, also beyond the contract, as with the blocks of a rank head. A subclass says what differs.

    It grows no tree in one call, because what differs would be left out.
    """

    def __init__(self, inner: Drafter):
        self.inner, self.reads_features, self.no_guess_reason = inner, inner.reads_features, inner.no_guess_reason

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def draft_forward_count(self) -> int:  # type: ignore[override]  # the inner drafter counts
        return self.inner.draft_forward_count

    def bind_target_cache(self, cache: KVCache) -> None:
        self.inner.bind_target_cache(cache)

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.inner.begin(prompt, features)

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        return self.inner.log_q(tree, nodes)

    def observe_target_logits(self, tree: DraftTree, logits: torch.Tensor, path: list[int]) -> None:
        self.inner.observe_target_logits(tree, logits, path)

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        self.inner.commit(tree, path, bonus, features)
