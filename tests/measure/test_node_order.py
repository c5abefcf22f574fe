"""Node orders and attention that skips empty tiles: random trees against brute force, tiles by hand where they are known.

The CUDA kernel is not run here: what it is told (mask function and tiles) is checked on the CPU, its output by the bench.
"""

import random
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_mask

from engine.measure.attention import grown_tree, run, table
from engine.measure.node_order import ORDERS, mask_blocks, subtree_sizes
from engine.measure.sparse_attention import (
    behind_prefix,
    block_mask,
    flex_attention_path,
    flex_block_mask,
    sparse_attention,
)
from engine.target import Target
from engine.tree import DraftTree
from helpers.pairs import tiny_pair
from helpers.trees import ancestors, random_tree


def trees(count: int, largest: int = 60) -> list[DraftTree]:
    rng = random.Random(largest)
    return [random_tree(rng, rng.randint(1, largest)) for _ in range(count)]


def level_order(tree: DraftTree) -> DraftTree:
    """As a policy grows it that adds level by level."""
    return tree.kept(sorted(range(len(tree)), key=lambda node: (tree.depth[node], node)))


def attention_input(nodes: int, base: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(nodes + base)
    rows = (nodes, base + nodes, base + nodes)
    return tuple(torch.randn(2, count, 8, generator=source, dtype=dtype) for count in rows)


def plain_attention(q, k, v, mask: torch.Tensor) -> torch.Tensor:
    """Under the additive mask, as the engine's forwards attend."""
    additive = torch.zeros(q.shape[1], k.shape[1], dtype=q.dtype)
    additive[:, k.shape[1] - q.shape[1] :].masked_fill_(~mask, torch.finfo(q.dtype).min)
    return F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=additive)[0]


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_is_a_permutation_with_parents_first(name):
    for tree in trees(60):
        order = ORDERS[name](tree)
        assert order[0] == 0 and sorted(order) == list(range(len(tree)))
        place = {node: index for index, node in enumerate(order)}
        assert all(place[tree.parents[node]] < place[node] for node in range(1, len(tree)))
        kept = tree.kept(order)
        assert torch.equal(kept.ancestor_mask(), tree.ancestor_mask()[order][:, order])


@pytest.mark.parametrize("name", ["dfs", "heavy path"])
def test_depth_first_orders_keep_every_subtree_in_one_piece(name):
    for tree in trees(60):
        order = ORDERS[name](tree)
        sizes = subtree_sizes(tree.parents)
        for index, node in enumerate(order):
            below = {each for each in range(len(tree)) if node in ancestors(tree, each)}
            assert sizes[node] == len(below)
            assert set(order[index : index + len(below)]) == below


def test_dfs_leaves_siblings_in_place_and_heavy_path_does_not():
    moved = 0
    for tree in trees(60):
        for name in ("dfs", "heavy path"):
            place = {node: index for index, node in enumerate(ORDERS[name](tree))}
            for node in range(len(tree)):
                siblings = tree.children(node)
                in_place = sorted(siblings, key=place.__getitem__) == siblings
                assert in_place or name == "heavy path"
                moved += not in_place
    assert moved > 0


def test_heavy_path_puts_a_heaviest_child_right_behind_its_parent():
    for tree in trees(60):
        order, sizes = ORDERS["heavy path"](tree), subtree_sizes(tree.parents)
        for node, following in pairwise(order):
            if children := tree.children(node):
                assert tree.parents[following] == node
                assert sizes[following] == max(sizes[child] for child in children)


def test_heavy_path_by_hand():
    tree = DraftTree(tokens=[0] * 7, parents=[-1, 0, 0, 2, 3, 0, 5], depth=[0, 1, 1, 2, 3, 1, 2])
    assert ORDERS["dfs"](tree) == [0, 1, 2, 3, 4, 5, 6]
    assert ORDERS["heavy path"](tree) == [0, 2, 3, 4, 5, 6, 1]


@pytest.mark.parametrize(("block", "prefix"), [(1, 0), (4, 0), (4, 6), (7, 3), (16, 16), (100, 5)])
def test_blocks_are_those_that_a_count_over_the_whole_mask_finds(block, prefix):
    for tree in trees(20, largest=25):
        allowed = behind_prefix(tree.ancestor_mask(), prefix + len(tree))
        naive = sum(
            bool(allowed[row : row + block, column : column + block].any())
            for row in range(0, allowed.shape[0], block)
            for column in range(0, allowed.shape[1], block)
        )
        assert mask_blocks(tree, block, prefix) == mask_blocks(tree.parents, block, prefix) == naive
        assert int(block_mask(allowed, block).sum()) == naive


