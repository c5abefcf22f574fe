"""Contracts: what a drafter, a policy, an acceptance rule and a lane's rounds must answer and declare. Imports no part."""

from collections import Counter, UserDict
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import torch

from engine.models.advice import CONSTRAINT, DRAFT, TABLE, explain_how_to_obtain
from engine.record.calibration import Calibration, ScoreHitCounts
from engine.record.costs import Costs
from engine.record.parsing import format_value_for_error
from engine.record.trace import ACCEPTED, REJECTED, ROOT, UNREACHED
from engine.sampling import Sampling
from engine.tree import DraftTree

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.forward.cache import KVCache
    from engine.kernels.expansion import TreeExpansion
    from engine.models.pairs import LoadedPair

SURE = 0.999  # from this chance on a guess counts as one that cannot be wrong; a token that a constraint forces has it
Features = Any  # hidden states of the target: a tensor `[N, layers, H]`, None for a drafter that reads none
UNKNOWN = Calibration()  # of a pair that was not measured
FREE = Costs({1: 1.0}, 0.0, 0.0)  # where nothing was measured, drafts and further rows count as free
# The ways in which a policy can pick tokens, in words that follow "needs" and "offers".
PROPOSAL_MODES = {
    "ranked": "the drafter's favourites",
    "top": "the most probable tokens of q, with q kept",
    "one draw": "one token drawn from q behind every node",
    "with replacement": "tokens drawn from q independently of each other",
    "whole chains": "several chains, each drawn from q independently of the others",
    "without replacement": "tokens drawn from q one after another, none twice",
}
INSTEAD = (
    "Any target can race “draft tree, sizes itself” (auto), “prompt lookup” (lookup) and “token recycling” (recycling)."
)
RANK_HEAD, OWN_TREE = "rank head", "tree of its own"  # what a drafter may offer beside `log_q` and a policy may need

# Where guesses come from: the groups of the menus, in their order
NO_GUESSES, SMALL_MODEL, LAYERS, COPIES, OTHER = GUESS_ORIGINS = (
    "no guesses",
    "a small model guesses",
    "layers on the target's own thoughts",
    "copies and tables: nothing to train",
    "other ways of guessing",
)

# Depths and budgets of nodes to try: few rows cost little on some machines, and many on others
BUDGETS = ((1, 3), (2, 4), (3, 6), (4, 8), (6, 8), (6, 12), (8, 12), (8, 24))


@dataclass(frozen=True)
class MissingRequirement:
    """What a part needs and a pair has not. `needs` is words behind "needs"; `refusal` says in sentences what works instead."""

    needs: str
    refusal: str


class SystemPart:
    """What every part says about itself."""

    title: str  # a few words that go before "drafter", "policy" or "rule"
    about: ClassVar[str]  # one sentence for a visitor
    source: ClassVar[str]  # who it comes from: a paper, or "ours"

    @classmethod
    def find_missing_requirement(cls, pair: "LoadedPair") -> MissingRequirement | None:
        """What the pair lacks for it, None for nothing. Nothing is loaded for the answer."""
        return None


