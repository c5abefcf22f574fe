"""Named arrays: a nest of named tuples of arrays, handed to compiled loops as one array. Knows addresses and shapes; knows no net.

Every array that Python hands to a compiled loop makes the call slower, and every tuple more so. So Python hands over one array,
`NamedArrays.table`. In the loop, `unpack_named_arrays(Kind, table, at)` gives the nest `Kind` back, every field under its name.
"""

from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from engine.kernels.compiling import exactly_compiled_without_python_entry
from engine.kernels.intrinsics import LONG, LlvmLoopBuilder, ir_constant_or_value

CODE = types.intp
AXES = 5  # an array has at most so many
FIELDS = 1 + AXES  # numbers in a row of the table: an array's address, and its shape

# The types that a nest's fields can have: an array's type of numbers and number of axes. An array without axes is read as one number.
FloatScalar = Annotated[np.ndarray, np.float32, 0]
Vector = Annotated[np.ndarray, np.float32, 1]
Matrix = Annotated[np.ndarray, np.float32, 2]
FloatCube = Annotated[np.ndarray, np.float32, 3]
Bytes = Annotated[np.ndarray, np.uint8, 1]
ByteRows = Annotated[np.ndarray, np.uint8, 2]
KVCacheArray = Annotated[np.ndarray, np.float32, 5]  # a KV cache
Mask = Annotated[np.ndarray, np.bool_, 2]
Ids = Annotated[np.ndarray, np.int64, 1]
Table = Annotated[np.ndarray, np.int64, 2]
LoopAddress = Annotated[int, np.intp, 0]  # a compiled loop's address, see `engine.kernels.by_address`


def annotated_fields_of(nest_type: type[NamedTuple]) -> dict[str, object]:
    return get_type_hints(nest_type, include_extras=True)


def count_arrays(nest_type: type[NamedTuple]) -> int:
    """How many arrays a nest of this kind has."""
    return sum(1 if get_args(each) else count_arrays(each) for each in annotated_fields_of(nest_type).values())


def table_row_of(nest_type: type[NamedTuple], field_name: str) -> int:
    """The row of a nest's array in a table of such a nest."""
    row = 0
    for each, hint in annotated_fields_of(nest_type).items():
        if each == field_name:
            return row
        row += 1 if get_args(hint) else count_arrays(hint)
    raise KeyError(f"A {nest_type.__name__} has no {field_name}.")


class NamedArrays:
    """Nests of arrays, kept alive. `table` int64 `[arrays, 6]` holds the address and the shape of each array, in their order."""

    def __init__(self, *nests: tuple):
        """No array is copied. Raises `ValueError` when one is not contiguous."""
        self.nests, rows = nests, []

        def add(part: np.ndarray | tuple | int) -> None:
            if isinstance(part, tuple):
                for each in part:
                    add(each)
                return
            if isinstance(part, int):
                rows.append([part] + [0] * AXES)
                return
            if not part.flags.c_contiguous:
                raise ValueError(f"Compiled loops read contiguous arrays, this one has strides {part.strides}.")
            rows.append([part.ctypes.data, *part.shape] + [0] * (AXES - part.ndim))

        add(nests)
        self.table = np.array(rows, np.int64)


class SharedRecord:
    """One record that Python and compiled loops share. Loops take `array [1]`; Python reads and writes its numbers by name."""

    def __init__(self, fields: np.dtype):
        self.array = np.zeros(1, fields)
        # A memoryview takes a third of numpy's time.
        self.numbers: dict[str, Any] = {name: memoryview(self.array[name]) for name in fields.names or ()}

    def __getitem__(self, name: str) -> Any:
        return self.numbers[name][0]

    def __setitem__(self, name: str, value: float) -> None:
        self.numbers[name][0] = value


@exactly_compiled_without_python_entry
def point_table_row_at_array(table, row, address, shape):
    """Let a row of a `NamedArrays` table stand for the array at the address."""
    table[row, 0] = address
    for axis in range(len(shape)):
        table[row, 1 + axis] = shape[axis]


@intrinsic
def unpack_named_arrays(typing, nest_type, table, first_row):
    """The nest of this `nest_type` that stands in the `table` from row `first_row` on. numba takes long to compile the same in
    Python.
    """
    nest = numba_type_of(nest_type.instance_class)

    def build(context, code, signature, arguments):
        code, rows = LlvmLoopBuilder(code), make_array(signature.args[1])(context, code, arguments[1])
        first = code.address_plus(code.ptrtoint(rows.data, LONG), (arguments[2], FIELDS * 8))
        return emit_nest_and_next_row(context, code, nest, first)[0]

    return nest(nest_type, table, types.int64), build


def numba_type_of(kind: Any) -> types.Type:
    """What numba calls a nest of this kind, or one of the types above. Its own types stay what they are."""
    if isinstance(kind, types.Type):
        return kind
    if not get_args(kind):
        return types.BaseTuple.from_types([numba_type_of(each) for each in annotated_fields_of(kind).values()], kind)
    number, axes = get_args(kind)[1:]
    return types.Array(from_dtype(np.dtype(number)), axes, "C") if axes else from_dtype(np.dtype(number))


def emit_nest_and_next_row(
    context, code: LlvmLoopBuilder, kind: types.Type, row: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """The nest, array, number or loop's address that begins in the table's row at the address `row`, and where the next row stands."""
    if isinstance(kind, types.BaseTuple):
        parts = []
        for each in kind.types:
            part, row = emit_nest_and_next_row(context, code, each, row)
            parts.append(part)
        return context.make_tuple(code, kind, parts), row
    behind, axes = code.address_plus(row, 8 * FIELDS), getattr(kind, "ndim", 0)
    address, *shape = (code.load_value(code.address_plus(row, 8 * column), LONG) for column in range(1 + axes))
    if kind == CODE:
        return address, behind
    if not shape:
        return code.load_value(address, context.get_data_type(kind)), behind
    array, size = make_array(kind)(context, code), context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = [ir_constant_or_value(size)]
    for length in reversed(shape[1:]):
        strides.insert(0, code.mul(length, strides[0]))
    data = code.inttoptr(address, array.data.type)
    populate_array(array, data, shape, strides, context.get_constant(types.intp, size), None)
    return array._getvalue(), behind
