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


class CompiledTreeDrafter(Drafter):
    """A drafter that can grow a round's whole tree of favourites in one compiled call."""

    loop: Any = None

    @property
    def grow(self) -> Callable | None:  # type: ignore[override]
        return self.grow_compiled_tree if self.loop else None

    def use_loop(self, loop: Callable, level: Callable, cache: KVCache, arrays: NamedArrays, example: tuple) -> None:
        """From now on, grow by `loop(grow, level, arrays, *arguments, rows, expansion, noise)`.

        `rows` counts the committed rows of `cache`. `grow` and `level` are handed over as addresses, and `arrays` as its
        table. `example` is one possible result of `compiled_loop_arguments`. The loops are compiled here, or loaded if they
        were compiled before, because drafters are made before any clock runs.
        """
        self.loop, self.grown_over, self.parts = loop, cache, arrays
        self.handed = address_of(grow, GROW), address_of(level, BELOW), arrays.table
        compile_for(loop, *self.handed, *example, 0, Expansion(1, 1, 1).table, np.zeros((1, 0), np.float32))

    def compiled_loop_arguments(self) -> tuple:
        """What the loop reads: first an array `[N, ...]` with an entry for each row that becomes committed, then the rest."""
        raise NotImplementedError

    def grow_compiled_tree(self, expansion: Expansion, noise: np.ndarray) -> None:
        """As `Drafter.grow`. The entries' rows become committed; drafted rows follow them."""
        cache, entering = self.grown_over, self.compiled_loop_arguments()
        rows, count = cache.rows, len(entering[0])
        cache.refuse_overflow(count)
        self.loop(*self.handed, *entering, rows, expansion.table, noise)
        cache.rows = rows + count
        self.forwards += expansion.counts["asked"]
