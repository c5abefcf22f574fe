"""Target: the verifying model and its KV cache. Knows which rows a tree needs and which survive; knows no drafter and no rule.

Invariant: after `prefill_and_return_features` and after every `commit` the cache holds one row less than the context has tokens; the
root's is missing.
"""

import torch

from engine.forward.batch import SharedForwardBatch
from engine.forward.runner import Runner
from engine.tree import DraftTree


class Target:
    def __init__(self, runner: Runner | SharedForwardBatch, capacity: int, features: bool | tuple[int, ...] = False):
        """A batch's own forward takes the place of `verify`. `features` is what `engine.forward.session.Session` takes."""
        self.session = runner.open_session(capacity, features)

    @property
    def committed_rows(self) -> int:
        """Committed rows, which is also the root's position id."""
        return self.session.rows

    def prefill_and_return_features(self, prompt_tokens: list[int]) -> torch.Tensor | None:
        """Write the rows of the context without its last token, the root. Returns their features, if asked for."""
        return self.session.prefill(prompt_tokens)[1]

    def verify(self, tree: DraftTree) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One forward: logits `[N, V]` behind every node, which sees the context and its own path alone; and features, if asked for."""
        return self.session.forward(*self.build_tokens_positions_and_node_mask(tree))

    def build_tokens_positions_and_node_mask(self, tree: DraftTree) -> tuple[list[int], list[int], torch.Tensor | None]:
        """What a forward over the tree is asked: token and position of every node, and which nodes each may see."""
        visible = tree.ancestor_mask() if len(tree) > 1 else None
        return tree.tokens, tree.positions(self.committed_rows), visible

    def commit(self, path: list[int]) -> None:
        """Keep the rows of the root and of the accepted nodes, in path order."""
        self.session.keep([0, *path])
