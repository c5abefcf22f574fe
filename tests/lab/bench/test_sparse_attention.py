"""Attention that skips empty tiles changes nothing and reads nothing that it skips.

The CUDA kernel is not run here: what it is told (mask function and tiles) is checked on the CPU, its output by the bench.
"""

import random

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_mask

from engine.lab.bench.sparse_attention import (
    behind_prefix,
    block_mask,
    flex_block_mask,
    mask_blocks,
    sparse_attention,
)
from engine.measure.node_order import ORDERS
from engine.tree import DraftTree
from helpers.trees import random_tree, trees


def attention_input(nodes: int, base: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(nodes + base)
    rows = (nodes, base + nodes, base + nodes)
    return tuple(torch.randn(2, count, 8, generator=source, dtype=dtype) for count in rows)


def plain_attention(q, k, v, mask: torch.Tensor) -> torch.Tensor:
    """Under the additive mask, as the engine's forwards attend."""
    additive = torch.zeros(q.shape[1], k.shape[1], dtype=q.dtype)
    additive[:, k.shape[1] - q.shape[1] :].masked_fill_(~mask, torch.finfo(q.dtype).min)
    return F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=additive)[0]


@pytest.mark.parametrize(
    ("block", "base", "dtype", "tolerance"),
    [
        *((block, base, torch.float64, 1e-12) for block in (1, 4, 7, 16, 64) for base in (0, 5, 32)),
        (7, 5, torch.float32, 1e-5),
    ],
)
def test_skipping_tiles_changes_nothing(block, base, dtype, tolerance):
    for tree in trees(6, largest=50):
        for order in ORDERS.values():
            mask = tree.kept(order(tree)).ancestor_mask()
            q, k, v = attention_input(len(tree), base, dtype)
            assert torch.allclose(
                sparse_attention(q, k, v, mask, block), plain_attention(q, k, v, mask), atol=tolerance, rtol=0
            )


def test_a_tile_too_few_is_noticed(monkeypatch):
    """Each of the tiles off the diagonal is dropped in turn: an attention that skips a tile in use differs from the plain one."""
    tree = random_tree(random.Random(3), 40)
    mask = tree.ancestor_mask()
    q, k, v = attention_input(40, 8, torch.float32)
    expected, tiles = plain_attention(q, k, v, mask), block_mask(behind_prefix(mask, 48), 8)
    dropped = 0
    for row, column in tiles.nonzero().tolist():
        if column != row + 1:  # a node's own tile: without it a row may have nothing to see
            fewer = tiles.clone()
            fewer[row, column] = False
            monkeypatch.setattr("engine.lab.bench.sparse_attention.block_mask", lambda *_, fewer=fewer: fewer)
            assert (sparse_attention(q, k, v, mask, 8) - expected).abs().max() > 1e-3, (row, column)
            dropped += 1
    assert dropped > 5


def test_empty_tiles_are_not_read():
    """Keys and values behind them are NaN, which any touch would spread."""
    tree = DraftTree.rooted(0)
    for _ in range(2):  # two chains of 16 below the root
        node = 0
        for _ in range(16):
            node = tree.add(node, 0, 1.0, 1.0)
    mask = tree.ancestor_mask()
    q, k, v = attention_input(33, 0, torch.float32)
    expected = plain_attention(q, k, v, mask)
    k[:, 8:16] = v[:, 8:16] = torch.nan  # nodes of the first chain alone
    assert torch.allclose(sparse_attention(q, k, v, mask, 8)[:, 24:], expected[:, 24:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("base", [0, 16, 21])
def test_flex_attention_is_told_the_same_mask_and_the_same_tiles(base):
    for name, order in ORDERS.items():
        tree = random_tree(random.Random(base), 50)
        tree = tree.kept(order(tree))
        allowed = behind_prefix(tree.ancestor_mask(), base + 50)
        tiles = flex_block_mask(tree.ancestor_mask(), base + 50, 16)
        assert torch.equal(create_mask(tiles.mask_mod, None, None, 50, base + 50, device="cpu")[0, 0], allowed), name
        assert torch.equal(tiles.to_dense()[0, 0].bool(), block_mask(allowed, 16)), name
        assert int(tiles.to_dense().sum()) == mask_blocks(tree, 16, base)
