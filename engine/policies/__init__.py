"""Policies: which guesses enter the tree. One file per policy and one line in `POLICIES`."""

from typing import Protocol

from engine.drafters import Drafter
from engine.policies.best_first import BestFirst
from engine.policies.chain import Chain
from engine.policies.kary import Kary
from engine.sampling import Sampling
from engine.tree import DraftTree


class Policy(Protocol):
    """Grows a draft tree. Made as `Policy(depth, width, nodes, proposal, calibration)`; raises `ValueError` for a shape it cannot
    grow or a calibration that it needs and the pair lacks.

    `proposals` names the ways in which it can pick tokens: "ranked" takes the drafter's favourites, "drawn" samples from q and leaves
    q in the tree. Which one an acceptance rule needs is the rule's `proposal`.
    """

    proposals: frozenset[str]

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        """A tree below the token `root`, which stands at `position`; at most `room` levels, as many as may still be emitted."""


POLICIES: dict[str, type[Policy]] = {"chain": Chain, "kary": Kary, "best_first": BestFirst}
