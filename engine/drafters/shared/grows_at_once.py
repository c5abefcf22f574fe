"""The bridge from a drafter to compiled growing: what is passed in, how many forwards it took, which rows stay. Knows no net."""

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.contracts import Drafter
from engine.forward.cache import KVCache
from engine.kernels.by_address import address_of
from engine.kernels.expansion import Expansion
from engine.kernels.growing_compiled import BELOW, ROOT, compile_growing, grow_tree
from engine.kernels.named_arrays import NamedArrays


class CompiledTreeDrafter(Drafter):
    """A drafter that can grow a round's whole tree of favourites in one compiled call."""

    loop: Any = None

    @property
    def grow(self) -> Callable | None:  # type: ignore[override]
        return self.grow_compiled_tree if self.loop else None

    def use_loops(
        self, root: Callable, level: Callable, cache: KVCache, arrays: NamedArrays, free: bool = False
    ) -> None:
        """From now on, grow by compiled loops of the kinds `growing_compiled.ROOT` and `BELOW`, which read `arrays` and this cache.

        With `free`, levels take no forward. Loops are compiled here, or loaded if they were compiled before, because drafters are made
        before any clock runs.
        """
        compile_growing()
        self.arrays, self.grown_over, self.free = arrays, cache, int(free)
        self.loop = address_of(root, ROOT), address_of(level, BELOW), arrays.table

    def enter_root(self) -> tuple[list[int], np.ndarray, int, int, int]:
        """What the root's loop reads: tokens, features, `position` and `start`; and how many rows it commits."""
        raise NotImplementedError

    def grow_compiled_tree(self, expansion: Expansion, noise: np.ndarray) -> None:
        """As `Drafter.grow`. The rows of the root's entries become committed; drafted rows follow them."""
        cache, (tokens, features, position, start, entering) = self.grown_over, self.enter_root()
        where = position, start, cache.rows, cache.capacity, self.free
        cache.refuse_overflow(entering)
        grow_tree(*self.loop, np.array(tokens), features, *where, expansion.table, noise)
        cache.rows += entering
        self.forwards += expansion.counts["asked"]
