"""`engine.forward.session` from CUDA graphs; held equal by tests/fast/test_equal_to_reference.py[forward.session_gpu]."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.forward.cuda_graphs import CapturedOrEagerFunction, graph_memory_pool
from engine.forward.layer_ops import LogitsAndFeatures, TappedLayers
from engine.forward.runner_gpu import StaticForward, round_up_static_capacity

if TYPE_CHECKING:
    from engine.forward.runner import Runner

# Numbers of tokens that forwards are captured for; numbers between are padded
SIZES = (1, 2, 4, 8, 16, 32, 64)
PROMPTS = (64, 256)  # the same of prompts, of which the last token's logits alone are wanted


class GraphBucket:
    """The forward of up to `max_tokens` tokens, with inputs at fixed addresses. One copy brings all inputs to the device.

    With `last_only` it gives the logits of the last token alone.
    """

    def __init__(self, forward: StaticForward, max_tokens: int, last_only: bool, pool: tuple[int, int] | None):
        self.forward, self.cache, self.size, self.last_only = forward, forward.cache, max_tokens, last_only
        count = 8 * (3 * max_tokens + 1) + max_tokens * self.cache.capacity
        self.inputs = torch.zeros(count, dtype=torch.uint8, device=forward.runner.device)
        self.captured = CapturedOrEagerFunction(self.run_on_inputs, forward.runner, pool)

    def view_inputs(self, input_bytes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Views into the bytes `input_bytes`: ids, positions and slots int64 `[3, size]`, the last token's row `[1]`, `visible` bool
        `[size, capacity]`.
        """
        numbers, visible = (
            input_bytes[: 8 * (3 * self.size + 1)].view(torch.int64),
            input_bytes[8 * (3 * self.size + 1) :],
        )
        shown = visible.view(torch.bool).view(self.size, self.cache.capacity)
        return numbers[:-1].view(3, self.size), numbers[-1:], shown

    def run_on_inputs(self) -> LogitsAndFeatures:
        (ids, positions, slots), last, visible = self.view_inputs(self.inputs)
        return self.forward(ids, positions, slots, visible, last if self.last_only else None)

    def fill_padded_inputs(self, input_bytes: Tensor, ids: Tensor, positions: Tensor, visible: Tensor) -> None:
        """Write what `run_on_inputs` reads into the bytes `input_bytes`. No token attends to the rows of the padding, behind the new
        ones.
        """
        (tokens, places, slots), last, shown = self.view_inputs(input_bytes)
        count, end = len(ids), self.cache.rows + len(ids)
        last.fill_(count - 1)
        tokens[:count], places[:count] = ids, positions
        tokens[count:], places[count:] = tokens[:1], places[:1]
        slots[:] = torch.arange(self.cache.rows, self.cache.rows + self.size, device=input_bytes.device)
        start = end - visible.shape[1]
        shown.fill_(False)
        shown[:count, :start], shown[:count, start:end] = True, visible
        shown[count:, 0] = True

    @torch.inference_mode()
    def __call__(
        self, ids: list[int], positions: list[int], visible: Tensor | None, last_only: bool
    ) -> LogitsAndFeatures:
        """`Session.forward` of at most `max_tokens` tokens, in tensors of the caller's own."""
        visible = torch.ones(1, 1, dtype=torch.bool) if visible is None else visible
        staged = torch.empty(self.inputs.shape, dtype=torch.uint8, pin_memory=self.inputs.is_cuda)
        self.fill_padded_inputs(staged, torch.tensor(ids), torch.tensor(positions), visible)
        self.inputs.copy_(staged, non_blocking=True)  # pinned memory is not used anew before the copy has ended
        logits, features = self.captured()
        count = len(ids)
        first = count - 1 if last_only and not self.last_only else 0
        return logits[first:count].clone(), None if features is None else features[:count].clone()


class GraphBuckets:
    """A KV cache and its forwards by size, for `Session` on a GPU: of trees and other `tree_sizes`, and of prompts."""

    def __init__(self, runner: "Runner", capacity: int, taps: TappedLayers, tree_sizes: TappedLayers):
        self.cache = runner.new_cache(round_up_static_capacity(capacity))
        forward, pool = StaticForward(runner, self.cache, taps), graph_memory_pool(runner)
        asked = sorted(
            [  # the largest first, whose temporaries then serve all
                *((size, False) for size in tree_sizes),
                *((size, True) for size in PROMPTS),
            ],
            reverse=True,
        )
        made = [GraphBucket(forward, *each, pool) for each in asked]
        self.by_size = sorted(made, key=lambda each: (each.size, not each.last_only))
        self.whole = not runner.captures_graphs or all(each.captured.graph for each in self.by_size)
        self.size = self.cache.kv.nbytes + sum(each.inputs.nbytes + each.captured.output_bytes for each in self.by_size)

    def find_bucket(self, count: int, last_only: bool) -> GraphBucket | None:
        """The smallest bucket for `count` tokens, of all with `last_only`, else of those that give every token's logits.

        None when all are smaller or its rows would not fit behind the committed ones.
        """
        able = (each for each in self.by_size if each.size >= count and (last_only or not each.last_only))
        bucket = next(able, None)
        return bucket if bucket is not None and self.cache.rows + bucket.size <= self.cache.capacity else None
