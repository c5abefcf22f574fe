"""torch's own threads, kept out of the way.

After an operation on several threads, torch's threads look for the next one for a while. A forward whose own threads begin then would
share its cores with them, and take up to twice as long.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

THREADS = torch.get_num_threads()
_inside = threading.local()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Inside, this thread's torch operations run on one thread. Outside they run on as many as when this module was loaded."""
    if getattr(_inside, "already", False):
        yield
        return
    _inside.already = True
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(THREADS)
        _inside.already = False
