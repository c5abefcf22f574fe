"""CUDA graphs: one launch in place of a forward's hundreds, or a sentence that says why not.

A graph replays fixed addresses, so each belongs to one KV cache. A captured graph outlives its session and serves the next one.
`StaticForward` decides what is computed, and it runs eagerly too.
"""

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from engine.record.failures import is_out_of_memory

if TYPE_CHECKING:
    from engine.forward.runner import Runner

WARM_UPS = 3  # runs before a capture, in which kernels are chosen and workspaces allocated
KEPT_SHARE = 0.125  # of the memory that is free when a pair is loaded, for the idle caches of each of its models
CAPTURING = threading.Lock()


def explain_no_cuda_graphs(device: torch.device, spread: bool = False, recurrent: bool = False) -> str:
    """A sentence that says why no graph is captured on this device and for such a model, or "" where graphs can be tried."""
    if device.type != "cuda":
        return f"Forwards run eagerly: CUDA graphs need a CUDA GPU, and this is {device}."
    if os.environ.get("SPACES_ZERO_GPU"):
        return "Forwards run eagerly: ZeroGPU lends the GPU for one call at a time, and a CUDA graph does not outlive the loan."
    if spread:
        return "Forwards run eagerly: a CUDA graph belongs to one GPU, and this model is spread over several devices."
    if recurrent:
        return "Forwards run eagerly: a CUDA graph replays what it captured, and layers with states are told of every tree anew."
    return ""


def max_idle_cache_bytes(device: torch.device) -> int:
    """How much memory a model's idle caches with their graphs may take. Without graphs none is kept."""
    return int(KEPT_SHARE * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0


def root_cause_of(error: BaseException) -> BaseException:
    """The error that all others came of. A capture that breaks off complains a second time when it ends."""
    while error.__context__ is not None:
        error = error.__context__
    return error


class CapturedOrEagerFunction:
    """A function over tensors that stay in place: a CUDA graph where the runner's device allows it, else the function itself.

    A capture that fails writes the sentence `runner.why_eager`, so none is tried again.
    Too little memory is no such failure: idle caches are dropped, and where that is not enough this one function runs eagerly.
    """

    def __init__(self, function: Callable[[], object], runner: "Runner", pool: tuple[int, int] | None):
        """`pool` is the memory that the graph's temporaries share with other graphs, from `graph_memory_pool`."""
        self.function: Any = function
        self.graph: Any = None
        self.outputs: Any = None
        if not runner.captures_graphs:
            return
        failure = self.try_capture(runner.device, pool)
        if failure is not None and is_out_of_memory(failure):
            runner.lender.clear()
            torch.cuda.empty_cache()
            failure = self.try_capture(runner.device, pool)
        if failure is not None and not is_out_of_memory(failure):
            said = " ".join(str(failure).split())[:200]
            runner.why_eager = (
                f"Forwards run eagerly: {type(runner.model).__name__} could not be captured as a CUDA graph ({said})."
            )

    def try_capture(self, device: torch.device, pool: Any) -> BaseException | None:
        """Captures the function. Returns what went wrong, or None."""
        current = torch.cuda.current_stream(device)
        try:
            self.capture(device, pool)
        except Exception as error:  # whatever a model or a driver does not allow in a capture
            self.graph = self.outputs = None
            torch.cuda.set_stream(current)  # a capture that fails may leave its own stream in place
            torch.cuda.synchronize(device)
            return root_cause_of(error).with_traceback(None)  # frames would hold the memory that is missing
        self.function = None  # a bound method would hold its owner, and the owner holds this object
        return None

    @torch.inference_mode()
    def capture(self, device: torch.device, pool: Any) -> None:
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

    @property
    def output_bytes(self) -> int:
        """Bytes of the outputs, which a graph holds."""
        return sum(each.nbytes for each in self.outputs or () if each is not None)

    def __call__(self) -> Any:
        """What the function returns. The next run of the graph, or of another one of its pool, overwrites the outputs."""
        if self.graph is None:
            return self.function()
        self.graph.replay()
        return self.outputs


def graph_memory_pool(runner: "Runner") -> tuple[int, int] | None:
    """A memory pool for the temporaries of graphs that never run at the same time; None where no graph is captured."""
    return torch.cuda.graph_pool_handle() if runner.captures_graphs else None
