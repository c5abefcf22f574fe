"""Shapes: what a system's rounds give and take by the shape of its trees, counted on a pair. Nothing is timed.

So these figures hold on every machine; `System.shape` weighs them with what forwards cost here. The texts are few and short, so that
all systems take minutes: with 40 tokens two shapes' tau had the ratio that they have in 128 tokens of all prompts, within 5 %.
"""

import numpy as np
import torch
from tqdm import tqdm

from engine.decode import decode
from engine.measure.racing import allows
from engine.models.chat import prompt_tokens
from engine.models.pairs import LoadedPair
from engine.record.costs import Counted
from engine.sampling import Sampling
from engine.systems import SHAPE, SYSTEMS, System, spelled
from engine.tree import LARGEST_TREE

PROMPTS, TOKENS = 6, 64  # texts by temperature, spread over the prompts that are given; and tokens of each
HEATS = (0.0, 0.8)  # one shape serves all temperatures


def by_system(pair: LoadedPair, prompts: list[str]) -> dict[str, dict[str, Counted]]:
    """Of every named system that takes a shape and guesses something on this pair: its rounds by shape, its own shape first."""
    texts = [prompt_tokens(pair, prompt)[: pair.context // 2] for prompt in prompts[:: -(-len(prompts) // PROMPTS)]]
    able = [each for each in SYSTEMS.values() if each.guesses and not each.limits and not allows(pair, each)]
    found: dict[str, dict[str, Counted]] = {}
    for system in (bar := tqdm(able, desc="shapes")):
        bar.set_postfix_str(system.name)
        own = counted(pair, system, system.own_shape, texts)
        if own.rows > 1:
            found[system.name] = {spelled(system.own_shape): own} | {
                spelled(shape): counted(pair, system, shape, texts) for shape in others(system)
            }
    return found


def others(system: System) -> list[dict[str, int]]:
    """The shapes to try beside the system's own."""
    shapes = [dict(zip(SHAPE, sizes, strict=True)) for sizes in system.parts[1].shapes(system.width)]
    return [shape for shape in shapes if shape != system.own_shape]


@torch.inference_mode()
def counted(pair: LoadedPair, system: System, shape: dict[str, int], texts: list[list[int]]) -> Counted:
    """The means over all rounds behind these prompts, at every one of `HEATS`. No round is counted that a text's end cuts short."""
    depth = shape["depth"]
    sums = np.zeros(4, int)  # rounds, tokens, rows, levels
    for temperature in HEATS:
        for ids in texts:
            capacity = min(pair.context, len(ids) + TOKENS + depth) + LARGEST_TREE
            work, forwards = system.rounds(pair, capacity, shape, Sampling(temperature)), 0
            for done in decode(work, ids, TOKENS + depth, pair.stop_ids, pair.context):
                drafted, forwards = work.forwards - forwards, work.forwards
                if done.end and sums[0]:
                    break
                emitted = len(done.verdict.path) + 1
                sums += 1, emitted, len(done.tree), max(drafted, *done.tree.depth)
                if done.position + emitted >= len(ids) - 1 + TOKENS:
                    break
    return Counted(*(round(float(each), 3) for each in sums[1:] / sums[0]))