def test_blocks_of_known_shapes():
    chain = DraftTree.rooted(0)
    for node in range(255):
        chain.add(node, 0, 1.0, 1.0)
    assert mask_blocks(chain, 32) == 8 * 9 // 2  # the whole lower triangle
    assert mask_blocks([-1] + [0] * 255, 32) == 8 + 7  # a star: the diagonal and the root's column
    assert mask_blocks([-1], 32, prefix=64) == 3


def test_reordering_reproduces_the_papers_counts_for_random_trees():
    """DySpec, Table 5, blocks of 32: 135.5 -> 52.8 at 512 nodes, 490.2 -> 119.3 at 1,024. Its random tree: any node is the parent."""
    rng = random.Random(0)
    for size, before, after in ((512, 135.5, 52.8), (1024, 490.2, 119.3)):
        drawn = [random_tree(rng, size) for _ in range(20)]
        for name, published in (("insertion", before), ("dfs", after)):
            mean = sum(mask_blocks(tree.kept(ORDERS[name](tree))) for tree in drawn) / len(drawn)
            assert mean == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize("grow", [level_order, lambda tree: tree], ids=["level order", "heap"])
def test_depth_first_needs_fewer_blocks_than_insertion(grow):
    grown = [grow(grown_tree(384, seed)) for seed in range(6)]
    counts = {name: sum(mask_blocks(tree.kept(order(tree)), 16) for tree in grown) for name, order in ORDERS.items()}
    assert counts["heavy path"] <= counts["dfs"] < 0.6 * counts["insertion"]


@pytest.mark.parametrize("name", ORDERS)
def test_logits_follow_their_nodes_in_every_order(name):
    runner = tiny_pair().target
    rng = random.Random(5)
    for size in (2, 13, 40):
        tree = random_tree(rng, size)
        order = ORDERS[name](tree)
        logits = []
        for each in (tree, tree.kept(order)):
            target = Target(runner, 64)
            target.prefill([5, 80, 33, 12])
            logits.append(target.verify(each)[0])
        assert torch.allclose(logits[1], logits[0][order], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("base", [0, 5, 32])
@pytest.mark.parametrize("block", [1, 4, 7, 16, 64])
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
            monkeypatch.setattr("engine.measure.sparse_attention.block_mask", lambda *_, fewer=fewer: fewer)
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


def test_what_does_not_fit_is_refused():
    q, k, v = attention_input(4, 2, torch.float32)
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    with pytest.raises(ValueError, match="block must be at least 1 and the prefix at least 0, got 0 and 0"):
        mask_blocks([-1], 0)
    with pytest.raises(ValueError, match="block must be at least 1, got 0"):
        block_mask(mask, 0)
    with pytest.raises(ValueError, match="block must be at least 1, got -1"):
        sparse_attention(q, k, v, mask, -1)
    with pytest.raises(ValueError, match=r"must be bool \[N, N\] with N of at most 6 keys, got torch.float32"):
        sparse_attention(q, k, v, mask.float(), 2)
    with pytest.raises(ValueError, match="3 rows for 4 queries"):
        sparse_attention(q, k, v, mask[:3, :3], 2)
    with pytest.raises(ValueError, match=r"got \[2, 4, 8\], \[1, 6, 8\], \[1, 6, 8\]"):
        sparse_attention(q, k[:1], v[:1], mask, 2)
    with pytest.raises(ValueError, match="takes blocks of 16, 32, 64, 128, got 24"):
        flex_block_mask(mask, 6, 24)
    with pytest.raises(ValueError, match="needs a CUDA GPU, got tensors on cpu"):
        flex_attention_path(q, k, v, flex_block_mask(mask, 6, 16))


def test_the_bench_grows_the_same_trees_every_time_and_prints_every_figure():
    tree = grown_tree(200, 3)
    assert (tree.tokens, tree.parents) == (grown_tree(200, 3).tokens, grown_tree(200, 3).parents)
    assert tree.tokens != grown_tree(200, 4).tokens
    for node in range(200):
        children = tree.children(node)
        assert len({tree.tokens[child] for child in children}) == len(children)  # drawn without replacement
        assert sum(tree.score[child] for child in children) <= tree.score[node] * 1.0001  # shares of what the node has
    figures = run([40, 64], [0, 5], 16, torch.device("cpu"), repeats=1)
    assert [(row["nodes"], row["prefix"]) for row in figures["rows"]] == [(40, 0), (40, 5), (64, 0), (64, 5)]
    for row in figures["rows"]:
        assert set(row["ms"]) == {*ORDERS, "plain"} and min(row["ms"].values()) > 0
        assert f"{row['nodes']:>6}{row['prefix']:>8}" in table(figures)
