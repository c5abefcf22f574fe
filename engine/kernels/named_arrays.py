"""Named arrays: a nest of named tuples of arrays, handed to compiled loops as one array. Knows addresses and shapes; knows no net.

A call takes longer by the array it is handed, and longer still by the tuple. So Python hands over `NamedArrays.table`, and the loop
says `unpacked(Kind, table, at)` to have the nest `Kind` back, every field under its name.
"""

from typing import Annotated, NamedTuple, get_args, get_type_hints

import numpy as np
from numba import carray
from numba.extending import overload

from engine.kernels.intrinsics import pointer

AXES = 5  # most of an array
FIELDS = 1 + AXES  # of a row of the table: an array's address, and its shape

# What a field of a nest is: an array of that type and so many axes; without axes the one number in it.
Number = Annotated[np.ndarray, np.float32, 0]
Vector = Annotated[np.ndarray, np.float32, 1]
Matrix = Annotated[np.ndarray, np.float32, 2]
Cube = Annotated[np.ndarray, np.float32, 3]
Rows = Annotated[np.ndarray, np.float32, 4]  # of one layer of a KV cache
Codes = Annotated[np.ndarray, np.int8, 4]  # of a matrix in eight bits
Ids = Annotated[np.ndarray, np.int64, 1]


def fields_of(kind: type[NamedTuple]) -> dict[str, object]:
    return get_type_hints(kind, include_extras=True)


def arrays_of(kind: type[NamedTuple]) -> int:
    """How many arrays a nest of this kind has."""
    return sum(1 if get_args(each) else arrays_of(each) for each in fields_of(kind).values())


class NamedArrays:
    """Nests of arrays, kept alive, and `table` int64 `[arrays, 6]`: the address and the shape of each, in their order."""

    def __init__(self, *nests: tuple):
        """Every array must be contiguous; none is copied."""
        self.nests, rows = nests, []

        def add(part: np.ndarray | tuple) -> None:
            if isinstance(part, tuple):
                for each in part:
                    add(each)
                return
            if not part.flags.c_contiguous:
                raise ValueError(f"Compiled loops read contiguous arrays, this one has strides {part.strides}.")
            rows.append([part.ctypes.data, *part.shape] + [0] * (AXES - part.ndim))

        add(nests)
        self.table = np.array(rows, np.int64)


def unpacked(kind, table, at):
    """In compiled loops: the nest of this `kind` whose arrays are those of the `table` from row `at` on."""
    raise NotImplementedError


@overload(unpacked)
def unpacked_nest(kind, table, at):
    scope = {"carray": carray, "pointer": pointer, "__name__": __name__}
    text, _ = rebuilding(kind.instance_class, 0, scope)
    exec(f"def rebuilt(kind, table, at):\n    return {text}", scope)
    return scope["rebuilt"]


def rebuilding(kind: type[NamedTuple], row: int, scope: dict[str, object]) -> tuple[str, int]:
    """Source that makes the nest of the rows from `at + row` on, and the row behind them; what it names goes into `scope`."""
    parts = []
    for field in fields_of(kind).values():
        if not get_args(field):
            part, row = rebuilding(field, row, scope)
        else:
            _, number, axes = get_args(field)
            scope[f"type_{row}"] = np.dtype(number)
            shape = "".join(f"table[at + {row}, {1 + axis}], " for axis in range(axes)) or "1, "
            part = f"carray(pointer(table[at + {row}, 0]), ({shape}), type_{row}){'' if axes else '[0]'}"
            row += 1
        parts.append(part)
    name = f"kind_{len(scope)}"
    scope[name] = kind
    return f"{name}({', '.join(parts)})", row
