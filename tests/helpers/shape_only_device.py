"""A device whose tensors know their shape and no numbers, and what a CUDA graph would hold, run on it.

`python -m helpers.shape_only_device` in `tests/` runs every case.

Three things raise: reading such a tensor on the host, an index whose size depends on values, and a CPU tensor among them. A capture
would break off at the first two, and no graph may hold the third. torch lets Python define such a device, one in a process, so the
cases run in a process of their own.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from engine.forward import runner_gpu
from engine.forward.runner import Runner
from engine.forward.session import Session
from engine.forward.session_gpu import SIZES, GraphBuckets
from engine.policies.best_first import BestFirst
from engine.policies.chain import Chain
from engine.policies.rank_guided import RankHeadGuidedTree
from engine.rounds import round_gpu
from engine.rounds.round_gpu import CapturedDeviceRound
from engine.sampling import Sampling
from helpers.families import WINDOWED, initial_model
from helpers.learned import specblock_net
from helpers.pairs import tiny_llama

DEVICE = "npy"
POLICIES = {
    "none": Chain(1, 1, 2, "ranked"),
    "model": BestFirst(3, 2, 6, "ranked"),
    "specblock": RankHeadGuidedTree(12, 3, 20, "ranked"),  # of three blocks
}


class NoMarks:
    def __init__(self, device: torch.device):
        pass

    def record_timestamp(self, index: int) -> None:
        pass


def without_numbers() -> FakeTensorMode:
    """Tensors have shapes alone. torch would keep the numbers of `torch.tensor`, and compute with them where no device is."""
    mode = FakeTensorMode()
    converter = mode.fake_tensor_converter
    convert = converter.from_real_tensor
    converter.from_real_tensor = lambda *args, make_constant=False, **more: convert(*args, **more)
    return mode


def move(model: torch.nn.Module) -> Any:
    """The model, whose tensors are on that device from now on."""
    for module in model.modules():
        for name, parameter in module._parameters.items():
            module._parameters[name] = None if parameter is None else torch.nn.Parameter(parameter.to(DEVICE))
        for name, buffer in module._buffers.items():
            module._buffers[name] = buffer.to(DEVICE)
    return model


def runner(kv_heads: int, family: str = "") -> Runner:
    """A tiny model on that device, of `helpers.families` where one is named. Nothing tries to capture its forwards."""
    made = Runner(move(initial_model(family) if family else tiny_llama(0, kv_heads=kv_heads)), use_custom_forward=False)
    made.why_eager = "Forwards run eagerly: there is nothing to capture."
    return made


def a_round(name: str, greedy: bool, kv_heads: int, family: str = "") -> None:
    model, policy = runner(kv_heads, family), POLICIES[name]
    net = move(specblock_net(tiny_llama(0))) if name == "specblock" else None
    pair = SimpleNamespace(target=model, draft=model, learned={name: net}, net=lambda _: net)
    drafter, terms = round_gpu.find_device_drafter_and_tree_terms(pair, name, policy)
    made = CapturedDeviceRound(model, drafter, terms, frozenset(), 200, greedy)
    made.prefill_and_set_state([5, 6, 7], Sampling(0.0 if greedy else 0.8), 40)
    packed, logits = made.run_round_and_pack_result()
    assert packed.device.type == logits.device.type == DEVICE
    assert logits.shape == (1 if name == "none" else policy.nodes, 256)


def buckets(kv_heads: int) -> None:
    for bucket in GraphBuckets(runner(kv_heads), 200, (1, 1, 1), SIZES).by_size:
        logits, features = bucket.run_on_inputs()
        assert logits.shape == (1 if bucket.last_only else bucket.size, 256) and features.shape == (bucket.size, 4, 64)
        assert logits.device.type == features.device.type == DEVICE


def of_modules(kv_heads: int) -> None:
    """The forward of transformers' modules, as other families have it."""
    with mock.patch.object(runner_gpu, "is_known_llama_family", lambda model: False):
        buckets(kv_heads)


def session(kv_heads: int) -> None:
    """A lane's own forwards. They pass in what the host knows and read nothing back."""
    lane = Session(runner(kv_heads), 200, feature_layers=True, use_cuda_graphs=True)
    _, features = lane.prefill([1, 2, 3, 4, 5])
    logits, seen = lane.forward([6, 7, 8], [5, 6, 6], torch.ones(3, 3, dtype=torch.bool).tril())
    lane.keep([0, 2])
    assert lane.rows == 7 and features.shape == (5, 4, 64) and seen.shape == (3, 4, 64) and logits.shape == (3, 256)
    assert features.device.type == logits.device.type == DEVICE


def rejected(wrong: Callable[[torch.Tensor], object]) -> None:
    """Checks that a forward in which `wrong` happens raises."""
    model = runner(2)

    def happening(_, given) -> None:
        wrong(given[0])

    model.model.get_input_embeddings().register_forward_pre_hook(happening)
    try:
        drafter, terms = round_gpu.find_device_drafter_and_tree_terms(
            SimpleNamespace(target=model), "none", POLICIES["none"]
        )
        CapturedDeviceRound(model, drafter, terms, frozenset(), 200, True).run_round_and_pack_result()
    except Exception as error:
        print(type(error).__name__)
        return
    raise AssertionError("It got through.")


CASES = {
    f"round {drafter} {greedy} {kv_heads}": lambda a=drafter, b=greedy, c=kv_heads: a_round(a, b, c)
    for drafter in POLICIES
    for greedy in (True, False)
    for kv_heads in (1, 2)
}
CASES |= {f"round of {family}": lambda a=family: a_round("model", False, 2, a) for family in WINDOWED}
CASES |= {f"buckets {kv_heads}": lambda a=kv_heads: buckets(a) for kv_heads in (1, 2)}
CASES |= {f"session {kv_heads}": lambda a=kv_heads: session(a) for kv_heads in (1, 2)}
CASES |= {f"buckets {kv_heads} of modules": lambda a=kv_heads: of_modules(a) for kv_heads in (1, 2)}
CASES |= {
    "reading": lambda: rejected(lambda ids: ids[0].item()),
    "choosing": lambda: rejected(lambda ids: ids[ids > 0]),
    "mixing": lambda: rejected(lambda ids: ids + torch.zeros(1)[None].expand(2, -1)),
}


def main() -> None:
    _setup_privateuseone_for_python_backend(DEVICE)
    torch._C._set_only_lift_cpu_tensors(True)  # else torch moves what `torch.tensor` makes before it is without numbers
    round_gpu.PhaseTimestamps = NoMarks
    for name, case in CASES.items():
        with without_numbers():
            case()
        print("passed:", name)


if __name__ == "__main__":
    main()
