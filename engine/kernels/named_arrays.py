"""Named arrays: a nest of named tuples of arrays, handed to compiled loops as one array. Knows addresses and shapes; knows no net.

Every array that Python hands to a compiled loop makes the call slower, and every tuple more so. So Python hands over one array,
`NamedArrays.table`. In the loop, `unpacked(Kind, table, at)` gives the nest `Kind` back, every field under its name.
"""

from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numba import carray
from numba.extending import overload

from engine.kernels.intrinsics import pointer

AXES = 5  # an array has at most so many
FIELDS = 1 + AXES  # numbers in a row of the table: an array's address, and its shape

# The types that a nest's fields can have: an array's type of numbers and number of axes. An array without axes is read as one number.
Number = Annotated[np.ndarray, np.float32, 0]
Vector = Annotated[np.ndarray, np.float32, 1]
Matrix = Annotated[np.ndarray, np.float32, 2]
Cube = Annotated[np.ndarray, np.float32, 3]
Rows = Annotated[np.ndarray, np.float32, 4]  # one layer of a KV cache
Codes = Annotated[np.ndarray, np.int8, 4]  # a matrix in eight bits
Bytes = Annotated[np.ndarray, np.uint8, 1]
Cache = Annotated[np.ndarray, np.float32, 5]  # a KV cache
Mask = Annotated[np.ndarray, np.bool_, 2]
Ids = Annotated[np.ndarray, np.int64, 1]


def fields_of(kind: type[NamedTuple]) -> dict[str, object]:
    return get_type_hints(kind, include_extras=True)


def arrays_of(kind: type[NamedTuple]) -> int:
    """How many arrays a nest of this kind has."""
    return sum(1 if get_args(each) else arrays_of(each) for each in fields_of(kind).values())


class NamedArrays:
    """Nests of arrays, kept alive. `table` int64 `[arrays, 6]` holds the address and the shape of each array, in their order."""

    def __init__(self, *nests: tuple):
        """No array is copied. Raises `ValueError` when one is not contiguous."""
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


class Record:
    """One record that Python and compiled loops share. Loops take `array [1]`; Python reads and writes fields by name, as its own
    numbers."""

    def __init__(self, fields: np.dtype):
        self.array = np.zeros(1, fields)
        # A memoryview takes a third of numpy's time.
        self.numbers: dict[str, Any] = {name: memoryview(self.array[name]) for name in fields.names or ()}

    def __getitem__(self, name: str) -> Any:
        return self.numbers[name][0]

    def __setitem__(self, name: str, value: float) -> None:
        self.numbers[name][0] = value


def unpacked(kind, table, at):
    """The nest of this `kind` whose arrays stand in the `table` from row `at` on. It works in compiled loops only."""
    raise NotImplementedError


@overload(unpacked)
def unpacked_nest(kind, table, at):
    scope = {"carray": carray, "pointer": pointer, "__name__": __name__}
    text, _ = rebuilding(kind.instance_class, 0, scope)
    exec(f"def rebuilt(kind, table, at):\n    return {text}", scope)
    return scope["rebuilt"]


def rebuilding(kind: type[NamedTuple], row: int, scope: dict[str, object]) -> tuple[str, int]:
    """Source code that makes the nest of the rows from `at + row` on, and the number of the row behind them.

    Whatever the source names is added to `scope`.
    """
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
