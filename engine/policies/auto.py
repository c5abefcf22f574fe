"""Auto policy: the tree that pays on this machine for this text, decided anew every round. Ours.

What counts is tokens a second. At the running rate `r` (tokens a ms) a ms must win `r` tokens, so a draft level is asked for while its
expected tokens exceed r times its cost, and a node stays while its chance of acceptance exceeds r times what one more row adds to the
verification: the optimum of a ratio by its own value (Dinkelbach 1967). Chances come from the drafter's scores through a table of how
often such scores came true in this text; when drafting has not paid, rounds without a draft come first, and more of them every time.
"""

from dataclasses import dataclass, field

from engine.calibration import Calibration
from engine.costs import Costs
from engine.drafters import Drafter
from engine.policies.ranking import favourites
from engine.sampling import Sampling
from engine.tree import DraftTree

BINS = 10  # of scores, for each of favourite and others
TRUST = 6.0  # guesses that the first estimate of a bin counts for
FIRST_TAU = 3.0  # of the first two rounds' worth of running figures
CAUTION = 1.25  # a doubtful gain must be so many times its cost: the best size is a flat hill, and small trees are also right early on
FIRST_REACH = 3.0  # levels at first
BEYOND, SLOWLY = 2.5, 0.35  # levels tried beyond what came true, and how fast to follow that
FADE = 0.9  # weight of the past in running figures, a round
LONGEST_REST = 32  # rounds without a draft between two tries
UNMEASURED = Costs({1: 1.0}, 0.0, 0.0)


@dataclass
class Table:
    """How often children came true whose parents did, by the drafter's score for them and whether they were its favourite."""

    hits: dict[tuple[bool, int], float] = field(default_factory=dict)
    tries: dict[tuple[bool, int], float] = field(default_factory=dict)

    def chance(self, score: float, favourite: bool) -> float:
        key = (favourite, min(int(score * BINS), BINS - 1))
        return (self.hits.get(key, 0.0) + TRUST * score) / (self.tries.get(key, 0.0) + TRUST)

    def learn(self, score: float, favourite: bool, came_true: bool) -> None:
        key = (favourite, min(int(score * BINS), BINS - 1))
        self.hits[key] = self.hits.get(key, 0.0) + came_true
        self.tries[key] = self.tries.get(key, 0.0) + 1.0


class Auto:
    proposals = frozenset({"ranked"})
    reads_costs = True

    def __init__(
        self,
        depth: int,
        width: int,
        nodes: int,
        proposal: str,
        calibration: Calibration | None = None,
        costs: Costs = UNMEASURED,
    ):
        """Depth, width and nodes are limits. `costs` are this machine's, for the drafter at hand; unmeasured forwards count as free."""
        self.depth, self.width, self.nodes, self.costs = depth, width, nodes, costs
        self.plain = 1.0 / costs.verify_at(1)  # tokens a ms without a draft
        self.table, self.tokens, self.spent = Table(), 2 * FIRST_TAU, 2 * costs.round_ms(8, 4)
        self.pause = self.rest = 0
        self.reach = FIRST_REACH  # levels, by how far paths went lately: scores are too hopeful where a text is new
        self.levels = 0  # of the last tree that took a draft forward
        self.resting = False
        self.raw: dict[int, tuple[float, bool]] = {}  # by key, the drafter's score and whether the node came first

    @property
    def rate(self) -> float:
        """Tokens a ms of the rounds with a draft, lately."""
        return self.tokens / self.spent

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, frontier, costs = DraftTree.rooted(root), [0], self.costs
        self.levels, self.raw = 0, {}
        self.resting = self.rest > 0
        if self.resting:
            self.rest -= 1
            return tree
        rate = CAUTION * max(self.rate, self.plain)
        row_ms = (costs.verify_at(self.nodes) - costs.verify_at(1)) / (self.nodes - 1)
        for level in range(1, min(self.depth, room) + 1):
            if self.levels and level > round(self.reach):
                break
            free = level > self.levels + 1  # a copy or a table answered so far, and will do so below
            cost = row_ms + costs.level_ms * (not free)
            if level > 1 and sum(tree.score[node] for node in frontier) <= rate * cost:
                break
            before = drafter.forwards
            log_q = drafter.log_q(tree, frontier)
            if log_q is None:
                break
            self.levels, added = self.levels + (drafter.forwards > before), []
            for node, *row in zip(frontier, *favourites(log_q, position + level, self.width, sampling), strict=True):
                for rank, (token, score, q) in enumerate(zip(*row, strict=True)):
                    value = tree.score[node] * self.table.chance(score, rank == 0)
                    if value > rate * row_ms:
                        child = tree.add(node, token, value, q)
                        self.raw[child] = (score, rank == 0)
                        added.append(child)
            frontier = sorted(tree.best(self.width, added))
            if not frontier:
                break
        return self.pruned(tree, rate)

    def pruned(self, tree: DraftTree, rate: float) -> DraftTree:
        """The best nodes, as many as win more than they cost."""
        order = tree.best(self.nodes - 1)
        worth, best, most = 0.0, 0, -rate * self.costs.verify_at(1)
        for count, node in enumerate(order, 1):
            worth += tree.score[node]
            if (gain := worth - rate * self.costs.verify_at(count + 1)) > most:
                best, most = count, gain
        return tree.kept([0, *sorted(order[:best])])

    def learn(self, tree: DraftTree, path: list[int]) -> None:
        if self.resting:
            return
        reached = {0, *path}
        for node in range(1, len(tree)):
            if tree.parents[node] in reached:
                self.table.learn(*self.raw[tree.keys[node]], node in reached)
        if tree.depth and len(path) == max(tree.depth):
            self.reach = min(self.reach + 2, self.depth)
        else:
            self.reach = max(2.0, self.reach + SLOWLY * (len(path) + BEYOND - self.reach))
        emitted, spent = len(path) + 1, self.costs.round_ms(len(tree), self.levels)
        self.tokens = FADE * self.tokens + emitted
        self.spent = FADE * self.spent + spent
        if self.rate >= self.plain:
            self.pause = 0
        elif emitted / spent >= self.plain:
            self.pause //= 2
        else:
            self.pause = min(2 * self.pause or 1, LONGEST_REST)
        self.rest = self.pause
