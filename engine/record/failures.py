"""Failures: which errors say that memory ran out. Knows names and words alone, because every library has its own kind."""

from collections.abc import Iterator

KINDS = {"MemoryError", "OutOfMemoryError"}
WORDS = (
    "out of memory",
    "allocate memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "failed to map segment",  # the loader of libraries
    "start new thread",
)


def iterate_exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it was raised for."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device or the machine had no memory left."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return bool(kinds & KINDS) or any(words in str(error).lower() for words in WORDS)
