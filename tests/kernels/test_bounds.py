"""The compiled forward with every index checked, in a process of its own that compiles it so: no loop leaves its arrays."""

import subprocess
import sys

import pytest

from helpers.paths import OF_TESTS, ROOT

FORWARDS = """
import random
import torch
from engine.forward import llama_compiled
from engine.forward.batch import RowRequest, SharedForwardBatch
from engine.forward.llama_compiled import CompiledLlama
from engine.models.quantising import replace_with_rounded_linear
from engine.target import Target
from helpers.families import over, random_model
from helpers.trees import random_tree

rng = random.Random(0)

def forwards():
    for model in (random_model("llama, biases, tied"), replace_with_rounded_linear(random_model("qwen3"))):
        runner = over(CompiledLlama(model, 2), model)
        for size in (1, 2, 7, 33, 40):
            target = Target(runner, 140, features=True)
            target.prefill_and_return_features([rng.randrange(256) for _ in range(23)])
            tree = random_tree(rng, size)
            target.verify(tree)
            target.commit(tree.path_below_root(size - 1))
            target.verify(random_tree(rng, size))
        batch = SharedForwardBatch(runner, 3, 60)
        asked = []
        for rows in (1, 5, 9):
            seen = torch.ones(rows, rows, dtype=torch.bool).tril_()
            asked.append(RowRequest(batch.open_session(60), list(range(rows)), list(range(rows)), seen))
        batch.forward(asked)

forwards()
print("inside", flush=True)
# Working space for a row less than is asked for
workspace_for = CompiledLlama.take_workspace_for_rows
CompiledLlama.take_workspace_for_rows = lambda self, rows: workspace_for(self, max(1, rows - 1))
llama_compiled.FEWEST = 1
forwards()
print("outside")
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_no_loop_of_the_forward_leaves_its_arrays(tmp_path):
    """Prompts, trees, commits and batches in float32 and in eight bits. The same code with too little space is found out."""
    settings = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FORWARDS]
    done = subprocess.run(command, cwd=ROOT, env=OF_TESTS | settings, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "inside" and "IndexError" in done.stderr
