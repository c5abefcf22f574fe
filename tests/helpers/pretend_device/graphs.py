"""torch.cuda and torch.mps on the pretend device: graphs, events, streams, and `install`."""

import contextlib
import threading
import time
from types import SimpleNamespace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from helpers.pretend_device.tensors import (
    BEHIND,
    FREE,
    HERE,
    NESTED,
    PLACES,
    PRETENDED,
    Mode,
    Refused,
    capture,
    leaves,
    refuse_in_capture,
    traits_of,
)

CAPTURES: list["Graph"] = []  # every capture that ended well


class Outside:
    """Memory that a graph reads and did not make. The graph does not keep it alive."""

    def __init__(self, tensor: torch.Tensor):
        self.memory = StorageWeakRef(tensor.untyped_storage())
        self.shape = tensor.storage_offset(), tensor.size(), tensor.stride()
        self.dtype = tensor.dtype
        self.uses: list[tuple[Any, Any]] = []  # lists and dictionaries that name it during a replay, and where

    @property
    def key(self) -> tuple:
        """Equal for what is the same tensor."""
        return self.memory.cdata, *self.shape, self.dtype

    def tensor(self) -> torch.Tensor:
        if self.memory.expired():
            raise Refused(f"a graph read memory that is gone: {self.dtype} {self.shape}")
        storage = torch.UntypedStorage._new_with_weak_ptr(self.memory.cdata)
        return torch.empty(0, dtype=self.dtype).set_(storage, *self.shape)


