"""The same bits in the process that compiles and in every later one, whichever loop is loaded first.

As a program it prints a digest of the log-probabilities, scores and q of every drafter with compiled loops. The loops that others call
are called by themselves first, where a race would call them within others. With `within` they are not. With names it is of these
drafters alone.
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
from engine.kernels.attention import attend_to_cache_rows
from engine.kernels.compiling import FAST
from engine.kernels.elementwise import divide_rows_by_norm, log_softmax_in_place
from engine.kernels.ranking_compiled import compiled_top_tokens_scores_q
from engine.models.pairs import LoadedPair
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
    compiled_top_tokens_scores_q(rows, np.zeros(256, np.float32), np.float32(0.8), 4)
    divide_rows_by_norm(rows, np.float32(1e-3), np.empty_like(rows))
    log_softmax_in_place(rows.copy())
    queries, kv = np.ones((2, 128), np.float32), np.ones((2, 2, 16, 32), np.float32)
    attend_to_cache_rows(queries, kv, np.ones((2, 2), np.bool_), 0, 9, np.empty((2, 128), np.float32))


def digests(names: tuple[str, ...]) -> dict[str, str]:
    target = Runner(tiny_llama(0, layers=6))
    makers = {
        "parallel": lambda: parallel_net(target.model),
        "specblock": lambda: specblock_net(target.model),
        "dflash": lambda: block_net(DFlash),
        "dspark": lambda: block_net(DSpark),
    }
    pair = pair_with(*(name for name in ("medusa", "eagle") if name in names))
    nets = pair.learned | {name: make() for name, make in makers.items() if name in names}
    for name in {*names} & nets.keys():
        nets[name].pack_compiled_on_cpu()
    pair = replace(pair, target=target, draft=Runner(tiny_llama(1, layers=2), eight_bit=True), learned=nets)
    with torch.inference_mode():
        return {name: digest_of(pair, name) for name in names}


def digest_of(pair: LoadedPair, name: str) -> str:
    found = hashlib.blake2b(digest_size=8)
    for sampling in (Sampling(), Sampling(0.8, seed=3)):
        for width in (1, 4):
            drafter = begun(pair, name)
            tree = ExpandRerank(4, width, 4 * width, "ranked").grow(drafter, TEXT[READ], READ, sampling, 9)
            found.update(repr((tree.tokens, tree.parents, tree.score, tree.q)).encode())
    root = DraftTree.from_root_token(TEXT[READ])
    found.update(begun(pair, name).log_q(root, [0]).numpy().tobytes())
    return found.hexdigest()


def begun(pair: LoadedPair, name: str):
    drafter = DRAFTERS[name](pair, 120)
    drafter.begin(
        TEXT[: READ + 1], Target(pair.target, 120, drafter.reads_features).prefill_and_return_features(TEXT[:READ])
    )
    return drafter


def drafted(*words: str, **more: str) -> dict[str, str]:
    """The digests of a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *words], cwd=ROOT, env=OF_TESTS | more, capture_output=True, text=True, timeout=900
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_no_loop_may_be_compiled_so_that_a_copy_of_it_has_other_bits():
    """numba keeps one copy of a loop for all that call it. Each of these lets copies add, divide or round in ways of their own."""
    assert FAST.isdisjoint({"fast", "reassoc", "contract", "arcp", "afn", "nsz"})


@pytest.mark.slow
def test_all_drafters_have_the_bits_of_a_process_that_loads_other_loops_first():
    """This process has compiled the loops in a new checkout, and has loaded them in the order of its tests in others."""
    found = digests(NAMES)
    assert len({*found.values()}) == len(NAMES)
    assert drafted() == found


@pytest.mark.anew
def test_the_process_that_compiles_has_the_bits_of_those_that_load(tmp_path):
    first = drafted("within", NUMBA_CACHE_DIR=str(tmp_path))
    assert tuple(first) == NAMES
    assert drafted("within", NUMBA_CACHE_DIR=str(tmp_path)) == first == drafted(NUMBA_CACHE_DIR=str(tmp_path))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "within" not in sys.argv:
        call_alone()
    print(json.dumps(digests(tuple(name for name in NAMES if name in sys.argv) or NAMES)))
