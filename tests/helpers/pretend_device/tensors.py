"""Tensors of the pretend device, and what happens to them. Knows which graph a thread captures; replays none."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

aten = torch.ops.aten
BEHIND = "npy"  # the device that torch's C++ sees
PLACES = {"cuda": torch.device("cuda:0"), "mps": torch.device("mps:0")}  # what a tensor says, by kind
LACKS = {"cuda": frozenset(), "mps": frozenset({torch.float64, torch.complex128})}  # types by kind
PRETENDED: list[str] = []  # the one kind that this process pretends to have
WAITS: Counter[str] = Counter()  # of the host for the device, by operation
HERE = threading.local()  # `capture` is what this thread captures, `stream` its current stream
FREE = [100 * 2**30, 139 * 2**30]  # bytes that the device says are free, and has
READS = {aten._local_scalar_dense.default, aten.item.default, aten.equal.default, aten.is_nonzero.default}
SIZED = {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount", "argwhere", "histc"}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
SCALARS = {"where", "masked_fill", "masked_fill_", "fill_", "index_fill", "index_fill_", "scatter", "set_", "detach"}
NESTED = (tuple, list, dict)  # what operators' arguments and results stand in
# Operators made of others that a real device has a kernel for, too
WHOLE = {
    "scaled_dot_product_attention",
    "linear",
    "matmul",
    "embedding",
    "dropout",
    "reshape",
    "index_select",
    "rms_norm",
}


class Refused(RuntimeError):
    """What the device would not do."""


def place() -> torch.device:
    """What tensors of the pretended kind say."""
    return PLACES[PRETENDED[0]]


def capture() -> Any:
    """The graph that this thread captures, or None."""
    return getattr(HERE, "capture", None)


def refuse_in_capture(what: str) -> None:
    if capture() is not None:
        raise Refused(f"CUDA error: operation not permitted when stream is capturing ({what})")


def wait(what: str) -> None:
    """The host waits for the device."""
    refuse_in_capture(what)
    WAITS[what] += 1


def leaves(x: Any) -> list[Any]:
    """What stands in the lists, tuples and dictionaries that operators are given and give."""
    if type(x) not in NESTED:
        return [x]
    found: list[Any] = []
    for each in x.values() if type(x) is dict else x:
        if type(each) not in NESTED:
            found.append(each)
        elif each:
            found += leaves(each)
    return found


def mapped(change: Callable[[Any], Any], x: Any) -> Any:
    """The same lists, tuples and dictionaries, with every leaf changed. torch's own `tree_map` would take half of the time."""
    if type(x) is dict:
        return {name: mapped(change, each) for name, each in x.items()}
    if type(x) in NESTED:
        return type(x)([mapped(change, each) if type(each) in NESTED else change(each) for each in x])
    return change(x)


def held(x: Any) -> Any:
    """The numbers behind a pretend tensor, and the CPU for its device; anything else as it is."""
    if isinstance(x, Pretended):
        return x.held
    return torch.device("cpu") if isinstance(x, torch.device) and on_gpu(x) else x


def on_gpu(device: torch.device) -> bool:
    return device.type in (*PRETENDED, BEHIND)


def is_pinned(tensor: torch.Tensor) -> bool:
    return getattr(tensor, "pretends_pinned", False)


class Pretended(torch.Tensor):
    """A tensor on the pretend device. `held` has its numbers."""

    @staticmethod
    def __new__(cls, numbers: torch.Tensor):
        if numbers.dtype in LACKS[PRETENDED[0]]:
            raise TypeError(f"Cannot convert a MPS Tensor to {numbers.dtype}: the MPS framework doesn't support it.")
        made = torch.Tensor._make_wrapper_subclass(
            cls, numbers.size(), strides=numbers.stride(), storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype, layout=numbers.layout, device=torch.device(BEHIND, 0),
        )  # fmt: skip
        made.held = numbers
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: place())
    is_cuda = property(lambda self: place().type == "cuda")
    is_mps = property(lambda self: place().type == "mps")
    is_cpu = property(lambda self: False)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        with Mode():
            return func(*args, **(kwargs or {}))

    def tolist(self):
        wait("tolist")
        return self.held.tolist()

    def numpy(self, *args, **kwargs):
        raise TypeError(f"can't convert {place()} device type tensor to numpy.")


