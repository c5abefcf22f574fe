"""The same bits in the process that compiles and in every later one, whichever loop is loaded first.

As a program it prints a digest of the log-probabilities, scores and q of every drafter with compiled loops. With `alone` the loops that
others call are called by themselves first. With names behind that it is of these drafters alone.
"""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.drafters import DRAFTERS
from engine.forward.runner import Runner
from engine.kernels.attention import attend
from engine.kernels.compiling import FAST
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
from helpers.paths import OF_TESTS, ROOT

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


def drafted(*words: str, **more: str) -> dict[str, str]:
    """The digests of a process of its own."""
    environment = OF_TESTS | more
    command = [sys.executable, __file__, *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=500)
    return json.loads(done.stdout.splitlines()[-1])


def test_no_loop_may_be_compiled_so_that_a_copy_of_it_has_other_bits():
    """Each of these lets a compiler add, divide or round in another way where it sees fit."""
    assert FAST.isdisjoint({"fast", "reassoc", "contract", "arcp", "afn", "nsz"})


@pytest.mark.slow
def test_all_drafters_have_the_same_bits_whichever_loop_is_loaded_first():
    """numba keeps one copy of a loop for every loop that calls it, and runs the one that was loaded first."""
    found = drafted()
    assert tuple(found) == NAMES and len({*found.values()}) == len(NAMES)
    assert drafted("alone") == found


@pytest.mark.slow
def test_the_process_that_compiles_has_the_bits_of_those_that_load(tmp_path):
    """Two drafters stand for all, whose loops call the same ones: compiling all of them takes a minute."""
    names, folder = ("model", "medusa"), {"NUMBA_CACHE_DIR": str(tmp_path)}
    first = drafted(*names, **folder)
    assert len(first) == 2 and first == drafted(*names, **folder) == drafted("alone", *names, **folder)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "alone" in sys.argv:
        call_alone()
    with torch.inference_mode():
        print(json.dumps(digests(tuple(name for name in NAMES if name in sys.argv) or NAMES)))
