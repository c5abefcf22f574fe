"""CUDA graphs as captured and replayed, on a CUDA GPU."""

import dataclasses
import random

import pytest
import torch

from engine.decode import decode
from engine.forward.runner import Runner
from engine.forward.session import Session
from engine.rounds.round import HostRoundRunner
from engine.rounds.round_gpu import DeviceRoundRunner
from engine.sampling import Sampling
from engine.systems import SYSTEMS
from engine.target import Target
from engine.tree import LARGEST_TREE
from helpers.families import WINDOWED, sharp_model
from helpers.pairs import PROMPT, committed, tiny_llama, tiny_pair
from helpers.trees import random_tree

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("family", ["", *WINDOWED])
def test_on_a_gpu_graphs_are_captured_and_write_the_loops_tokens(family, temperature):
    """float32: the loop's forwards are graphs there, too, by buckets; the reference is the loop without any, eager and unpadded."""
    tiny = tiny_pair(same=True)
    model = sharp_model(family) if family else tiny.target.model
    runner = Runner(model.to("cuda"), use_custom_forward=False)
    pair = dataclasses.replace(tiny, target=runner, draft=runner, learned={})
    sampling = Sampling(temperature=temperature, seed=3, device=runner.device)
    shape, written = {"depth": 4, "width": 4, "nodes": 8}, []
    limits = (PROMPT, 40, frozenset(), pair.context)
    for name in ("vanilla", "tree"):
        lane = SYSTEMS[name].open_rounds(pair, 47 + LARGEST_TREE, shape, sampling)
        assert isinstance(lane, DeviceRoundRunner)
        rounds = list(decode(lane, *limits))
        assert lane.round.captured.graph is not None and runner.why_eager == ""
        assert all(seconds > 0 for each in rounds for seconds in each.seconds.values())
        written.append([token for each in rounds for token in each.burst])
        for graphed in (True, False):
            target = Target(runner, 47 + LARGEST_TREE)
            target.session = Session(runner, 47 + LARGEST_TREE, use_cuda_graphs=graphed)
            parts = SYSTEMS[name].build_parts(pair, 47 + LARGEST_TREE, **shape)
            written.append(
                [token for each in decode(HostRoundRunner(target, *parts, sampling), *limits) for token in each.burst]
            )
    assert all(each == written[0] for each in written)
    assert max(len(each.burst) for each in rounds) > 2


def test_on_a_gpu_a_graph_gives_the_logits_of_its_own_function():
    runner = Runner(tiny_llama(0, layers=4, kv_heads=1).to("cuda"), use_custom_forward=False)
    target = committed(runner, features=True, use_cuda_graphs=True)
    for bucket in target.session.buckets.by_size:
        assert bucket.captured.graph is not None
        if bucket.last_only:
            continue
        logits, features = target.verify(random_tree(random.Random(bucket.size), bucket.size))
        with torch.inference_mode():
            again, seen = bucket.run_on_inputs()
        assert torch.equal(logits, again) and torch.equal(features, seen)