class Mode(TorchDispatchMode):
    """Carries out what has to do with the device, and judges it first."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch compiles nothing here, so that no operation need be shielded from its compiler, which takes time for each."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, traits = dict(kwargs or {}), traits_of(func)
        pinned, name = kwargs.pop("pin_memory", None), traits.name
        tensors, asked, there = [], None, False
        for x in leaves((args, kwargs)):
            if isinstance(x, torch.Tensor):
                tensors.append(x)
                there = there or isinstance(x, Pretended)
            elif asked is None and isinstance(x, torch.device):
                asked = x
        if name == "is_pinned":
            return is_pinned(args[0])
        if name in ("pin_memory", "_pin_memory"):
            if place().type == "mps":
                raise Refused("memory is pinned for CUDA")
            made = args[0].clone()
            made.pretends_pinned = True
            return made
        if not there and not (asked is not None and on_gpu(asked)):
            made = func(*args, **kwargs)
            if pinned:
                made.pretends_pinned = True
            return made
        if traits.reads:
            wait(name)
            return func(*mapped(held, args), **mapped(held, kwargs))
        if name in ("to", "_to_copy"):
            return moved(func, args, kwargs, asked)
        if name in ("copy_", "_copy_from"):
            return copied(*args, **kwargs)
        if traits.made_of_others:  # in inference mode an operator made of others comes whole
            with self:
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        judge(func, name, args, kwargs, tensors)
        theirs, named = mapped(held, args), mapped(held, kwargs) if kwargs else {}
        found = func(*theirs, **named)
        if (graph := capture()) is not None:
            graph.record(func, theirs, named, found)
            graph.keep(x for x in tensors if not isinstance(x, Pretended))
        if asked is not None and not on_gpu(asked):
            return found
        return wrapped(func, args, kwargs, tensors, found)


class Traits:
    """What is asked of an operator at each of its calls. torch takes long to answer."""

    def __init__(self, func):
        schema = func._schema
        self.name, self.mutable = schema.name.removeprefix("aten::"), schema.is_mutable
        self.reads = func in READS
        self.made_of_others = self.name not in WHOLE and func._can_decompose()
        self.aliases = any(each.alias_info for each in schema.arguments)  # what it gives may be memory that it is given


TRAITS: dict[int, Traits] = {}  # by the id of an operator, which lives as long as the process; its hash is slow


def traits_of(func) -> Traits:
    found = TRAITS.get(id(func))
    if found is None:
        found = TRAITS[id(func)] = Traits(func)
    return found


def judge(func, name: str, args, kwargs, tensors: list[torch.Tensor]) -> None:
    """Counts what waits and raises `Refused` for mixed devices."""
    theirs = [x for x in tensors if not isinstance(x, Pretended)]
    mixed = len(theirs) not in (0, len(tensors))
    if name in SIZED or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        wait(name)
    if name in INDEXED:
        indices = [x for x in args[1] if x is not None]
        if any(x.dtype in (torch.bool, torch.uint8) for x in indices):
            wait(f"{name} by a mask")
        if mixed and not isinstance(args[0], Pretended):
            raise Refused(f"{name}: indices on {place()}, self on cpu")
        if any(not isinstance(x, Pretended) for x in indices):
            wait(f"{name} by numbers of the host")
    elif mixed:
        whole = [x for x in theirs if x.dim()]
        able = torch.Tag.pointwise in func.tags or name in SCALARS
        written = traits_of(func).mutable and not isinstance(args[0], Pretended)
        if whole or not able or written:
            sizes = [(tuple(x.shape), str(x.device)) for x in tensors]
            raise Refused(f"Expected all tensors to be on the same device, found {place()} and cpu: {name} of {sizes}")
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type == "cpu":
        raise Refused(f"Expected a '{place().type}' device type for generator but found 'cpu' ({name})")


def wrapped(func, args, kwargs, tensors: list[torch.Tensor], found: Any) -> Any:
    """What an operation found, as tensors of the device. One that it wrote to is the very tensor that was given."""
    traits = traits_of(func)
    if isinstance(found, torch.Tensor) and not traits.aliases:  # as most do
        return Pretended(found)
    given = {id(held(x)): x for x in tensors} if traits.mutable else {}

    def wrap(x: Any) -> Any:
        return (given[id(x)] if id(x) in given else Pretended(x)) if isinstance(x, torch.Tensor) else x

    if (
        traits.aliases
        and torch.is_inference_mode_enabled()
        and not any(isinstance(x, Pretended) and x.is_inference() for x in tensors)
    ):
        with torch.inference_mode(False):  # a view of a plain tensor is plain
            made = mapped(wrap, found)
    else:
        made = mapped(wrap, found)
    if traits.aliases and not traits.mutable and not torch.is_inference_mode_enabled():
        with contextlib.suppress(Exception):
            return return_and_correct_aliasing(func, args, kwargs, made)
    return made


def copied(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if isinstance(target, Pretended) != isinstance(source, Pretended):
        host = source if isinstance(target, Pretended) else target
        if not (non_blocking and is_pinned(host)):
            wait("copy_")
    held(target).copy_(held(source))
    if (graph := capture()) is not None:
        graph.record(aten.copy_.default, (held(target), held(source)), {}, held(target))
    return target


def moved(func, args, kwargs, asked: torch.device | None) -> torch.Tensor:
    """`Tensor.to` in all its forms."""
    named = dict(zip([each.name for each in func._schema.arguments], args, strict=False)) | kwargs
    source, dtype = args[0], named.get("dtype")
    if (other := named.get("other")) is not None:
        asked, dtype = other.device, other.dtype
    dtype = dtype or source.dtype
    there = isinstance(source, Pretended)
    wanted = there if asked is None else on_gpu(asked)
    if wanted != there and not (wanted and named.get("non_blocking") and is_pinned(source)):
        wait("to the device" if wanted else "to the host")
    copies = named.get("copy") or func._schema.name == "aten::_to_copy"
    if wanted == there and dtype == source.dtype and not copies:
        return source
    more = {} if named.get("memory_format") is None else {"memory_format": named["memory_format"]}
    made = held(source).to(dtype=dtype, copy=True, **more)
    if (graph := capture()) is not None:
        graph.record(aten.copy_.default, (made, held(source)), {}, made, fresh=True)
    return Pretended(made) if wanted else made