class Drafter(SystemPart):
    """Guesses what may follow the nodes of a tree. Made as `Drafter(pair, capacity)`, one for each lane.

    Calls come in rounds: `log_q` for the root, then for deeper nodes whose ancestors were asked about before, then one `commit`.
    """

    # Which of the target's hidden states it reads, as `engine.forward.session.Session` takes them. False: none, and it gets None.
    # True: three layers and the final state, [N, 4, H]. A tuple of n layers: these and the final state, [N, n + 1, H].
    reads_features: bool | tuple[int, ...] = False
    guess_origin: str = OTHER  # where its guesses come from, one of `GUESS_ORIGINS`; `NO_GUESSES` where it makes none
    # What it guesses with: a name of `engine.models.advice`, or a net of the pair by its own
    required_resource: ClassVar[str] = ""
    capabilities: frozenset[str] = frozenset()  # what it answers beside `log_q`
    draft_forward_count: int = 0  # its own forwards so far
    # `engine.policies.shared.growing.grow_level_by_level` in one compiled call, on the terms of the `TreeExpansion`.
    # None where there is none
    compiled_tree_grower: "Callable[[TreeExpansion], None] | None" = None
    no_guess_reason: str = ""  # why it may have no guess, a sentence
    vocab: int  # the target's
    stop_ids: frozenset[int] = frozenset()  # tokens that end a text: policies grow nothing below them
    # How often its guesses with such a score came true on this pair, greedy and sampled; None where nobody counted
    score_hits: tuple[ScoreHitCounts, ScoreHitCounts] | None = None

    def __init__(self, pair: "LoadedPair", capacity: int):
        """`capacity` is in rows of a cache. Raises `ValueError` when the pair lacks what the drafter needs."""
        if lack := self.find_missing_requirement(pair):
            raise ValueError(lack.refusal)
        self.vocab = pair.target.vocab

    @classmethod
    def find_missing_requirement(cls, pair: "LoadedPair") -> MissingRequirement | None:
        if cls.required_resource in ("", CONSTRAINT) or pair.has(cls.required_resource):
            return None
        words = cls.required_resource if cls.required_resource in (DRAFT, TABLE) else f"trained {cls.title} drafter"
        return MissingRequirement(
            f"a {words}",
            f"The pair {pair.title} has no {words}. {explain_how_to_obtain(cls.required_resource, pair.pair)} {INSTEAD}",
        )

    @classmethod
    def inner_drafter_candidates(cls, pair: "LoadedPair") -> list[str]:
        """Names of the drafters of which one is chosen for this pair: the one with the best promised speed-up here, else the first.

        Empty for a drafter that is itself. Where there are some, it is made as `Drafter(pair, capacity, drafter_name)`.
        """
        return []

    def bind_target_cache(self, cache: "KVCache") -> None:
        """Take in the cache of the target's session, once and before `begin`. Its committed rows may be read, and are never changed."""

    def begin(self, prompt: list[int], features: Features = None) -> None:
        """Take in the context, whose last token is the first root. `features [len(prompt) - 1, 4, H]` are of the tokens before it."""

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """Log-probabilities `[len(nodes), V]`, float32 and at temperature 1, of the token after each node; None for no guess.

        Minus infinity rules a token out. `engine.policies.shared.asking` refuses NaN, and a row that rules out all tokens. A drafter
        with forwards answers None by depth alone.
        """
        raise NotImplementedError

    def observe_target_logits(self, tree: DraftTree, logits: torch.Tensor, path: list[int]) -> None:
        """Take in the target's `logits [N, V]` behind every node, rejected ones too. Called before `commit`."""

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        """Take in the accepted nodes and the token after them, which is the next root. `features [N, 4, H]` are the tree's nodes'."""

    def draft_free_chain_and_token_chance(self, tree: DraftTree, node: int) -> tuple[list[int], float]:
        """Tokens that may follow the node and cost no forward, and the probability of each once those before it are accepted."""
        return [], 0.0


class Policy(SystemPart):
    """Grows a draft tree."""

    # The ways of `PROPOSAL_MODES` in which it picks tokens. All but "ranked" leave q in the tree; those that draw leave every draw
    supported_proposal_modes: ClassVar[frozenset[str]] = frozenset({"ranked"})
    can_branch: ClassVar[bool] = True  # False for the policy that grows only chains
    required_capability: ClassVar[str] = ""  # one of a drafter's `capabilities`; "" where `log_q` is enough
    # Why the tree that was grown last holds no guess though the drafter may have had one, a sentence
    no_guess_reason: str = ""
    reads_costs: ClassVar[bool] = False  # whether it sizes trees by this machine's `costs`
    # Why it leaves nodes of its budget unused, as a sentence's end; "" where it never does
    unused_budget_reason: ClassVar[str] = ""
    # True for the one policy that stands in where all nodes are to be used
    is_budget_filling_substitute: ClassVar[bool] = False

    def __init__(
        self,
        depth: int,
        width: int,
        nodes: int,
        proposal_mode: str,
        calibration: Calibration = UNKNOWN,
        costs: Costs = FREE,
    ):
        """`proposal_mode` is the one that the acceptance rule needs. `costs` are this machine's, for the drafter at hand.

        Raises `ValueError` for a shape that it cannot grow, and without a calibration where it needs one.
        """
        self.depth, self.width, self.nodes, self.proposal_mode = depth, width, nodes, proposal_mode
        self.calibration, self.costs = calibration, costs
        self.validate_and_precompute()

    def validate_and_precompute(self) -> None:
        """Compute once what is the same in every round, such as a fixed tree shape. Called when the policy is made."""

    def explain_unused_nodes(self, tree: DraftTree, max_levels: int, stop_ids: frozenset[int]) -> str:
        """Why a tree with guesses has fewer nodes than the budget, a sentence; "" where it has all that depth, width and text allow.

        `max_levels` is how many guesses in a row the text has room for. Nothing follows a token of `stop_ids`.
        """
        used, deepest, children = len(tree), min(self.depth, max_levels), Counter(tree.parents)
        if not self.unused_budget_reason or not 1 < used < self.nodes:
            return ""
        grows = (
            level < deepest and children[node] < self.width and (not node or token not in stop_ids)
            for node, (token, level) in enumerate(zip(tree.tokens, tree.depth, strict=True))
        )
        return f"{used} of {self.nodes} nodes used: {self.unused_budget_reason}." if any(grows) else ""

    @classmethod
    def list_candidate_shapes(cls, paper_width: int) -> list[tuple[int, int, int]]:
        """Depth, width and nodes of trees that are worth a try beside the paper's, small ones first. `paper_width` is the paper's."""
        return [(depth, min(paper_width, nodes - 1), nodes) for depth, nodes in BUDGETS]

    def grow(
        self, drafter: Drafter, root_token: int, root_position: int, sampling: Sampling, max_levels: int
    ) -> DraftTree:
        """A tree of at most `max_levels` levels below the token `root_token`, which is at `root_position`. Deeper ones could not be
        emitted.
        """
        raise NotImplementedError

    def learn_from_accepted_path(self, tree: DraftTree, path: list[int]) -> None:
        """Take in the accepted path of the tree that was grown last. Most policies learn nothing from it."""


