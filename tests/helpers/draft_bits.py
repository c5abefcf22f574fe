"""`python -m helpers.draft_bits`: a digest of the log-probabilities, scores and q of every drafter with compiled loops, by its name.

With `alone` the loops that others call are called by themselves first, so that another copy of their code is loaded first. With names
behind that it is of these drafters alone.
"""

import hashlib
import json
import sys
from dataclasses import replace

import numpy as np
import torch

from engine.drafters import DRAFTERS
from engine.forward.runner import Runner
from engine.kernels.attention import attend
from engine.kernels.elementwise import log_softmax, unit_rows
from engine.kernels.ranking_compiled import ranked_on_cpu
from engine.nets.dflash import DFlash
from engine.nets.dspark import DSpark
from engine.policies.expand_rerank import ExpandRerank
from engine.sampling import Sampling
from engine.target import Target
from engine.tree import DraftTree
from helpers.learned import TEXT, block_net, pair_with, parallel_net, specblock_net
from helpers.pairs import tiny_llama

NAMES = ("model", "medusa", "eagle", "parallel", "specblock", "dflash", "dspark")
READ = 7  # tokens of the text before the root


def call_alone() -> None:
    rows = np.linspace(-3, 3, 3 * 256, dtype=np.float32).reshape(3, 256)
    ranked_on_cpu(rows, np.zeros(256, np.float32), np.float32(0.8), 4)
    unit_rows(rows, np.float32(1e-3), np.empty_like(rows))
    log_softmax(rows.copy())
    queries, kv = np.ones((2, 128), np.float32), np.ones((2, 2, 16, 32), np.float32)
    attend(queries, kv, np.ones((2, 2), np.bool_), 0, 9, np.empty((2, 128), np.float32))


def digests(names: tuple[str, ...]) -> dict[str, str]:
    pair = pair_with("medusa", "eagle")
    target = Runner(tiny_llama(0, layers=6))
    makers = {
        "parallel": lambda: parallel_net(target.model),
        "specblock": lambda: specblock_net(target.model),
        "dflash": lambda: block_net(DFlash),
        "dspark": lambda: block_net(DSpark),
    }
    nets = pair.learned | {name: make() for name, make in makers.items() if name in names}
    for name in {*names} & nets.keys():
        nets[name] = nets[name].pack()
    pair = replace(pair, target=target, draft=Runner(tiny_llama(1, layers=2), eight_bit=True), learned=nets)
    return {name: digest_of(pair, name) for name in names}


def digest_of(pair, name: str) -> str:
    found = hashlib.blake2b(digest_size=8)
    drafter = DRAFTERS[name](pair, 120)
    target = Target(pair.target, 120, drafter.reads_features)
    drafter.begin(TEXT[: READ + 1], target.prefill(TEXT[:READ]))
    for sampling in (Sampling(), Sampling(0.8, seed=3)):
        for width in (1, 4):
            tree = ExpandRerank(4, width, 4 * width, "ranked").grow(drafter, TEXT[READ], READ, sampling, 9)
            found.update(repr((tree.tokens, tree.parents, tree.score, tree.q)).encode())
    root = DraftTree.rooted(TEXT[READ])
    found.update(drafter.log_q(root, [0]).numpy().tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "alone" in sys.argv:
        call_alone()
    with torch.inference_mode():
        print(json.dumps(digests(tuple(name for name in NAMES if name in sys.argv) or NAMES)))
