"""Policies: which guesses enter the tree. One file per policy and one line in `POLICIES`."""

from typing import Protocol

from engine.drafters import Drafter
from engine.policies.auto import Auto
from engine.policies.beam import Beam
from engine.policies.best_first import BestFirst
from engine.policies.chain import Chain
from engine.policies.chains import Chains
from engine.policies.dyspec import DySpec
from engine.policies.dyspec_threshold import DySpecThreshold
from engine.policies.expand_rerank import ExpandRerank
from engine.policies.kary import Kary
from engine.policies.rank_guided import RankGuided
from engine.policies.sequoia import Sequoia
from engine.policies.sparse import Sparse
from engine.policies.widths import Widths
from engine.sampling import Sampling
from engine.tree import DraftTree

# How a policy can pick tokens, in words that follow "needs" and "offers".
PROPOSALS = {
    "ranked": "the drafter's favourites",
    "top": "the most probable tokens of q, with q kept",
    "one draw": "one token drawn from q behind every node",
    "with replacement": "tokens drawn from q independently of each other",
    "without replacement": "tokens drawn from q one after another, none twice",
}


class Policy(Protocol):
    """Grows a draft tree. Made as `Policy(depth, width, nodes, proposal, calibration)`; raises `ValueError` for a shape it cannot
    grow or a calibration that it needs and the pair lacks.

    `proposals` names the ways in which it can pick tokens, of `PROPOSALS`; `proposal` is the one that the acceptance rule needs. All
    but "ranked" leave q in the tree, those that draw also every draw.
    """

    proposals: frozenset[str]

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        """A tree below the token `root`, which stands at `position`; at most `room` levels, as many as may still be emitted."""

    def learn(self, tree: DraftTree, path: list[int]) -> None:
        """What became of the tree that was grown last: the accepted path."""


POLICIES: dict[str, type[Policy]] = {
    "auto": Auto,
    "chain": Chain,
    "kary": Kary,
    "best_first": BestFirst,
    "widths": Widths,
    "chains": Chains,
    "sequoia": Sequoia,
    "dyspec": DySpec,
    "dyspec_threshold": DySpecThreshold,
    "beam": Beam,
    "expand_rerank": ExpandRerank,
    "sparse": Sparse,
    "rank_guided": RankGuided,
}
