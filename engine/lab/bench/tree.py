"""`python -m engine bench --by tree`: ms of a verification by its number of nodes, behind a context of 128 tokens.

All numbers of nodes take turns in one process; medians count. The second figure is t(N)/t(1).
"""

from argparse import Namespace
from functools import partial

from engine.measure.options import load_pair_of_options
from engine.rounds.timing import binary, median_ms_interleaved
from engine.target import Target
from engine.tree import LARGEST_TREE

NODES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
CONTEXT = 128  # tokens before a timed forward


def main(options: Namespace) -> dict:
    pair = load_pair_of_options(options)
    target = Target(pair.target, CONTEXT + LARGEST_TREE)
    target.prefill(list(range(CONTEXT)))
    with pair.target.without_torch_threads():
        tasks = {nodes: partial(target.verify, binary(nodes)) for nodes in NODES}
        ms = median_ms_interleaved(pair.target.device, tasks, options.repeats)
    rows = [{"nodes": nodes, "verify_ms": ms[nodes], "vs_one": ms[nodes] / ms[1]} for nodes in NODES]
    print(f"{'nodes':>8}{'verify ms':>12}{'t(N)/t(1)':>12}")
    for row in rows:
        print(f"{row['nodes']:>8}{row['verify_ms']:>12.2f}{row['vs_one']:>12.2f}")
    return {"machine": pair.hardware, "pair": pair.title, "dtype": pair.dtype, "rows": rows}
