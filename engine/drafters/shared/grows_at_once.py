"""The bridge from a drafter to compiled growing: what is passed in, how many forwards it took, which rows stay. Knows no net."""

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.contracts import Drafter
from engine.forward.cache import KVCache
from engine.kernels.by_address import address_of
from engine.kernels.compiling import compile_for
from engine.kernels.expansion import Expansion
from engine.kernels.growing_compiled import BELOW, GROW, grow
from engine.kernels.named_arrays import NamedArrays


class GrowsAtOnce(Drafter):
    """A drafter that can grow a round's whole tree of favourites in one compiled call."""

    loop: Any = None

    @property
    def grow(self) -> Callable | None:  # type: ignore[override]
        return self.grow_at_once if self.loop else None

    def grow_by(self, loop: Callable, below: Callable, cache: KVCache, parts: NamedArrays, example: tuple) -> None:
        """From now on, grow by `loop(grow, below, parts, *entering, rows, expansion, noise)`.

        `rows` counts the committed rows of `cache`. `grow` and `below` are handed over as addresses, and `parts` as its table.
        `example` is one possible result of `entering`. The loops are compiled here, or loaded if they were compiled before, because
        drafters are made before any clock runs.
        """
        self.loop, self.grown_over, self.parts = loop, cache, parts
        self.handed = address_of(grow, GROW), address_of(below, BELOW), parts.table
        compile_for(loop, *self.handed, *example, 0, Expansion(1, 1, 1).table, np.zeros((1, 0), np.float32))

    def entering(self) -> tuple:
        """What the loop reads: first an array `[N, ...]` with an entry for each row that becomes committed, then the rest."""
        raise NotImplementedError

    def grow_at_once(self, expansion: Expansion, noise: np.ndarray) -> None:
        """As `Drafter.grow`. The entries' rows become committed; drafted rows follow them."""
        cache, entering = self.grown_over, self.entering()
        rows, count = cache.rows, len(entering[0])
        cache.room_for(count)
        self.loop(*self.handed, *entering, rows, expansion.table, noise)
        cache.rows = rows + count
        self.forwards += expansion.counts["asked"]
