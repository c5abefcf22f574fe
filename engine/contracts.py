"""Contracts: what a drafter, a policy, an acceptance rule and a lane's rounds must answer, and what a part declares about itself.

Knows trees, tensors and words; imports no part.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

import torch

from engine.record.trace import ACCEPTED, REJECTED, ROOT, UNREACHED
from engine.sampling import Sampling
from engine.tree import DraftTree

if TYPE_CHECKING:
    import numpy as np

    from engine.kernels.expansion import Expansion
    from engine.models.pairs import LoadedPair
    from engine.record.calibration import Calibration

# How a policy can pick tokens, in words that follow "needs" and "offers".
PROPOSALS = {
    "ranked": "the drafter's favourites",
    "top": "the most probable tokens of q, with q kept",
    "one draw": "one token drawn from q behind every node",
    "with replacement": "tokens drawn from q independently of each other",
    "without replacement": "tokens drawn from q one after another, none twice",
}
RANK_HEAD = "rank head"  # what a drafter may offer beside `log_q`, and a policy may need

# What serving engines know, by the kind of part; `engine.screens.serving` says how each of them spells it.
SERVED = {
    "drafter": ("no draft", "n-gram lookup", "draft model", "EAGLE", "Medusa", "block"),
    "policy": ("chain of guesses", "tree of guesses", "full tree", "fixed tree", "tree that adapts"),
    "acceptance": ("match", "min(1, p/q)", "several draws", "threshold"),
}


@dataclass(frozen=True)
class Counterpart:
    """What a part becomes in the engines that serve models. Raises `ValueError` for a kind that they do not know.

    `kind` is one of `SERVED`, "" for none. `lacks` names the part where that kind is only the nearest, in words before "drafter".
    `lost` is a sentence on what no engine does of it; with no kind it says why there is none.
    """

    kind: str = ""
    lacks: str = ""
    lost: str = ""

    def __post_init__(self):
        known = [kind for kinds in SERVED.values() for kind in kinds]
        if self.kind and self.kind not in known:
            raise ValueError(f"Serving engines know no {self.kind!r}. Choose one of {', '.join(known)}, or none.")


class Part:
    """What every part says about itself."""

    title: ClassVar[str]  # a few words that go before "drafter", "policy" or "rule"
    about: ClassVar[str]  # one sentence for a visitor
    source: ClassVar[str]  # who it comes from: a paper, or "ours"
    counterpart: ClassVar[Counterpart] = (
        Counterpart()
    )  # in serving engines; none, because none is declared, when left out
    on_device: ClassVar[bool] = False  # whether `engine.rounds.round_gpu` computes this part too

    def __init_subclass__(cls) -> None:
        """A part computes something else than the part it was made from, so it says for itself whether a device computes it too."""
        super().__init_subclass__()
        cls.on_device = vars(cls).get("on_device", False)


class Drafter(Part):
    """Guesses what may follow the nodes of a tree. Made as `Drafter(pair, capacity)`, one for each lane.

    The calls come in rounds: `log_q` for the root, then for deeper nodes whose ancestors were asked before, then one `commit`.
    """

    reads_features: bool = False  # whether it wants the target's hidden states; others get None for them
    guesses: ClassVar[bool] = True  # False for the one that proposes nothing
    offers: ClassVar[frozenset[str]] = frozenset()  # what it answers beside `log_q`
    forwards: int = 0  # its own forwards so far
    grows: bool = False  # whether `grow` grows a round's whole tree of favourites, for a target of `vocab` tokens
    vocab: int

    def __init__(self, pair: "LoadedPair", capacity: int):
        """`capacity` is in rows of a cache. Raises `ValueError` when the pair lacks what the drafter needs."""

    def begin(self, prompt: list[int], features: torch.Tensor | None = None) -> None:
        """Take in the context; its last token is the first root. `features` `[len(prompt) - 1, 4, H]` of all tokens before it."""
        raise NotImplementedError

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """Log-probabilities `[len(nodes), V]` (float32, temperature 1) of the token after each node; None for no guess at all."""
        raise NotImplementedError

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: torch.Tensor | None = None) -> None:
        """The accepted nodes and the token after them, which is the next root. `features` `[N, 4, H]` of the tree's nodes."""
        raise NotImplementedError

    def grow(self, expansion: "Expansion", noise: "np.ndarray") -> None:
        """`engine.policies.growing.ask` in one compiled call, on the terms of the `Expansion`; asked only where `grows` is True.
        `noise [levels, V]` is that of the positions behind the root, `[levels, 0]` when greedy."""
        raise NotImplementedError

    def buckets(self, tree: DraftTree, nodes: list[int]) -> list[int]:
        """The rank head's word on the token after each node, where `offers` names one: 0 for the drafter's favourite, then ranks 2-4,
        5-10 and beyond."""
        raise NotImplementedError

    def copies(self, tree: DraftTree, node: int) -> tuple[list[int], float]:
        """Tokens that may follow the node, one after another, as guesses for nothing, and the chance of each if those before it come
        true. None, unless the drafter copies."""
        return [], 0.0


