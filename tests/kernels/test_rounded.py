"""Products in eight bits: the very numbers of `EightBitLinear`, in every way in which processors add up products of bytes."""

import numpy as np
import pytest
import torch

from engine.forward.rounded_linear import EightBitLinear, rotate_and_round_rows
from engine.kernels import rounded
from engine.kernels.by_address import compile_and_get_address
from engine.kernels.compiling import exactly_compiled
from engine.kernels.named_arrays import NamedArrays, unpack_named_arrays
from engine.kernels.stored import (
    BLOCK,
    MULTIPLY,
    StoredMatrix,
    block_arguments_of,
    bytes_of_rounded_row,
    multiply_block_and_add_bias,
)

SHAPES = [(64, 64), (100, 34), (33, 700), (640, 3072)]


@exactly_compiled
def product(table, x, out, entered, rest, spare):
    matrix = unpack_named_arrays(StoredMatrix, table, np.int64(0))
    for row in range(len(x)):
        rounded.rotate_and_round_row(x[row], entered[row], np.int64(0), rest)
    made = block_arguments_of(x, entered, matrix)
    target, apart = np.int64(out.ctypes.data), np.int64(4 * out.shape[1])
    for block in range(-(-made.outputs // made.width)):
        multiply_block_and_add_bias(made, block, target + 4 * block * made.width, apart, np.int64(spare.ctypes.data))


def groups_of(inputs: int) -> int:
    return -(-inputs // rounded.GROUP)


def multiplied(matrix: StoredMatrix, x: torch.Tensor) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """The product, and what the rows became: `[rows, groups, ENTERED]` bytes, and int16 `[rows, groups, GROUP]`."""
    rows, inputs = x.shape
    out = np.empty((rows, int(matrix.shape[0])), np.float32)
    entered = np.empty((rows, bytes_of_rounded_row(inputs)), np.uint8)
    spaces = entered, np.empty(rounded.GROUP, np.float32), np.empty((rows, BLOCK), np.float32)
    product(NamedArrays(matrix).table, x.numpy(), out, *spaces)
    bytes_of_codes = groups_of(inputs) * rounded.ENTERED
    codes, widened = entered[:, :bytes_of_codes], entered[:, bytes_of_codes:].copy().view(np.int16)
    return torch.from_numpy(out), codes.reshape(rows, -1, rounded.ENTERED), widened.reshape(rows, -1, rounded.GROUP)


def store_layer(layer: EightBitLinear, way: str) -> StoredMatrix:
    made = StoredMatrix.from_rounded_codes(layer.weight, layer.scale, layer.in_features, layer.bias)
    loop = rounded.make_rounded_block_multiplier(rounded.WAYS.index(way))
    return made._replace(
        codes=rounded.lay_out_rounded_blocks(layer.weight, layer.scale, way),
        product_loop_address=compile_and_get_address(loop, MULTIPLY),
    )


@pytest.mark.parametrize("way", rounded.WAYS)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_products_are_those_of_the_plain_layer_to_the_last_bit(outputs, inputs, way):
    """Any number of rows, one of them zeros, one beyond the others by far, and one with a single large number."""
    generator = torch.Generator().manual_seed(inputs)
    matrix, bias = (torch.randn(*shape, generator=generator) for shape in ((outputs, inputs), (outputs,)))
    layer = EightBitLinear(matrix, bias)
    kept = store_layer(layer, way)
    for rows in (*range(1, rounded.ROWS + 3), 2 * rounded.ROWS + 1):
        x = torch.randn(rows, inputs, generator=generator) * 3
        x[rows // 2] *= 1000
        x[-1, 5] = 4e4
        found, entered, widened = multiplied(kept, x)
        codes, steps = rotate_and_round_rows(x)
        assert np.array_equal(entered[..., : rounded.GROUP].view(np.int8), codes.numpy())
        assert np.array_equal(entered[..., rounded.GROUP : rounded.GROUP + 4].copy().view(np.float32)[..., 0], steps)
        assert np.array_equal(widened, codes.numpy())
        assert torch.equal(found, layer(x))
        x[0] = 0
        assert torch.equal(multiplied(kept, x)[0][0], bias)
        assert torch.equal(multiplied(kept, x)[0][1:], found[1:])


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_the_plain_layer_is_what_its_formula_says(outputs, inputs):
    """Whole numbers of 64 bits, and groups added one after the other."""
    generator = torch.Generator().manual_seed(outputs)
    matrix, x = (torch.randn(count, inputs, generator=generator) for count in (outputs, 7))
    layer, (codes, steps) = EightBitLinear(matrix), rotate_and_round_rows(x)
    whole = torch.einsum("ngk,ogk->gno", codes.long(), layer.weight.view(outputs, -1, rounded.GROUP).long())
    total = torch.zeros(7, outputs)
    for group in range(groups_of(inputs)):
        total += whole[group] * (steps[:, group, None] * layer.scale[:, group])
    assert torch.equal(layer(x), total) and codes.abs().max() == rounded.STEPS


def test_a_rotation_keeps_products_and_spreads_what_is_large():
    matrix, x = torch.randn(50, 192), torch.randn(3, 192)
    x[:, 100] = 1000
    there = rounded.hadamard_rotate_groups(x)
    assert torch.allclose(
        there.flatten(1) @ rounded.hadamard_rotate_groups(matrix).flatten(1).T, x @ matrix.T, atol=1e-2
    )
    assert torch.allclose(rounded.hadamard_rotate_groups(there.flatten(1)).flatten(1), x, atol=1e-3)
    assert there[:, 1].abs().amax() < 1000 / 8 + 5 and there[:, 1].abs().amin() > 1000 / 8 - 5


def test_rounded_layers_are_near_the_exact_ones_behind_large_inputs():
    """A single large input of a row is what one scale a row cannot hold beside the others."""
    generator = torch.Generator().manual_seed(0)
    matrix, x = (torch.randn(count, 576, generator=generator) for count in (300, 20))
    x[:, 7] = 100
    wanted = x @ matrix.T
    plain = (x * (127 / 100)).round() * (100 / 127) @ matrix.T
    away = (EightBitLinear(matrix)(x) - wanted).std()
    assert away < 0.02 * wanted.std() and away < (plain - wanted).std() / 2


def test_groups_without_numbers_worth_rounding_are_zeros():
    layer = EightBitLinear(torch.zeros(40, 64))
    assert torch.equal(multiplied(store_layer(layer, rounded.WAY), torch.randn(2, 64))[0], torch.zeros(2, 40))
    x = torch.full((1, 64), 1e-35)
    layer = EightBitLinear(torch.randn(40, 64))
    assert torch.equal(multiplied(store_layer(layer, rounded.WAY), x)[0], torch.zeros(1, 40)) and not layer(x).any()
