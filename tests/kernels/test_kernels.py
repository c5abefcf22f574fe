"""Kernels: each compiled loop against torch, in float64 where torch has it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engine.kernels import attention, compiling, eight_bit, elementwise
from engine.kernels import layer as layers
from engine.kernels.eight_bit import EightBit
from engine.kernels.layer import LayerWeights
from engine.kernels.ranking_compiled import highest


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def dequantised(matrix: torch.Tensor) -> torch.Tensor:
    """What eight bits hold of the matrix."""
    step = matrix.abs().amax(1, keepdim=True).clamp(min=1e-30) / 127
    return (matrix / step).round() * step


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 11, 19])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 96), (33, 50), (1, 1), (640, 32)])
def test_a_product_is_that_of_the_rounded_matrix_and_all_but_exact_inputs(rows, inputs, outputs):
    x, matrix = normal(rows, inputs), normal(outputs, inputs, seed=1)
    out = np.full((rows, outputs), np.nan, np.float32)
    eight_bit.product(x.numpy(), EightBit.of(matrix), out)
    expected = x.double() @ dequantised(matrix).double().T
    assert np.abs(out - expected.numpy()).max() < 1e-3 * (expected.abs().max() + 1)


def test_products_of_extreme_rows_stay_in_range():
    """The largest sums of a wide matrix fit their 32 bits, and rows of zeros stay zeros."""
    matrix = torch.ones(32, 9000)
    x, out = np.stack([np.ones(9000), -np.ones(9000), np.zeros(9000)]).astype(np.float32), np.zeros((3, 32), np.float32)
    eight_bit.product(x, EightBit.of(matrix), out)
    assert np.allclose(out, np.array([[9000.0], [-9000.0], [0.0]]), rtol=1e-3)


def test_without_a_folder_to_keep_it_in_a_kernel_is_compiled_all_the_same(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    assert compiling.compiled(lambda x: x + 1)(2) == 3


def test_exp_is_exp_and_stays_finite():
    @compiling.compiled
    def all_of(x, out):
        for index in range(len(x)):
            out[index] = elementwise.exp(x[index])

    x = np.linspace(-87, 88, 10_001, dtype=np.float32)
    out = np.empty_like(x)
    all_of(x, out)
    assert np.abs(out / np.exp(x.astype(np.float64)) - 1).max() < 2e-5
    all_of(np.array([-np.inf, -1e30, 1e30], np.float32), out[:3])
    assert out[0] == out[1] < 2e-38 and 1e38 < out[2] < np.inf


def test_norms_rotations_and_log_softmax_are_torchs():
    x = normal(5, 48)
    out = np.empty((5, 48), np.float32)
    elementwise.unit_rows(x.numpy(), np.float32(0.3), out)
    assert np.allclose(out, x / (x.square().sum(-1, keepdim=True) + 0.09).sqrt(), atol=1e-6)
    angles = normal(9, 8)
    turns = torch.stack([angles.cos(), angles.sin()], 1)
    places, turned = torch.tensor([3, 0, 8, 8, 1]), x.clone()
    attention.turn(turned.numpy(), 2, turns.numpy(), places.numpy())
    heads, (cos, sin) = x.view(5, 3, 2, 8), turns[places].unbind(1)
    a, b = heads[:, :2].unbind(2)
    expected = torch.stack([a * cos[:, None] - b * sin[:, None], b * cos[:, None] + a * sin[:, None]], 2)
    assert torch.allclose(turned.view(5, 3, 2, 8)[:, :2], expected, atol=1e-6)
    assert torch.equal(turned[:, 32:], x[:, 32:])
    rows = 30 * normal(3, 700)
    found = rows.clone()
    elementwise.log_softmax(found.numpy())
    assert torch.allclose(found, rows.log_softmax(-1), atol=1e-4)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_is_torchs_under_masks_and_windows(kv_heads):
    queries, kv = normal(3, 4 * 16 + 5), normal(2, kv_heads, 40, 16, seed=1)
    visible = torch.tensor([[1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]]).bool()
    out = np.empty((3, 64), np.float32)
    attention.attend(queries.numpy(), kv.numpy(), visible.numpy(), 7, 30, out)
    mask = torch.cat([torch.ones(3, 19).bool(), visible], 1)
    heads = queries[:, :64].view(1, 3, 4, 16).transpose(1, 2)
    expected = F.scaled_dot_product_attention(heads, *kv[:, None, :, 7:30], attn_mask=mask, enable_gqa=True)
    assert np.allclose(out, expected[0].transpose(0, 1).flatten(1), atol=1e-6)


def test_a_layer_writes_its_rows_and_gives_the_last_entries_stream():
    hidden, heads, size, inner = 32, 2, 16, 48
    x, qkv, kv = normal(4, hidden), normal(4, 3 * hidden, seed=1), normal(2, heads, 20, size, seed=2)
    shapes = ((hidden, hidden), (2 * inner, hidden), (hidden, inner))
    matrices = [0.2 * normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    weights, before = LayerWeights.of(*matrices), kv.clone()
    out, gate_up, down = (dequantised(each) for each in matrices)
    causal = torch.ones(4, 4).bool().tril()
    found = layers.layer(x.numpy(), qkv.numpy(), kv.numpy(), causal[2:].numpy(), 3, 9, weights, np.float32(0.01))
    q, k, v = qkv.view(4, 3, heads, size).permute(1, 2, 0, 3)
    assert torch.equal(kv[:, :, 9:13], torch.stack([k, v]))
    assert torch.equal(kv[:, :, :9], before[:, :, :9]) and torch.equal(kv[:, :, 13:], before[:, :, 13:])
    mask = torch.cat([torch.ones(4, 6).bool(), causal], 1)
    attended = F.scaled_dot_product_attention(q[None], *kv[:, None, :, 3:13], attn_mask=mask)
    stream = x + attended[0].transpose(0, 1).flatten(1) @ out.T
    gate, up = (stream / (stream.square().sum(-1, keepdim=True) + 1e-4).sqrt() @ gate_up.T).chunk(2, -1)
    expected = stream + (F.silu(gate) * up) @ down.T
    assert np.allclose(found, expected[2:], atol=2e-3)


def test_of_equal_keys_the_earlier_ones_are_the_highest():
    for size in (5, 128, 129, 1000):
        keys, best = np.zeros(size, np.float32), np.empty(4, np.int64)
        keys[[size - 1, size // 2]] = 2.0, 1.0
        highest(keys, best, np.empty(-(-size // 128), np.float32))
        rest = [index for index in range(size) if keys[index] == 0][:2]
        assert best.tolist() == [size - 1, size // 2, *rest]
