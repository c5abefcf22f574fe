"""Products with NF4 weights: the reference beside bitsandbytes, and the Triton kernel beside the reference.

Without a GPU Triton interprets the kernel, in float32 and float16: its interpreter computes no bfloat16.
"""

import os
from types import SimpleNamespace

import bitsandbytes.functional as bnb
import pytest
import torch

from engine.forward.nf4 import layers
from engine.forward.nf4 import product as four_bit

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
DTYPES = (torch.bfloat16, torch.float16) if GPU else (torch.float32, torch.float16)


def packed(outputs: int, inputs: int, dtype: torch.dtype):
    """Random weights in NF4, and how bitsandbytes widens them."""
    weights = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(inputs)).to(DEVICE, dtype)
    numbers, state = bnb.quantize_4bit(weights, blocksize=four_bit.BLOCK, quant_type="nf4")
    return numbers, state, bnb.dequantize_4bit(numbers, state)


@pytest.fixture(scope="module")
def kernel():
    """The module with the kernel. Without a GPU Triton is told to interpret it, before it is imported."""
    if not GPU:
        os.environ["TRITON_INTERPRET"] = "1"
    from engine.forward.nf4 import product_triton

    return product_triton


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_are_widened_as_bitsandbytes_widens_them(dtype):
    numbers, state, widened = packed(70, 192, dtype)
    assert torch.equal(torch.tensor(four_bit.VALUES), state.code.cpu().float())
    assert torch.equal(four_bit.dequantise_nf4(numbers, state.absmax, (70, 192), dtype), widened)
    x = torch.randn(3, 192, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)
    assert torch.equal(four_bit.multiply_nf4(x, numbers, state.absmax, 70), x @ widened.T)


def compared(kernel, outputs: int, inputs: int, dtype: torch.dtype) -> None:
    """The kernel multiplies by the widened weights, and few rows have equal bits."""
    numbers, state, widened = packed(outputs, inputs, dtype)

    def product(x):
        return kernel.product(x, numbers, state.absmax, state.code, outputs)

    unit = torch.eye(inputs, device=DEVICE, dtype=dtype)[: four_bit.MOST]
    assert torch.equal(product(unit), widened.T[: four_bit.MOST])
    x = torch.randn(four_bit.MOST, inputs, generator=torch.Generator().manual_seed(2)).to(DEVICE, dtype)
    exact, bound = x.double() @ widened.double().T, 2e-5 if dtype == torch.float32 else 2e-2
    found = {count: product(x[:count]) for count in (1, 5, kernel.FEW, kernel.FEW + 1, four_bit.MOST)}
    for count, rows in found.items():
        torch.testing.assert_close(rows.double(), exact[:count], rtol=bound, atol=10 * bound)
    assert torch.equal(found[1], found[5][:1]) and torch.equal(found[5], found[kernel.FEW][:5])
    with pytest.raises(ValueError, match="got 65 rows"):
        product(torch.cat([x, x[:1]]))


@pytest.mark.triton
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("outputs", "inputs"), [(70, 192), (32, 256)])
def test_the_kernel_multiplies_by_these_weights_and_few_rows_have_equal_bits(kernel, outputs, inputs, dtype):
    compared(kernel, outputs, inputs, dtype)


@pytest.mark.gpu
def test_on_a_gpu_the_kernel_multiplies_by_weights_of_a_layers_size(kernel):
    compared(kernel, 4096, 4096, torch.bfloat16)


@pytest.mark.triton
def test_a_layer_with_a_bias_takes_few_rows_at_once_and_many_as_before(kernel):
    numbers, state, widened = packed(32, 64, torch.float16)
    weight = SimpleNamespace(data=numbers, quant_state=state, is_cuda=True)
    layer = torch.nn.Module()
    layer.out_features, layer.forward = 32, lambda x: "as before"
    object.__setattr__(layer, "weight", weight)
    object.__setattr__(layer, "bias", torch.ones(32, device=DEVICE))
    assert layers.install_nf4_few_rows_kernel(layer) == 1
    x = torch.randn(1, 3, 64, generator=torch.Generator().manual_seed(4)).to(DEVICE, torch.float16)
    with torch.inference_mode():
        assert torch.allclose(layer(x), x @ widened.T + 1, atol=1e-2)
        assert layer(x.expand(30, -1, -1)) == "as before" and layer(x.float()) == "as before"
    assert layer(x) == "as before"  # the kernel has no gradient
