"""What a case of equality compares: the reference's result, the fast version's, and how far apart they may be."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch

from engine.kernels.stored import StoredMatrix


def largest(reference: torch.Tensor, fast: torch.Tensor) -> float:
    """The largest difference."""
    return float((reference - fast).abs().max())


def share(reference: torch.Tensor, fast: torch.Tensor) -> float:
    """The norm of the difference over the reference's norm."""
    return float((reference - fast).norm() / reference.norm())


def largest_share(reference: torch.Tensor, fast: torch.Tensor) -> float:
    """The largest difference, each relative to the reference's own number."""
    return float(((reference - fast) / reference).abs().max())


def spread(reference: torch.Tensor, fast: torch.Tensor) -> float:
    """The root mean square of the difference over the reference's standard deviation."""
    return float((reference - fast).square().mean().sqrt() / reference.std())


@dataclass(frozen=True)
class Compared:
    """Two results that must be equal. Tensors may be up to `within` apart; with `beyond` they must be further apart than that."""

    reference: object
    fast: object
    within: float = 0.0
    beyond: float = 0.0
    apart: Callable[[torch.Tensor, torch.Tensor], float] = largest

    def check(self) -> None:
        if not self.within:
            assert self.fast == self.reference
            return
        reference, fast = (torch.as_tensor(each, dtype=torch.float64) for each in (self.reference, self.fast))
        assert reference.shape == fast.shape
        found = self.apart(reference, fast)
        assert found < self.within and (found > self.beyond or not self.beyond), (self.apart.__name__, found)


Case = Callable[[], Iterator[Compared]]
Cases = dict[str, dict[str, Case]]  # by the fast version's module without `engine.`, and by variant


@contextmanager
def unrounded_drafter_matrices() -> Iterator[None]:
    """Inside, the matrices of compiled drafters are stored as they are instead of in eight bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredMatrix, "store_in_eight_bits", StoredMatrix.store_exactly)
        yield
