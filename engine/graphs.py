"""CUDA graphs: forwards whose hundreds of kernel launches become one, by size, with the sentence that says why when they cannot.

A graph replays fixed addresses, so each belongs to one KV cache; what was captured outlives its session and serves the next one.
Nothing here decides what is computed: `StaticForward` does, and runs eagerly too.
"""

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable

import torch

from engine.static import StaticForward, rounded

SIZES = (1, 2, 4, 8, 16, 32, 64)  # numbers of tokens that forwards are captured for; fewer are padded
WARM_UPS = 3  # runs before a capture: kernels are chosen and workspaces taken there
KEPT = 6  # idle caches with their graphs that stay in memory
CAPTURING = threading.Lock()


def why_eager(device: torch.device) -> str:
    """A sentence that says why no graph is captured on this device, or "" where graphs can be tried."""
    if device.type != "cuda":
        return f"Forwards run eagerly: CUDA graphs need a CUDA GPU, and this is {device}."
    if os.environ.get("SPACES_ZERO_GPU"):
        return "Forwards run eagerly: ZeroGPU lends the GPU for one call at a time, and a CUDA graph does not outlive the loan."
    return ""


class Captured:
    """A function over tensors that stay in place, as a CUDA graph where the runner's device allows it, else the function itself.

    `runner.eager` holds the sentence why when it does not; a capture that fails puts it there, so that none is tried again.
    """

    def __init__(self, function: Callable[[], object], runner, pool: tuple[int, int] | None):
        """`pool` is the memory that the graph's temporaries share with other graphs, from `memory_pool`."""
        self.function, self.graph, self.outputs = function, None, None
        if runner.eager:
            return
        current = torch.cuda.current_stream(runner.device)
        try:
            self.capture(runner.device, pool)
            self.function = None  # it holds its owner, which holds this
        except Exception as error:  # whatever a model or a driver does not allow in a capture
            self.graph = self.outputs = None
            torch.cuda.set_stream(current)  # a capture that breaks off may leave its own one in place
            torch.cuda.synchronize(runner.device)
            said = " ".join(str(error).split())[:200]
            runner.eager = (
                f"Forwards run eagerly: {type(runner.model).__name__} could not be captured as a CUDA graph ({said})."
            )

    @torch.inference_mode()
    def capture(self, device: torch.device, pool: tuple[int, int] | None) -> None:
        with CAPTURING, torch.cuda.device(device):
            side = torch.cuda.Stream(device)
            side.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    self.function()
            torch.cuda.current_stream(device).wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):  # other lanes may go on
                self.outputs = self.function()
            self.graph = graph

    def __call__(self) -> object:
        """What the function returns. A graph's outputs are overwritten by its next run, and by other graphs of its pool."""
        if self.graph is None:
            return self.function()
        self.graph.replay()
        return self.outputs


def memory_pool(runner) -> tuple[int, int] | None:
    """Memory for the temporaries of graphs that never run at the same time; None where none is captured."""
    return None if runner.eager else torch.cuda.graph_pool_handle()


class Bucket:
    """The forward of up to `size` tokens, its inputs at fixed addresses. One copy brings all of them to the device."""

    def __init__(self, forward: StaticForward, size: int, pool: tuple[int, int] | None):
        self.forward, self.cache, self.size = forward, forward.cache, size
        self.staged = torch.zeros(size * (3 * 8 + self.cache.capacity), dtype=torch.uint8)
        self.inputs = self.staged.to(forward.runner.device, copy=True)
        self.captured = Captured(self.run, forward.runner, pool)

    def parts(self, raw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids, positions and slots int64 `[3, size]`, and `visible` bool `[size, capacity]`, within the bytes."""
        numbers, visible = raw[: 24 * self.size].view(torch.int64), raw[24 * self.size :].view(torch.bool)
        return numbers.view(3, self.size), visible.view(self.size, self.cache.capacity)

    def run(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        (ids, positions, slots), visible = self.parts(self.inputs)
        return self.forward(ids, positions, slots, visible)

    @torch.inference_mode()
    def __call__(
        self, ids: list[int], positions: list[int], visible: torch.Tensor | None, last_only: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`Session.forward` of at most `size` tokens; the tensors are the caller's own. The padding writes rows behind the new ones,
        which nobody may attend to."""
        visible = torch.ones(1, 1, dtype=torch.bool) if visible is None else visible
        count, end = len(ids), self.cache.rows + len(ids)
        (tokens, places, slots), shown = self.parts(self.staged)
        tokens[:count], places[:count] = torch.tensor(ids), torch.tensor(positions)
        tokens[count:], places[count:] = ids[0], positions[0]
        slots[:] = torch.arange(self.cache.rows, self.cache.rows + self.size)
        start = end - visible.shape[1]
        shown.zero_()
        shown[:count, :start], shown[:count, start:end] = True, visible
        shown[count:, 0] = True
        self.inputs.copy_(self.staged)
        logits, features = self.captured()
        first = count - 1 if last_only else 0
        return logits[first:count].clone(), None if features is None else features[:count].clone()


class Buckets:
    """A KV cache and its forwards by size. `Session` takes these on a GPU."""

    def __init__(self, runner, capacity: int, taps: tuple[int, ...], sizes: tuple[int, ...] = SIZES):
        self.cache = runner.new_cache(rounded(capacity))
        forward, pool = StaticForward(runner, self.cache, taps), memory_pool(runner)
        self.by_size = [Bucket(forward, size, pool) for size in sorted(sizes, reverse=True)][::-1]

    def fitting(self, count: int) -> Bucket | None:
        """The smallest bucket for `count` tokens; None when there is none or its padding would not fit behind the committed rows."""
        bucket = next((each for each in self.by_size if each.size >= count), None)
        return bucket if bucket is not None and self.cache.rows + bucket.size <= self.cache.capacity else None


class Lender:
    """Keeps what is dear to make, a cache with its graphs, for the next one who asks."""

    def __init__(self):
        self.idle: deque[tuple[Hashable, object]] = deque(maxlen=KEPT)

    def lend(self, key: Hashable, make: Callable[[], object], borrower: object) -> object:
        """What was made for `key`, an idle one or a new one. It comes back when the borrower is gone. Safe from any thread."""
        found = None
        for entry in list(self.idle):
            if entry[0] == key:
                try:
                    self.idle.remove(entry)
                except ValueError:  # another thread was faster
                    continue
                found = entry[1]
                break
        found = make() if found is None else found
        weakref.finalize(borrower, self.idle.append, (key, found)).atexit = False
        return found
