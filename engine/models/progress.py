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
    """Bytes of a model so far. `activity` is "Fetching" from the Hub, or "Loading" into memory."""

    activity: str
    model_name: str
    done_bytes: int
    total_bytes: int

    @property
    def status_line(self) -> str:
        return f"{self.activity} {self.model_name}: {self.done_bytes / 1e9:.1f} of {self.total_bytes / 1e9:.1f} GB"


ProgressCallback = Callable[[LoadingProgress], object]


class LoadingStopped(BaseException):
    """The loading was ended for this `reason`. It is no `Exception`, so that nothing on its way takes it for a failure."""

    def __init__(self, reason: BaseException):
        super().__init__(str(reason))
        self.reason = reason


def build_progress_reporter(
    report_progress: ProgressCallback, activity: str, model_name: str
) -> Callable[[int, int], None]:
    """A function of (done, total) that tells. What `report_progress` raises comes out as `LoadingStopped`."""

    def report_bytes(done: int, total: int) -> None:
        try:
            report_progress(LoadingProgress(activity, model_name, done, total))
        except BaseException as reason:
            raise LoadingStopped(reason) from None

    return report_bytes


def build_hub_fetch_bar_class(report_progress: ProgressCallback, model_name: str) -> type[tqdm]:
    """A bar for the Hub's client that tells instead of drawing. Files that are in the local cache already are not told of."""
    told = build_progress_reporter(report_progress, "Fetching", model_name)

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
def report_weight_loading_progress(
    report_progress: ProgressCallback | None, model_name: str, bytes_by_weight: dict[str, int]
) -> Iterator[None]:
    """Tells of the weights that transformers puts into a model inside, by their `bytes_by_weight` in bytes. transformers draws no
    bar.
    """
    told, here = (
        build_progress_reporter(report_progress, "Loading", model_name) if report_progress else None,
        threading.get_ident(),
    )
    total = sum(bytes_by_weight.values())

    def yield_and_report_weights(weights: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        if told is None:
            yield from weights
            return
        done = 0
        for weight in weights:
            told(done, total)
            yield weight
            done += bytes_by_weight.get(weight[0], 0)
        told(total, total)

    def hook(bar: Callable, args: tuple, kwargs: dict) -> Any:
        ours = kwargs.get("desc") == PLACING and threading.get_ident() == here
        return yield_and_report_weights(*args) if ours else bar(*args, **kwargs)

    before = set_tqdm_hook(hook)
    try:
        yield
    finally:
        set_tqdm_hook(before)
