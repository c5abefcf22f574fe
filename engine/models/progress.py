"""Progress: how many bytes of a model have come. Whoever is told may end the loading. Knows bytes and names; reads no file."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from huggingface_hub.utils import tqdm
from transformers.utils.logging import set_tqdm_hook

PLACING = "Loading weights"  # what transformers calls the bar of its loop over weights


@dataclass(frozen=True)
class LoadingProgress:
    """Bytes of a model so far. `doing` is "Fetching" from the Hub, or "Loading" into memory."""

    doing: str
    name: str
    done: int
    total: int

    @property
    def status_line(self) -> str:
        return f"{self.doing} {self.name}: {self.done / 1e9:.1f} of {self.total / 1e9:.1f} GB"


Tell = Callable[[LoadingProgress], object]


class LoadingStopped(BaseException):
    """The loading was ended for this `reason`. It is no `Exception`, so that nothing on its way takes it for a failure."""

    def __init__(self, reason: BaseException):
        super().__init__(str(reason))
        self.reason = reason


def build_progress_reporter(tell: Tell, doing: str, name: str) -> Callable[[int, int], None]:
    """A function of (done, total) that tells. What `tell` raises comes out as `LoadingStopped`."""

    def told(done: int, total: int) -> None:
        try:
            tell(LoadingProgress(doing, name, done, total))
        except BaseException as reason:
            raise LoadingStopped(reason) from None

    return told


def build_fetch_progress_bar(tell: Tell, name: str) -> type[tqdm]:
    """A bar for the Hub's client that tells instead of drawing. Files that are in the local cache already are not told of."""
    told = build_progress_reporter(tell, "Fetching", name)

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any):
            self.counts_bytes = kwargs.get("unit") == "B"  # there is a bar that counts files, too
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self.counts_bytes and self.total:
                told(int(self.n), int(self.total))

    return Bar


@contextmanager
def report_loading(tell: Tell | None, name: str, sizes: dict[str, int]) -> Iterator[None]:
    """Tells of the weights that transformers puts into a model inside, by their `sizes` in bytes. transformers draws no bar."""
    told, here = build_progress_reporter(tell, "Loading", name) if tell else None, threading.get_ident()
    total = sum(sizes.values())

    def counted(weights: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        if told is None:
            yield from weights
            return
        done = 0
        for weight in weights:
            told(done, total)
            yield weight
            done += sizes.get(weight[0], 0)
        told(total, total)

    def hook(bar: Callable, args: tuple, kwargs: dict) -> Any:
        ours = kwargs.get("desc") == PLACING and threading.get_ident() == here
        return counted(*args) if ours else bar(*args, **kwargs)

    before = set_tqdm_hook(hook)
    try:
        yield
    finally:
        set_tqdm_hook(before)
