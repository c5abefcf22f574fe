"""What must stay true on a GPU, as figures: trees, noise, waits. `pytest -m gpu` holds graphs to what runs without them.

Judges nothing; `engine.lab.gpu.command` writes them down.
"""

import warnings

import torch

from engine.forward.runner import Runner
from engine.forward.session import Session
from engine.models.pairs import LoadedPair
from engine.race import Race, Settings
from engine.rounds.timing import binary
from engine.sampling import compute_gumbel_by_position
from engine.target import Target
from engine.tree import LARGEST_TREE

NODES = 24  # of the tree that is compared with its paths


def measure_tree_logits_against_single_paths(runner: Runner) -> dict:
    """Logits behind a tree's nodes against those of their paths alone: difference, favourites that agree, margins of the others."""
    prompt, tree = list(range(40, 72)), binary(NODES)
    target = Target(runner, LARGEST_TREE)
    target.prefill_and_return_features(prompt)
    logits, _ = target.verify(tree)
    differences, margins = [], []
    for node in range(NODES):
        path = [tree.tokens[each] for each in [0, *tree.path_below_root(node)]]
        [alone] = Session(runner, LARGEST_TREE).prefill([*prompt, *path])[0].float()
        differences.append(float((logits[node].float() - alone).abs().max()))
        if int(logits[node].argmax()) != int(alone.argmax()):
            best, second = alone.topk(2).values.tolist()
            margins.append(best - second)
    return {
        "nodes": NODES,
        "largest_difference": max(differences),
        "agreeing": NODES - len(margins),
        "margins": margins,
    }


def count_cuda_syncs_per_round(
    pair: LoadedPair, prompt: str, systems: tuple[str, ...], max_tokens: int
) -> dict[str, dict[str, float]]:
    """Mean and most waits of the host a round, by system, as torch counts them on CUDA.

    The first round makes noise and is left out. The copy that ends a round in one graph is not counted.
    """
    found = {}
    for name in systems:
        race = Race(pair, Settings(prompt, (name,), max_new_tokens=max_tokens))
        race.warm_up()
        counts, lane = [], race.local[0]
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            if pair.target.device.type == "cuda":
                torch.cuda.set_sync_debug_mode("warn")
            try:
                for _ in lane.decoding:
                    counts.append(len(seen))
                    seen.clear()
            finally:
                if pair.target.device.type == "cuda":
                    torch.cuda.set_sync_debug_mode("default")
        lane.close()
        later = counts[1:] or counts
        found[name] = {"mean": sum(later) / len(later), "most": max(later)}
    return found


def compare_gumbel_noise_with_cpu(device: torch.device) -> dict[str, float]:
    """How far the device's Gumbel rows are from the CPU's."""
    positions = torch.arange(64)
    here, there = (
        compute_gumbel_by_position(torch.tensor(7, device=d), positions.to(d), 4096).cpu() for d in ("cpu", device)
    )
    return {"largest_difference": float((here - there).abs().max()), "equal": float((here == there).double().mean())}


def compare_gumbel_noise_and_tree_logits(pairs_by_dtype: dict[str, LoadedPair]) -> dict:
    found: dict[str, object] = {
        "noise": compare_gumbel_noise_with_cpu(next(iter(pairs_by_dtype.values())).target.device)
    }
    for dtype, pair in pairs_by_dtype.items():
        found[dtype] = {
            "tree_against_paths": measure_tree_logits_against_single_paths(pair.target),
            "why_eager": pair.target.why_eager,
        }
    return found
