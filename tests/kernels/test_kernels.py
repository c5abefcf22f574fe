"""Kernels: each compiled loop against torch, in float64 where torch has it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engine.forward.rounded_linear import EightBitLinear
from engine.kernels import attention, compiling, eight_bit, elementwise
from engine.kernels.by_address import compile_and_get_address
from engine.kernels.eight_bit import EightBitMatrix
from engine.kernels.named_arrays import NamedArrays
from engine.kernels.ranking_compiled import write_highest_key_indices
from engine.kernels.sharing import (
    CALL,
    WORK_ON,
    count_usable_cores_capped,
    release_team,
    thread_team_of_size,
    try_hold_team,
)
from engine.kernels.stack import EightBitLayer, StackConstants, run_decoder_layers
from helpers.equality import unrounded_drafter_matrices


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 11, 19])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 96), (33, 50), (1, 1), (640, 32)])
def test_a_product_is_that_of_the_layer_in_eight_bits(rows, inputs, outputs):
    """The numbers are those of PyTorch, bit for bit."""
    x, matrix = normal(rows, inputs), normal(outputs, inputs, seed=1)
    out = np.full((rows, outputs), np.nan, np.float32)
    eight_bit.multiply_eight_bit(x.numpy(), EightBitMatrix.quantise(matrix), out)
    with torch.inference_mode():
        assert np.array_equal(out, EightBitLinear(matrix)(x))


def test_without_a_folder_to_keep_it_in_a_kernel_is_compiled_all_the_same(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    assert compiling.compiled_assuming_no_nan(lambda x: x + 1)(2) == 3


def test_exp_is_exp_and_stays_finite():
    @compiling.compiled_assuming_no_nan
    def all_of(x, out):
        for index in range(len(x)):
            out[index] = elementwise.clamped_float32_exp(x[index])

    x = np.linspace(-87, 88, 10_001, dtype=np.float32)
    out = np.empty_like(x)
    all_of(x, out)
    assert np.abs(out / np.exp(x.astype(np.float64)) - 1).max() < 2e-5
    all_of(np.array([-np.inf, -1e30, 1e30], np.float32), out[:3])
    assert out[0] == out[1] < 2e-38 and 1e38 < out[2] < np.inf


def test_norms_rotations_and_log_softmax_are_torchs():
    x = normal(5, 48)
    out = np.empty((5, 48), np.float32)
    elementwise.divide_rows_by_norm(x.numpy(), np.float32(0.3), out)
    assert np.allclose(out, x / (x.square().sum(-1, keepdim=True) + 0.09).sqrt(), atol=1e-6)
    angles = normal(9, 8)
    turns = torch.stack([angles.cos(), angles.sin()], 1)
    places, turned = torch.tensor([3, 0, 8, 8, 1]), x.clone()
    attention.rotate_heads_in_place(turned.numpy(), 2, turns.numpy(), places.numpy())
    heads, (cos, sin) = x.view(5, 3, 2, 8), turns[places].unbind(1)
    a, b = heads[:, :2].unbind(2)
    expected = torch.stack([a * cos[:, None] - b * sin[:, None], b * cos[:, None] + a * sin[:, None]], 2)
    assert torch.allclose(turned.view(5, 3, 2, 8)[:, :2], expected, atol=1e-6)
    assert torch.equal(turned[:, 32:], x[:, 32:])
    rows = 30 * normal(3, 700)
    found = rows.clone()
    elementwise.log_softmax_in_place(found.numpy())
    assert torch.allclose(found, rows.log_softmax(-1), atol=1e-4)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_is_torchs_under_masks_and_windows(kv_heads):
    queries, kv = normal(3, 4 * 16 + 5), normal(2, kv_heads, 40, 16, seed=1)
    visible = torch.tensor([[1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]]).bool()
    out = np.empty((3, 64), np.float32)
    attention.attend_to_cache_rows(queries.numpy(), kv.numpy(), visible.numpy(), 7, 30, out)
    mask = torch.cat([torch.ones(3, 19).bool(), visible], 1)
    heads = queries[:, :64].view(1, 3, 4, 16).transpose(1, 2)
    expected = F.scaled_dot_product_attention(heads, *kv[:, None, :, 7:30], attn_mask=mask, enable_gqa=True)
    assert np.allclose(out, expected[0].transpose(0, 1).flatten(1), atol=1e-6)


def normed(x: torch.Tensor, least: float = 0.1) -> torch.Tensor:
    """`x [..., n]` at unit length."""
    return x / (x.square().sum(-1, keepdim=True) + least**2).sqrt()


@pytest.mark.parametrize("by_token", [False, True])
def test_a_stack_with_all_that_a_layer_can_have_is_torchs(by_token):
    """Two layers with shifts, biases and norms of heads. Rows are written, and the last two of four entries come out."""
    hidden, heads, kv_heads, size, inner, width = 32, 4, 2, 8, 48, 64
    shapes = ((width, hidden), (hidden, hidden), (2 * inner, hidden), (hidden, inner), (hidden, 2 * hidden))
    parts, layers = (
        [[0.3 * normal(*shape, seed=9 * layer + n) for n, shape in enumerate(shapes)] for layer in (1, 2)],
        [],
    )
    biases = [normal(7 if by_token else 1, width, seed=layer) for layer in (3, 4)]
    scales = [1 + 0.3 * normal(heads + kv_heads, size, seed=layer) for layer in (5, 6)]
    lasts = [normal(hidden, seed=layer) for layer in (7, 8)]
    for matrices, bias, scale, last in zip(parts, biases, scales, lasts, strict=True):
        arrays = {"bias": bias.numpy(), "head_norm_scales": scale.numpy(), "out_bias": last.numpy()}
        with unrounded_drafter_matrices():
            layers.append(EightBitLayer(*(EightBitMatrix.quantise(each) for each in matrices), **arrays))
    angles, tokens, before, positions = (
        normal(9, 4),
        np.array([3, 0, 6, 2]),
        np.array([0, 0, 1, 1]),
        np.array([4, 5, 6, 6]),
    )
    turns, x, kv = torch.stack([angles.cos(), angles.sin()], 1), normal(4, hidden), normal(2, 2, kv_heads, 20, size)
    visible = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]).bool()
    least, address, table = (
        np.float32(0.1),
        StackConstants.for_rms_norms(1, 1.0).layers_loop_address,
        NamedArrays(*layers).table,
    )
    written, entries = kv.clone(), x.clone()
    found = run_decoder_layers(
        StackConstants(least, least, address), table, turns.numpy(), written.numpy(), entries.numpy(), tokens, before, positions,
        visible.numpy(), 3, 9, 2,
    )  # fmt: skip
    mask = torch.cat([torch.ones(4, 6).bool(), visible], 1)
    for number, (matrices, bias, scale, last) in enumerate(zip(parts, biases, scales, lasts, strict=True)):
        qkv, out, gate_up, down, shift = matrices
        x = x + torch.cat([x, x[before]], -1) @ shift.T
        rows = (normed(x) @ qkv.T + bias[tokens if by_token else 0]).view(4, -1, size)
        turned, (cos, sin) = normed(rows[:, :6]) * scale, turns[positions].unsqueeze(1).unbind(2)
        left, right = turned.chunk(2, -1)
        turned = torch.cat([left * cos - right * sin, right * cos + left * sin], -1)
        both = torch.stack([turned[:, heads:], rows[:, heads + kv_heads :]]).transpose(1, 2)
        assert torch.allclose(written[number, :, :, 9:13], both, atol=1e-4)
        assert torch.equal(written[number, :, :, :9], kv[number, :, :, :9])
        assert torch.equal(written[number, :, :, 13:], kv[number, :, :, 13:])
        keys, values = torch.cat([kv[number, :, :, 3:9], both], 2)[:, None]
        attended = F.scaled_dot_product_attention(
            turned[None, :, :heads].transpose(1, 2), keys, values, attn_mask=mask, enable_gqa=True
        )
        x = x + last + attended[0].transpose(0, 1).flatten(1) @ out.T
        gate, up = (normed(x) @ gate_up.T).chunk(2, -1)
        x = x + (F.silu(gate) * up) @ down.T
    assert np.allclose(found, x[2:], atol=1e-4)


def test_of_equal_keys_the_earlier_ones_are_the_highest():
    for size in (5, 128, 129, 1000):
        keys, best = np.zeros(size, np.float32), np.empty(4, np.int64)
        keys[[size - 1, size // 2]] = 2.0, 1.0
        write_highest_key_indices(keys, best, np.empty(-(-size // 128), np.float32))
        rest = [index for index in range(size) if keys[index] == 0][:2]
        assert best.tolist() == [size - 1, size // 2, *rest]


@pytest.mark.parametrize("rows", [1, 5])
def test_threads_that_share_a_product_write_what_one_writes(rows):
    """Whether the team's other threads join in, or another call holds them."""
    team, x = thread_team_of_size(2), normal(rows, 400).numpy()
    alone = EightBitMatrix.quantise(normal(1500, 400, seed=1))._replace(team_state_address=0)
    loop = compile_and_get_address(eight_bit.multiply_claimed_eight_bit_blocks, WORK_ON)
    shared = alone._replace(team_state_address=team.state.ctypes.data, shared_loop_address=loop)
    expected, out = np.zeros((2, rows, 1500), np.float32)
    eight_bit.multiply_eight_bit(x, alone, expected)
    with team.wake_helpers_and_measure_lost_time():
        for _ in range(500):
            out[:] = 0
            eight_bit.multiply_eight_bit(x, shared, out)
            assert np.array_equal(out, expected)
    calls, out[:] = team.state[CALL], 0
    assert calls >= 500 and try_hold_team(team.state)
    eight_bit.multiply_eight_bit(x, shared, out)
    release_team(team.state)
    assert np.array_equal(out, expected) and team.state[CALL] == calls


def test_a_large_matrix_is_shared_where_there_are_cores_to_share_it():
    large, small = EightBitMatrix.quantise(normal(1024, 256)), EightBitMatrix.quantise(normal(64, 64))
    assert bool(large.team_state_address) == (count_usable_cores_capped() > 1) and not small.team_state_address