class Policy(Part):
    """Grows a draft tree.

    `proposals` names the ways in which it can pick tokens, of `PROPOSALS`. All but "ranked" leave q in the tree, those that draw also
    every draw.
    """

    proposals: ClassVar[frozenset[str]]
    branches: ClassVar[bool] = True  # False for the one that grows no more than a chain
    needs: ClassVar[str] = ""  # of a drafter's `offers`; "" where `log_q` is enough
    reads_costs: ClassVar[bool] = False  # whether it is also made with this machine's `costs`

    def __init__(self, depth: int, width: int, nodes: int, proposal: str, calibration: "Calibration | None" = None):
        """`proposal` is the one that the acceptance rule needs. Raises `ValueError` for a shape that it cannot grow or a calibration
        that it needs and the pair lacks."""

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        """A tree below the token `root`, which stands at `position`; at most `room` levels, as many as may still be emitted."""
        raise NotImplementedError

    def learn(self, tree: DraftTree, path: list[int]) -> None:
        """What became of the tree that was grown last: the accepted path. Most policies stay as they are."""


@dataclass(frozen=True)
class Verdict:
    """What a rule decided about a tree: `path` holds the accepted nodes from the root down, root excluded; `bonus` is the token that
    the target emits after them."""

    path: list[int]
    bonus: int

    def by_node(self, tree: DraftTree) -> list[str]:
        """One word a node: the root, accepted, rejected (its parent was reached and the target went elsewhere), or unreached."""
        reached = {0, *self.path}
        words = [ROOT]
        for node in range(1, len(tree)):
            words.append(ACCEPTED if node in reached else REJECTED if tree.parents[node] in reached else UNREACHED)
        return words


class Acceptance(Part):
    """Decides which path of a verified tree is kept.

    `proposal` says how the tree's tokens must have been picked for the rule to be what it promises: one of `PROPOSALS`, or "any".
    """

    proposal: ClassVar[str]
    guarantee: ClassVar[str]  # "tokens" (the very tokens of plain decoding), "law" (its distribution) or "lossy"

    def decide(self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling, position: int) -> Verdict:
        """`logits [N, V]` are the target's behind every node; `position` is the root's."""
        raise NotImplementedError


@dataclass(frozen=True)
class Outcome:
    """What a round found: the tree, the target's logits `[N, V]` behind its nodes, the verdict, and the seconds by phase."""

    tree: DraftTree
    logits: torch.Tensor
    verdict: Verdict
    seconds: dict[str, float]


class Rounds(Protocol):
    """A lane at work: one target forward a call, with what leads to it and what follows from it. Closing is dropping it."""

    @property
    def forwards(self) -> int:
        """Forwards of the draft so far."""

    def begin(self, prompt: list[int], last: int) -> float:
        """Read the prompt; no token will be drafted behind position `last`. Returns the seconds it took."""

    def next(self) -> Outcome:
        """Grow, verify, decide, commit: the next round."""


P = TypeVar("P", bound=Part)


class Registry(MutableMapping[str, type[P]]):
    """Parts of one kind by name, each in a file of its own that is imported when it is first asked for."""

    def __init__(self, kind: str, package: str, entries: Mapping[str, str]):
        """`entries` are names and where the class stands in the package, as "file.Class"."""
        self.kind, self.package = kind, package
        self.entries: dict[str, str | type[P]] = dict(entries)

    def __getitem__(self, name: str) -> type[P]:
        """Raises `KeyError` with a sentence that names what there is."""
        if name not in self.entries:
            raise KeyError(f"Unknown {self.kind} {name!r}. Available: {', '.join(self.entries)}.")
        entry = self.entries[name]
        if isinstance(entry, str):
            file, _, found = entry.partition(".")
            entry = self.entries[name] = getattr(import_module(f"{self.package}.{file}"), found)
        return entry

    def __setitem__(self, name: str, part: type[P]) -> None:
        self.entries[name] = part

    def __delitem__(self, name: str) -> None:
        del self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries
