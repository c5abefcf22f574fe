"""`python -m engine bench --by order`: what a tree's node order and skipping empty tiles save. A table.

It runs attention alone, one layer on random queries and keys: no model and no decoding. Trees grow as DySpec's do, from random draft
distributions. Figures are medians of interleaved calls. Every output is compared with plain attention's before it is timed.
"""

import heapq
import json
import statistics
import sys
from argparse import Namespace
from collections.abc import Callable
from itertools import product

import torch
import torch.nn.functional as F
from tqdm import tqdm

from engine.forward.cache import additive
from engine.lab.bench.sparse_attention import flex_attention_path, flex_block_mask, mask_blocks, sparse_attention
from engine.measure.node_order import ORDERS
from engine.measure.options import writable
from engine.models.loading import TRAINED_ON, checked_device, hardware_name
from engine.rounds.timing import interleaved
from engine.sampling import seeded
from engine.tree import LARGEST_TREE, DraftTree

BLOCKS = (16, 32, 64)  # tiles that are counted
TREES = 5  # block counts are means over so many trees; the first one is timed
FAVOURITES = 32  # tokens that a synthetic draft distribution covers
SHARPNESS = (2.0, 8.0)  # range of the logits' standard deviation: unsure nodes beside nearly certain ones
SHAPES = {"cpu": (8, 64, torch.float32), "cuda": (32, 128, torch.bfloat16)}  # heads, head_dim, dtype
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
STEADY = "dfs"  # the order that is judged, DySpec's own, because the best of three would count noise as gain
LONGEST = 60.0  # seconds of a row's timings, past which they end early
PAYS = 1.1  # from this ratio on, skipping counts as faster


def grown_tree(nodes: int, seed: int) -> DraftTree:
    """A tree as DySpec grows it (Algorithm 1): a heap on the estimated acceptance of the next draw, without replacement.

    `v * r` for the drawn child and `v * (1 - r)` for its next sibling, where r is the token's share of what is left of q.
    """
    source = seeded("tree shape", seed, nodes)
    sharpness = torch.empty(nodes, 1).uniform_(*SHARPNESS, generator=source)
    log_q = (torch.empty(nodes, FAVOURITES).normal_(generator=source) * sharpness).log_softmax(-1)
    gumbel = -torch.empty(nodes, FAVOURITES).exponential_(generator=source).log()
    drawn = (log_q + gumbel).argsort(-1, descending=True)  # [nodes, FAVOURITES] tokens in the order of the draws
    q = log_q.exp().gather(-1, drawn)
    left = (1 - q.cumsum(-1) + q).clamp(min=1e-6)
    share = (q / left).clamp(max=1).tolist()
    tokens, shares = drawn.tolist(), q.tolist()
    tree, heap = DraftTree.rooted(0), [(-1.0, 0, 0)]  # (-estimate, parent, which of its draws)
    while len(tree) < nodes:
        estimate, parent, draw = heapq.heappop(heap)
        taken = -estimate * share[parent][draw]
        child = tree.add(parent, tokens[parent][draw], taken, shares[parent][draw])
        heapq.heappush(heap, (-taken, child, 0))
        if draw + 1 < FAVOURITES:
            heapq.heappush(heap, (estimate + taken, parent, draw + 1))
    return tree


def counted(nodes: int, prefix: int) -> dict[str, dict[int, float]]:
    """How many tiles hold an allowed entry, by order and block; means over `TREES` trees."""
    trees = [grown_tree(nodes, seed) for seed in range(TREES)]
    return {
        name: {
            block: statistics.mean(mask_blocks(tree.kept(order(tree)), block, prefix) for tree in trees)
            for block in BLOCKS
        }
        for name, order in ORDERS.items()
    }


