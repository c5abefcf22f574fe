"""`engine.forward.session` from CUDA graphs; held equal by tests/fast/test_equal_to_reference.py[forward.session_gpu]."""

from typing import Any

import torch
from torch import Tensor

from engine.forward.cuda_graphs import Captured, memory_pool
from engine.forward.layer_ops import Answer, Taps
from engine.forward.runner_gpu import StaticForward, static_capacity

# Numbers of tokens that forwards are captured for; numbers between are padded. Prompts go by the largest
SIZES = (1, 2, 4, 8, 16, 32, 64, 256)


class Bucket:
    """The forward of up to `size` tokens, with inputs at fixed addresses. One copy brings all inputs to the device."""

    def __init__(self, forward: StaticForward, size: int, pool: tuple[int, int] | None):
        self.forward, self.cache, self.size = forward, forward.cache, size
        self.inputs = torch.zeros(size * (3 * 8 + self.cache.capacity), dtype=torch.uint8, device=forward.runner.device)
        self.captured = Captured(self.run, forward.runner, pool)

    def parts(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Views into the bytes `raw`: ids, positions and slots int64 `[3, size]`, and `visible` bool `[size, capacity]`."""
        numbers, visible = raw[: 24 * self.size].view(torch.int64), raw[24 * self.size :].view(torch.bool)
        return numbers.view(3, self.size), visible.view(self.size, self.cache.capacity)

    def run(self) -> Answer:
        (ids, positions, slots), visible = self.parts(self.inputs)
        return self.forward(ids, positions, slots, visible)

    def fill(self, raw: Tensor, ids: Any, positions: Any, visible: Tensor) -> None:
        """Write what `run` reads into the bytes `raw`. No token attends to the rows of the padding, behind the new ones."""
        (tokens, places, slots), shown = self.parts(raw)
        count, end = len(ids), self.cache.rows + len(ids)
        tokens[:count], places[:count] = ids, positions
        tokens[count:], places[count:] = tokens[:1], places[:1]
        slots[:] = torch.arange(self.cache.rows, self.cache.rows + self.size, device=raw.device)
        start = end - visible.shape[1]
        shown.fill_(False)
        shown[:count, :start], shown[:count, start:end] = True, visible
        shown[count:, 0] = True

    @torch.inference_mode()
    def __call__(self, ids: list[int], positions: list[int], visible: Tensor | None, last_only: bool) -> Answer:
        """`Session.forward` of at most `size` tokens, in tensors of the caller's own."""
        visible = torch.ones(1, 1, dtype=torch.bool) if visible is None else visible
        staged = torch.empty(self.inputs.shape, dtype=torch.uint8, pin_memory=self.inputs.is_cuda)
        self.fill(staged, torch.tensor(ids), torch.tensor(positions), visible)
        self.inputs.copy_(staged, non_blocking=True)  # pinned memory is not used anew before the copy has ended
        logits, features = self.captured()
        first, count = len(ids) - 1 if last_only else 0, len(ids)
        return logits[first:count].clone(), None if features is None else features[:count].clone()

    @torch.inference_mode()
    def on_device(self, ids: Tensor, position: int, visible: Tensor) -> Tensor:
        """`Session.forward_on_device` of at most `size` tokens."""
        self.fill(self.inputs, ids, position, visible)
        return self.captured()[0][: len(ids)].clone()


class Buckets:
    """A KV cache and its forwards by size, for `Session` on a GPU."""

    def __init__(self, runner, capacity: int, taps: Taps, sizes: Taps = SIZES):
        self.cache = runner.new_cache(static_capacity(capacity))
        forward, pool = StaticForward(runner, self.cache, taps), memory_pool(runner)
        self.by_size = [Bucket(forward, size, pool) for size in sorted(sizes, reverse=True)][::-1]
        self.whole = bool(runner.eager) or all(each.captured.graph for each in self.by_size)
        self.size = self.cache.kv.nbytes + sum(each.inputs.nbytes + each.captured.size for each in self.by_size)

    def fitting(self, count: int) -> Bucket | None:
        """The smallest bucket for `count` tokens; None when all are smaller or its rows would not fit behind the committed ones."""
        bucket = next((each for each in self.by_size if each.size >= count), None)
        return bucket if bucket is not None and self.cache.rows + bucket.size <= self.cache.capacity else None