@dataclass(frozen=True)
class Verdict:
    """What a rule decided: the accepted nodes from the root down, without the root, and the token that the target emits after them."""

    path: list[int]
    bonus: int

    def label_nodes(self, tree: DraftTree) -> list[str]:
        """One label for each node: root, accepted, rejected or unreached. A node is rejected when its parent was reached and it was not
        accepted.
        """
        reached = {0, *self.path}
        words = [ROOT]
        for node in range(1, len(tree)):
            words.append(ACCEPTED if node in reached else REJECTED if tree.parents[node] in reached else UNREACHED)
        return words


class Acceptance(SystemPart):
    """Decides which path of a verified tree is kept."""

    # How tokens must be picked for the guarantee to hold: one of `PROPOSAL_MODES`, or "any"
    required_proposal_mode: ClassVar[str]
    guarantee: ClassVar[str]  # "tokens" (the very tokens of plain decoding), "law" (its distribution) or "lossy"

    def decide(self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling, root_position: int) -> Verdict:
        """`logits [N, V]` are the target's behind every node; `root_position` is the root's."""
        raise NotImplementedError


@dataclass(frozen=True)
class RoundOutcome:
    """The result of one round. `logits [N, V]` are the target's behind the tree's nodes. `replayed` counts tokens that were computed
    again to commit.
    """

    tree: DraftTree
    logits: torch.Tensor
    verdict: Verdict
    seconds: dict[str, float]
    replayed: int = 0
    no_guess_reason: str = ""  # why the tree holds no guess, a sentence
    unused_nodes_reason: str = ""  # why it holds fewer nodes than it may, a sentence


class RoundRunner(Protocol):
    """One lane's rounds. A round drafts, verifies with one target forward, accepts and commits. Dropping it frees its caches."""

    @property
    def draft_forward_count(self) -> int:
        """Forwards of the draft so far."""

    def prefill_and_return_seconds(self, prompt: list[int], last_position: int) -> float:
        """Read the prompt. No token will be drafted behind position `last_position`. Returns the seconds that it took."""

    def run_round(self) -> RoundOutcome:
        """Grow, verify, decide, commit: the next round."""


P = TypeVar("P", bound=SystemPart)


class LazyPartRegistry(UserDict[str, type[P]]):
    """Parts of one kind by name. Each stands in a file of its own, which is imported when the part is first asked for."""

    def __init__(self, part_kind: str, package: str, class_path_by_name: dict[str, Any]):
        """`class_path_by_name` maps a name to its class in the package, as "file.Class"."""
        self.kind, self.package, self.data = part_kind, package, class_path_by_name

    def __getitem__(self, name: str) -> type[P]:
        """Raises `KeyError` for an unknown name, with a sentence that lists the known ones."""
        if name not in self.data:
            raise KeyError(f"Unknown {self.kind} {format_value_for_error(name)}. Available: {', '.join(self.data)}.")
        entry: Any = self.data[name]
        if isinstance(entry, str):
            file, _, found = entry.partition(".")
            entry = self.data[name] = getattr(import_module(f"{self.package}.{file}"), found)
        return entry
