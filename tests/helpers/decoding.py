"""Whole texts by a named system, through the decode loop alone."""

from engine.decode import decode
from engine.rounds.round import HostRounds
from engine.sampling import Sampling
from engine.systems import SYSTEMS
from engine.target import Target
from engine.tree import LARGEST_TREE


def decoded(pair, name: str, prompt: list[int], max_new_tokens: int, stop_ids=frozenset(), temperature=0.0):
    system = SYSTEMS[name]
    parts = system.build(pair, pair.context + LARGEST_TREE, system.depth, system.width, system.nodes)
    target = Target(pair.target, pair.context + LARGEST_TREE, parts[0].reads_features)
    sampling = Sampling(temperature=temperature)
    return list(decode(HostRounds(target, *parts, sampling), prompt, max_new_tokens, stop_ids, pair.context))
