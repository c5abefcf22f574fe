"""StateCosts: what a tree costs a target with states on this machine, beside a chain of as many nodes. Measured once; knows no page."""

import threading
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

import torch

from engine.forward.recurrent.session import RecurrentSession
from engine.models.pairs import LoadedPair
from engine.rounds.pair_costs import NODES, VERIFY_SECONDS
from engine.rounds.timing import REPEATS, binary, chain, median_ms_interleaved, timing_context_length
from engine.target import Target
from engine.tree import LARGEST_TREE

_lock = threading.Lock()
_measured: WeakKeyDictionary[LoadedPair, "StateCosts"] = WeakKeyDictionary()


@dataclass(frozen=True)
class StateCosts:
    """Median ms of a verification, and the bytes that it leaves until its round ends, of `nodes` in one path and in a tree.

    `plain_ms` is a single token's. `text_bytes` are the states of a text, and `paths` the leaves of the tree.
    """

    nodes: int
    paths: int
    plain_ms: float
    chain_ms: float
    tree_ms: float
    chain_bytes: int
    tree_bytes: int
    text_bytes: int

    @property
    def summary(self) -> str:
        """What the page's card says of it."""
        return (
            f"{self.nodes} nodes, measured here: a chain takes {self.chain_ms / self.plain_ms:.1f} plain steps and keeps "
            f"{format_megabytes(self.chain_bytes)} until the round ends, a tree {self.tree_ms / self.plain_ms:.1f} and "
            f"{format_megabytes(self.tree_bytes)}. The text's states are {format_megabytes(self.text_bytes)}; a copy for each of the "
            f"tree's {self.paths} paths would be {format_megabytes(self.paths * self.text_bytes)}."
        )


def format_megabytes(byte_count: int) -> str:
    return f"{byte_count / 1e6:.1f} MB"


def known_state_costs(pair: LoadedPair) -> StateCosts | None:
    """What `measure_state_costs_once` has measured for this pair, None before and for a target without states."""
    return _measured.get(pair)


def measure_state_costs_once(pair: LoadedPair) -> StateCosts:
    """Measured on the first call for this pair. Raises `ValueError` for a target that keeps no state."""
    with _lock:
        if pair not in _measured:
            _measured[pair] = time_state_costs(pair)
        return _measured[pair]


@torch.inference_mode()
def time_state_costs(pair: LoadedPair) -> StateCosts:
    if not pair.target.recurrent:
        raise ValueError(f"The target of {pair.title} keeps no state, so its trees cost what rows cost.")
    target = Target(pair.target, timing_context_length(pair) + LARGEST_TREE)
    assert isinstance(target.session, RecurrentSession)
    target.prefill(list(range(timing_context_length(pair))))
    trees = {"plain": chain(1), "chain": chain(NODES), "tree": binary(NODES)}
    with pair.target.without_torch_threads():
        tasks = {name: partial(target.verify, tree) for name, tree in trees.items()}
        ms = median_ms_interleaved(pair.target.device, tasks, REPEATS, warm_up_each=True, max_seconds=VERIFY_SECONDS)
    held = {}
    for name, tree in trees.items():
        target.verify(tree)
        held[name] = target.session.uncommitted_bytes
    paths = NODES - len({*trees["tree"].parents[1:]})
    return StateCosts(
        NODES, paths, ms["plain"], ms["chain"], ms["tree"], held["chain"], held["tree"], pair.target.state_bytes
    )
