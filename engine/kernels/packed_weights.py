"""Bundle: a net's arrays as three, for calls of compiled loops, since a call takes longer by the array it is handed."""

import numpy as np

from engine.kernels.compiling import compiled
from engine.kernels.eight_bit import Rounded
from engine.kernels.layer import LayerWeights

FIELDS = 5  # of a layout: where an array begins, and its shape


def bundled(*parts: np.ndarray | tuple) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arrays of a nest of tuples in their order: the float32 ones as `numbers`, the int8 ones as `codes`, and `layout` int64
    `[arrays, 5]`, where in its kind each begins and its shape."""
    flat, layout = {np.float32: [], np.int8: []}, []

    def add(part: np.ndarray | tuple) -> None:
        if isinstance(part, tuple):
            for each in part:
                add(each)
            return
        kind = flat[part.dtype.type]
        row = [sum(map(len, kind)), *part.shape]
        layout.append(row + [0] * (FIELDS - len(row)))
        kind.append(part.reshape(-1))

    add(parts)
    return np.concatenate(flat[np.float32]), np.concatenate(flat[np.int8]), np.array(layout)


@compiled
def vector(numbers, layout, index):
    start, size, _, _, _ = layout[index]
    return numbers[start : start + size]


@compiled
def matrix(numbers, layout, index):
    start, rows, columns, _, _ = layout[index]
    return numbers[start : start + rows * columns].reshape(rows, columns)


@compiled
def cube(numbers, layout, index):
    start, blocks, rows, columns, _ = layout[index]
    return numbers[start : start + blocks * rows * columns].reshape(blocks, rows, columns)


@compiled
def rounded(numbers, codes, layout, index):
    """The `Rounded` whose two arrays are those from `index` on."""
    start, blocks, pairs, outputs, two = layout[index]
    weight = codes[start : start + blocks * pairs * outputs * two].reshape(blocks, pairs, outputs, two)
    return Rounded(weight, vector(numbers, layout, index + 1))


@compiled
def layer_weights(numbers, codes, layout, index):
    """The `LayerWeights` whose six arrays are those from `index` on."""
    return LayerWeights(
        rounded(numbers, codes, layout, index),
        rounded(numbers, codes, layout, index + 2),
        rounded(numbers, codes, layout, index + 4),
    )