class Graph:
    """`torch.cuda.CUDAGraph`: the operations of one capture."""

    def __init__(self, keep_graph: bool = False):
        self.steps: list[Any] = []
        self.own: dict[int, torch.UntypedStorage] = {}
        self.outside: list[Outside] = []

    def keep(self, tensors) -> None:
        for each in tensors:
            self.own[each.untyped_storage()._cdata] = each.untyped_storage()

    def record(self, func, args, kwargs, found: Any, fresh: bool = False) -> None:
        """A step. What shares no memory with its inputs is the graph's own; views and empty memory are no steps."""
        traits = traits_of(func)
        inputs = {x.untyped_storage()._cdata for x in leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        outputs = [x for x in leaves(found) if isinstance(x, torch.Tensor)]
        made = outputs if fresh else [x for x in outputs if x.untyped_storage()._cdata not in inputs]
        self.keep(made)
        if (made or traits.mutable) and "empty" not in traits.name:
            self.steps.append((func, args, kwargs, [] if traits.mutable else outputs))

    def finish(self) -> None:
        """Lets go of memory that is not its own. A replay puts it back where steps read it."""
        outside: dict[tuple, Outside] = {}

        def loosened(x: Any) -> Any:
            """The same in lists in place of tuples, with gaps in place of such memory."""
            if type(x) not in NESTED:
                return x
            made = dict(x) if type(x) is dict else list(x)
            for at, each in made.items() if type(x) is dict else enumerate(made):
                if isinstance(each, torch.Tensor) and each.untyped_storage()._cdata not in self.own:
                    one = Outside(each)
                    outside.setdefault(one.key, one).uses.append((made, at))
                    made[at] = None
                else:
                    made[at] = loosened(each)
            return made

        self.steps = [step if isinstance(step, Event) else loosened(step) for step in self.steps]
        self.outside = [*outside.values()]
        CAPTURES.append(self)

    def replay(self) -> None:
        refuse_in_capture("replay")
        with torch.inference_mode(), torch.utils._python_dispatch._disable_current_modes():
            for each in self.outside:
                tensor = each.tensor()
                for place, at in each.uses:
                    place[at] = tensor
            for step in self.steps:
                if isinstance(step, Event):
                    step.at = time.perf_counter()
                    continue
                func, args, kwargs, outputs = step
                found = func(*args, **kwargs)
                if outputs:
                    made = (x for x in leaves(found) if isinstance(x, torch.Tensor))
                    for old, new in zip(outputs, made, strict=False):
                        old.copy_(new)
            for each in self.outside:  # or the graph would keep it alive
                for place, at in each.uses:
                    place[at] = None


@contextlib.contextmanager
def capturing(graph: Graph, pool=None, stream=None, capture_error_mode: str = "global"):
    """`torch.cuda.graph`."""
    refuse_in_capture("a capture")
    HERE.capture = graph
    try:
        yield
    except Exception as error:
        HERE.capture = None
        raise Refused("CUDA error: operation failed due to a previous error during capture") from error
    HERE.capture = None
    graph.finish()


class Event:
    """`torch.cuda.Event`."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, external: bool = False):
        self.external, self.at = external, 0.0

    def record(self, stream=None) -> None:
        if (graph := capture()) is None:
            self.at = time.perf_counter()
        elif self.external:
            graph.steps.append(self)
        else:
            raise Refused("an event that is not external was recorded in a capture")

    def elapsed_time(self, other: "Event") -> float:
        return 1000 * (other.at - self.at)


class Stream:
    """`torch.cuda.Stream`. Work is done when it is asked for, so there is nothing to wait for."""

    device = PLACES["cuda"]

    def __init__(self, device=None, priority: int = 0):
        pass

    def wait_stream(self, other: "Stream") -> None:
        pass

    def synchronize(self) -> None:
        refuse_in_capture("stream.synchronize")


@contextlib.contextmanager
def on_stream(stream: Stream):
    before, HERE.stream = getattr(HERE, "stream", MAIN), stream
    try:
        yield
    finally:
        HERE.stream = before


def apply(self, fn, recurse: bool = True):
    """`torch.nn.Module._apply`, which makes new parameters instead of giving old ones other data."""
    for module in self.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                with torch.no_grad():
                    new = fn(parameter)
                module._parameters[name] = (
                    parameter if new is parameter else torch.nn.Parameter(new, parameter.requires_grad)
                )
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else fn(buffer)
    return self


MAIN = Stream()


SYNCHRONISED: list[str] = []  # a kind for each time that the host waited for the whole device


def synchronise(device: torch.device | None = None) -> None:
    """`torch.cuda.synchronize` and `torch.mps.synchronize`."""
    refuse_in_capture("synchronize")
    SYNCHRONISED.append(PRETENDED[0])


def install(kind: str) -> None:
    """From here on this process has one GPU, of a `kind` in `PLACES`. Not to be undone."""
    PRETENDED.append(kind)
    _setup_privateuseone_for_python_backend(BEHIND)
    run = threading.Thread.run

    def within(self) -> None:
        torch._C._set_only_lift_cpu_tensors(True)
        with Mode():
            run(self)

    threading.Thread.run = within
    torch.nn.Module._apply = apply
    {"cuda": install_cuda, "mps": install_mps}[kind]()
    torch._C._set_only_lift_cpu_tensors(True)
    Mode().__enter__()


def install_mps() -> None:
    torch.backends.mps.is_available = lambda: True
    torch.backends.mps.get_name = lambda: "pretend Apple"
    torch.mps.synchronize = synchronise
    torch.mps.recommended_max_memory = lambda: FREE[1]
    torch.mps.driver_allocated_memory = lambda: FREE[1] - FREE[0]


def install_cuda() -> None:
    properties = SimpleNamespace(name="pretend GPU", major=9, minor=0, total_memory=FREE[1], multi_processor_count=1)
    for name, value in {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0, "_lazy_init": lambda: None,
        "is_initialized": lambda: True, "get_device_name": lambda device=None: properties.name,
        "get_device_properties": lambda device=None: properties, "mem_get_info": lambda device=None: tuple(FREE),
        "synchronize": synchronise, "empty_cache": lambda: None,
        "device": lambda device=None: contextlib.nullcontext(), "stream": on_stream, "Stream": Stream, "Event": Event,
        "current_stream": lambda device=None: getattr(HERE, "stream", MAIN), "graph_pool_handle": lambda: (0, 1),
        "set_stream": lambda stream: setattr(HERE, "stream", stream), "graph": capturing, "CUDAGraph": Graph,
        "memory_reserved": lambda device=None: 0, "is_current_stream_capturing": lambda: capture() is not None,
    }.items():  # fmt: skip
        setattr(torch.cuda, name, value)
