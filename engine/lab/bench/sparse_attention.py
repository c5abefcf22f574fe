"""Tree attention that skips empty tiles of the mask: a reference for every device, FlexAttention for CUDA.

Invariant: both give what scaled dot-product attention gives under the additive mask. Every query sees the committed prefix. The last
N keys are the tree's own, under `mask` bool `[N, N]` (`DraftTree.ancestor_mask`).
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from engine.tree import DraftTree

FLEX_BLOCKS = (16, 32, 64, 128)
# Rows and columns that one step of the kernel takes at most; a tile of the mask holds a whole number of them
FLEX_TILE = 64


def block_mask(mask: torch.Tensor, block: int) -> torch.Tensor:
    """bool `[ceil(N / block), ceil(M / block)]` of a mask bool `[N, M]`: whether each tile, from the top left on, allows an entry."""
    rows, columns = (-(-size // block) for size in mask.shape)
    padded = F.pad(mask, (0, columns * block - mask.shape[1], 0, rows * block - mask.shape[0]))
    return padded.view(rows, block, columns, block).any(3).any(1)


def behind_prefix(mask: torch.Tensor, keys: int) -> torch.Tensor:
    """bool `[N, keys]`: a prefix that every row may see, then `mask [N, N]`."""
    return F.pad(mask, (keys - len(mask), 0), value=True)


def mask_blocks(tree: DraftTree, block: int = 32, prefix: int = 0) -> int:
    """How many tiles of the tree's mask behind so many committed columns hold an allowed entry. 0 counts the tree alone.

    DySpec's Table 5 counts so: its 36 at 256 nodes is the whole lower triangle. Its Figure 9 includes a prefix.
    """
    return int(block_mask(behind_prefix(tree.ancestor_mask(), prefix + len(tree)), block).sum())


def sparse_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, block: int = 32
) -> torch.Tensor:
    """Attention `[H, N, d]` of `q [H, N, d]` over `k`, `v` `[H, base + N, d]`, touching only tiles that hold an allowed entry.

    Every `block` queries attend over the keys of the tiles that they need, in plain torch, as DySpec's kernel skips (Appendix C). Every
    row of `mask` must allow something; a node allows itself.
    """
    allowed = behind_prefix(mask, k.shape[1])
    parts = []
    for start, tiles in zip(range(0, q.shape[1], block), block_mask(allowed, block), strict=True):
        rows = slice(start, start + block)
        keys = tiles.repeat_interleave(block)[: k.shape[1]].nonzero()[:, 0]
        part = F.scaled_dot_product_attention(
            q[None, :, rows],
            k[None].index_select(2, keys),
            v[None].index_select(2, keys),
            attn_mask=allowed[rows].index_select(1, keys),
        )
        parts.append(part[0])
    return torch.cat(parts, 1)


def flex_block_mask(mask: torch.Tensor, keys: int, block: int = 64) -> BlockMask:
    """FlexAttention's form of `mask [N, N]` behind `keys - N` committed rows, on the mask's device, for all layers and heads.

    The mask is data, so another tree of the same size needs no new kernel. `block` is one of `FLEX_BLOCKS`.
    """
    allowed = behind_prefix(mask, keys)

    def mask_mod(batch, head, row, column):
        return allowed[row, column]

    return create_block_mask(mask_mod, None, None, *allowed.shape, device=mask.device, BLOCK_SIZE=block)


def flex_attention_path(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tiles: BlockMask) -> torch.Tensor:
    """The same attention by FlexAttention's compiled kernel, on CUDA only; `tiles` are of `flex_block_mask`. The first call compiles.

    No CPU test reaches the kernel; `bench --by order` compares its output with plain attention's before it times it.
    """
    tile = min(tiles.BLOCK_SIZE[0], FLEX_TILE)
    options = {"BLOCK_M": tile, "BLOCK_N": tile}
    return compiled_flex()(q[None], k[None], v[None], block_mask=tiles, kernel_options=options)[0]


@cache
def compiled_flex():
    return torch.compile(flex_attention)
