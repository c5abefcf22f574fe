"""The bridge from a drafter to compiled growing: what is passed in, how many forwards it took, which rows stay. Knows no net."""

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.contracts import Drafter
from engine.forward.cache import KVCache
from engine.kernels.by_address import compile_and_get_address
from engine.kernels.expansion import TreeExpansion
from engine.kernels.growing_compiled import BELOW, ROOT, compile_or_load_tree_growth, grow_tree_with_compiled_drafter
from engine.kernels.named_arrays import NamedArrays

WHOLE = np.zeros(0, np.int64)  # stands for the target's vocabulary


class CompiledTreeDrafter(Drafter):
    """A drafter that can grow a round's whole tree of favourites in one compiled call."""

    growing_loops: Any = None

    @property
    def compiled_tree_grower(self) -> Callable | None:  # type: ignore[override]
        return self.grow_compiled_tree_into_expansion if self.growing_loops else None

    def compile_and_use_growing_loops(
        self,
        root_loop: Callable,
        level_loop: Callable,
        cache: KVCache,
        arrays: NamedArrays,
        levels_are_free: bool = False,
        vocabulary: np.ndarray = WHOLE,
    ) -> None:
        """From now on, grow by compiled loops of the kinds `growing_compiled.ROOT` and `BELOW`, which read `arrays` and this cache.

        They answer for the tokens `vocabulary [K]`, or for all of the target's. With `levels_are_free`, levels take no forward. Loops
        are compiled here, or loaded if they were compiled before, because drafters are made before any clock runs.
        """
        compile_or_load_tree_growth()
        self.arrays, self.grown_over, self.free = arrays, cache, int(levels_are_free)
        self.own_vocabulary = vocabulary if len(vocabulary) < self.vocab else WHOLE
        self.growing_loops = (
            compile_and_get_address(root_loop, ROOT),
            compile_and_get_address(level_loop, BELOW),
            arrays.table,
        )

    def take_root_forward_inputs(self) -> tuple[list[int], np.ndarray, int, int, int]:
        """What the root's loop reads: tokens, features, the first position and the first visible row; and how many rows it commits."""
        raise NotImplementedError

    def grow_compiled_tree_into_expansion(self, expansion: TreeExpansion) -> None:
        """As `Drafter.compiled_tree_grower`. The rows of the root's entries become committed; drafted rows follow them."""
        cache, (tokens, features, position, start, entering) = self.grown_over, self.take_root_forward_inputs()
        where = position, start, cache.rows, cache.capacity, self.free, self.own_vocabulary
        cache.refuse_overflow(entering)
        grow_tree_with_compiled_drafter(*self.growing_loops, np.array(tokens), features, *where, expansion.table)
        cache.rows += entering
        self.draft_forward_count += expansion.counts["asked"]
