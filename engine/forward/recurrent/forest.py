"""Batched trees: those of one or several texts in one forward, and who follows whom in them. Knows numbers; knows no model and no
state.

Places count the nodes of all texts, `width` a text: node n of text t stands at `t * width + n`. Shorter trees leave places empty.
"""

from functools import cached_property

import torch
from torch import Tensor


def parents_from_mask(token_count: int, visible: Tensor | None) -> list[int]:
    """The parents of tokens that see their ancestors, bool `[N, N]`; None is one path of all. -1 is the text itself."""
    if visible is None:
        return list(range(-1, token_count - 1))
    before = visible.tril(-1) * torch.arange(1, token_count + 1)  # the last ancestor before a node is its parent
    return (before.amax(1) - 1).tolist()


class BatchedTrees:
    """The trees of some texts, each as its nodes' parents: -1 is the text itself, and parents come before children."""

    def __init__(self, trees: list[list[int]], device: torch.device):
        self.trees, self.device = trees, device
        self.texts, self.width = len(trees), max(map(len, trees), default=0)
        self._windows: dict[int, Tensor] = {}

    @property
    def padded_node_count(self) -> int:
        return self.texts * self.width

    @cached_property
    def ancestor_or_self_mask(self) -> Tensor:
        """Bool `[texts, width, width]`: whether a node of a text is another one or follows it. Empty places follow themselves."""
        found = torch.eye(self.width, dtype=torch.bool).repeat(self.texts, 1, 1)
        for text, parents in enumerate(self.trees):
            for node, parent in enumerate(parents):
                if parent >= 0:
                    found[text, node] |= found[text, parent]
        return found.to(self.device)

    def convolution_windows(self, window_size: int) -> Tensor:
        """`[places, window_size]`: the last inputs up to every node, in the order of the text. The texts' committed inputs count
        first.
        """
        if window_size not in self._windows:
            kept = self.texts * window_size
            # An empty place follows the end of its text.
            up = [max(0, at - 1) for at in range(kept)]
            up += [window_size * (text + 1) - 1 for text in range(self.texts) for _ in range(self.width)]
            for text, parents in enumerate(self.trees):
                first = kept + text * self.width
                for node, parent in enumerate(parents):
                    up[first + node] = first + parent if parent >= 0 else window_size * (text + 1) - 1
            before, steps = torch.tensor(up), [torch.arange(kept, kept + self.padded_node_count)]
            for _ in range(window_size - 1):
                steps.append(before[steps[-1]])
            self._windows[window_size] = torch.stack(steps[::-1], 1).to(self.device)
        return self._windows[window_size]