def timed(nodes: int, prefix: int, block: int, device: torch.device, repeats: int) -> dict:
    """Milliseconds of plain attention under a ready mask and, by order, of attention that skips tiles; on CUDA also of a `BlockMask`.

    Raises `RuntimeError` when an output is wrong.
    """
    heads, width, dtype = SHAPES[device.type]
    source = seeded("attention input", nodes, prefix)
    q, k, v = (
        torch.empty(heads, rows, width).normal_(generator=source).to(device, dtype)
        for rows in (nodes, prefix + nodes, prefix + nodes)
    )
    tree = grown_tree(nodes, 0)
    calls: dict[str, Callable[[], torch.Tensor]] = {}
    plain: dict[str, Callable[[], torch.Tensor]] = {}
    if device.type == "cuda":
        torch.compiler.reset()  # one shape's kernels must not make the next shape's dynamic
    for name, order in ORDERS.items():
        seen = tree.kept(order(tree)).ancestor_mask()
        mask, bias = seen.to(device), additive(seen, prefix + nodes, dtype).to(device)
        plain[name] = lambda bias=bias: F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=bias)[0]
        if device.type == "cuda":
            tiles = flex_block_mask(mask, prefix + nodes, block)
            calls[name] = lambda tiles=tiles: flex_attention_path(q, k, v, tiles)
        else:
            calls[name] = lambda mask=mask: sparse_attention(q, k, v, mask, block)
        error = float((calls[name]() - plain[name]()).abs().max())
        if not error <= TOLERANCE[dtype]:
            raise RuntimeError(f"{nodes} nodes, prefix {prefix}, {name}: skipping tiles is off by {error:.2g}.")
    calls["plain"] = plain["insertion"]
    if device.type == "cuda":
        calls["build"] = lambda: flex_block_mask(mask, prefix + nodes, block)
    return interleaved(device, calls, repeats, seconds=LONGEST)


def run(sizes: list[int], prefixes: list[int], block: int, device: torch.device, repeats: int) -> dict:
    """The figures as --json prints them."""
    heads, width, dtype = SHAPES[device.type]
    rows = []
    for nodes, prefix in tqdm([*product(sizes, prefixes)], desc="attention", unit="row"):
        ms = timed(nodes, prefix, block, device, repeats)
        rows.append({"nodes": nodes, "prefix": prefix, "blocks": counted(nodes, prefix), "ms": ms})
    return {
        "machine": hardware_name(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "path": "FlexAttention" if device.type == "cuda" else "gathered tiles in plain torch",
        "heads": heads,
        "head_dim": width,
        "dtype": str(dtype).removeprefix("torch."),
        "block": block,
        "rows": rows,
    }


def table(figures: dict) -> str:
    names = list(ORDERS)
    lines = [
        f"{figures['machine']}, torch threads: {figures['threads']}, torch {figures['torch']}, {figures['heads']} heads of "
        f"{figures['head_dim']}, {figures['dtype']}",
        "",
        f"Tiles of the mask with an allowed entry, prefix included, means over {TREES} trees: {' / '.join(names)}",
        f"{'nodes':>6}{'prefix':>8}" + "".join(f"{f'block {block}':>24}" for block in BLOCKS),
    ]
    for row in figures["rows"]:
        counts = (" / ".join(f"{row['blocks'][name][block]:.0f}" for name in names) for block in BLOCKS)
        lines.append(f"{row['nodes']:>6}{row['prefix']:>8}" + "".join(f"{each:>24}" for each in counts))
    lines += [
        "",
        f"Milliseconds of one layer's attention: plain, then {figures['path']} at block {figures['block']} by order; "
        f"gain is plain over {STEADY}",
        f"{'nodes':>6}{'prefix':>8}{'plain':>10}" + "".join(f"{name:>12}" for name in names) + f"{'gain':>8}",
    ]
    verdicts: dict[bool, list[str]] = {True: [], False: []}
    for row in figures["rows"]:
        ms = row["ms"]
        gain = ms["plain"] / ms[STEADY]
        verdicts[gain >= PAYS].append(f"{row['nodes']}+{row['prefix']}")
        lines.append(
            f"{row['nodes']:>6}{row['prefix']:>8}{ms['plain']:>10.2f}"
            + "".join(f"{ms[name]:>12.2f}" for name in names)
            + f"{gain:>7.2f}x"
            + (f"   building the mask {ms['build']:.2f}" if "build" in ms else "")
        )
    lines += [
        "",
        f"Skipping in {STEADY} order is at least {PAYS:g}x as fast as plain attention at (nodes+prefix): "
        f"{', '.join(verdicts[True]) or 'none'}.",
        f"It is not at: {', '.join(verdicts[False]) or 'none'}.",
        f"The race decodes trees of at most {LARGEST_TREE} nodes, and attention is one part of a forward.",
    ]
    return "\n".join(lines)


def main(options: Namespace) -> dict:
    if min(options.prefixes) < 0:
        raise ValueError(f"--prefixes must be at least 0, got {min(options.prefixes)}.")
    device, out = checked_device(options.device, TRAINED_ON), options.out and writable(options.out)
    if device.type == "cpu":
        print("No CUDA GPU is used: FlexAttention is not measured, the plain torch reference is.", file=sys.stderr)
    figures = run(options.sizes, options.prefixes, options.block, device, options.repeats)
    figures, text = {"command": options.command, **figures}, f"{options.command}\n{table(figures)}\n"
    print(text, end="")
    if out:
        out.write_text(f"{text}{json.dumps(figures)}\n", encoding="utf-8")
    return figures
