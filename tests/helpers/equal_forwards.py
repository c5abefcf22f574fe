"""Cases of equality: the compiled forward, static forwards and forwards in buckets."""

import random
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from itertools import product

import torch
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from engine.forward.llama import TensorLlama
from engine.forward.llama_compiled import CompiledLlama
from engine.forward.runner import Runner
from engine.forward.runner_gpu import StaticForward, visible_slots
from helpers.equality import Cases, Compared
from helpers.families import MODELS, WINDOWED, answers, expected_of, over, random_model
from helpers.pairs import committed, tiny_llama
from helpers.trees import random_tree

KINDS = ("one key head a query head", "grouped heads", "float64")


def compiled_llama(name: str) -> Iterator[Compared]:
    """A tree and a token behind a prompt; and a prompt at once, as tensors, and in pieces, compiled, with features."""
    model = random_model(name)
    assert isinstance(Runner(model).own, CompiledLlama)
    yield Compared(expected_of(name), answers(Runner(model)), within=2e-5)
    ids = torch.randint(0, 256, (80,), generator=torch.Generator().manual_seed(1)).tolist()
    found = []
    for runner, steps in ((over(TensorLlama(model), model), (80,)), (Runner(model), (60, 12, 8))):
        session, logits = runner.open_session(80, feature_layers=True), []
        for step in steps:
            places = list(range(session.rows, session.rows + step))
            logits.append(session.forward([ids[place] for place in places], places))
            session.keep(list(range(step)))
        found.append([torch.cat(each) for each in zip(*logits, strict=True)])
    (whole, seen), (pieces, seen_in_pieces) = found
    yield Compared(whole, pieces, within=2e-5)
    yield Compared(seen, seen_in_pieces, within=1e-4)


def runner_of(kind: str) -> tuple[Runner, float]:
    """A runner of that kind, and how far apart its logits may be."""
    if kind in MODELS | WINDOWED:
        return Runner(deepcopy(random_model(kind)), use_custom_forward=False), 1e-4
    model = tiny_llama(0, layers=4, kv_heads=1 if "grouped" in kind else 2)
    wide = kind == "float64"
    return Runner(in_float64(model) if wide else model, use_custom_forward=False), 1e-9 if wide else 1e-4


def in_float64(model: PreTrainedModel) -> PreTrainedModel:
    """The model with norms in float64, too, which transformers computes in float32 at most."""
    for layer in [model.model, *model.model.layers]:
        for name, norm in layer.named_children():
            if isinstance(norm, LlamaRMSNorm):
                exact = torch.nn.RMSNorm(norm.weight.shape, norm.variance_epsilon)
                exact.weight, exact.variance_epsilon = norm.weight, norm.variance_epsilon
                setattr(layer, name, exact)
    return model.double()


def static_forward(kind: str) -> Iterator[Compared]:
    """A tree behind a prompt. A tensor names the slots of its rows."""
    runner, within = runner_of(kind)
    plain, slotted = (committed(runner, features=True) for _ in range(2))
    tree, base = random_tree(random.Random(4), 9), plain.committed_rows
    expected, behind = plain.verify(tree)
    forward, slots = (
        StaticForward(runner, slotted.session.cache, slotted.session.taps),
        base + torch.arange(len(tree)),
    )
    visible = visible_slots(forward.columns, torch.tensor([base]), tree.ancestor_mask())
    with torch.inference_mode():
        logits, features = forward(torch.tensor(tree.tokens), torch.tensor(tree.positions(base)), slots, visible)
    yield Compared(expected, logits, within)
    yield Compared(behind, features, 100 * within)
    rows = slice(0, base + len(tree))
    kept, wanted = (each.session.cache.kv[:, :, :, rows] for each in (slotted, plain))
    yield Compared(wanted, kept, within)


def buckets(kind: str, size: int) -> Iterator[Compared]:
    """Any number of nodes, padded or not, over scattered commits, so that rows behind the committed ones hold masked garbage."""
    (runner, within), rng = runner_of(kind), random.Random(size)
    plain, graphed = (committed(runner, features=True, use_cuda_graphs=graphed) for graphed in (False, True))
    for _ in range(4):
        tree = random_tree(rng, size)
        expected, behind = plain.verify(tree)
        logits, features = graphed.verify(tree)
        yield Compared(expected, logits, within)
        yield Compared(behind, features, 100 * within)
        path = tree.path_below_root(rng.randrange(size))
        plain.commit(path)
        graphed.commit(path)
        rows = plain.committed_rows
        kept, wanted = (each.session.cache.kv[:, :, :, :rows] for each in (graphed, plain))
        yield Compared(wanted, kept, within)


CASES: Cases = {
    "forward.llama_compiled": {name: partial(compiled_llama, name) for name in MODELS},
    "forward.runner_gpu": {kind: partial(static_forward, kind) for kind in (*KINDS, *MODELS, *WINDOWED)},
    "forward.session_gpu": {
        f"{kind}, {size} nodes": partial(buckets, kind, size)
        for kind, size in (*product(KINDS, (1, 2, 3, 8, 13, 40)), *product(WINDOWED, (1, 13)))
    },
}
