"""Auto policy: the tree that pays on this machine for this text, decided anew every round. Ours.

What counts is tokens a second. At the running rate `r` (tokens a ms) a ms must win `r` tokens, so a draft level is asked for while its
expected tokens exceed r times its cost, and a node stays while its chance of acceptance exceeds r times what one more row adds to the
verification: the optimum of a ratio by its own value (Dinkelbach 1967). Chances come from the drafter's scores through a table of how
often such scores came true in this text; when drafting has not paid, rounds without a draft come first, and more of them every time.
What a drafter can copy from the text for nothing goes on where drafting stops, and stands in for it where that promises more a ms.
"""

from dataclasses import dataclass

from engine.calibration import Calibration
from engine.costs import Costs
from engine.drafters import Drafter
from engine.policies.ranking import favourites
from engine.sampling import Sampling
from engine.tree import DraftTree

BINS = 10  # of scores, for each kind of guess
FAVOURITE, OTHER, COPY, KINDS = 0, 1, 2, 3  # a drafter's first guess, its others, and what was copied
TRUST = 6.0  # guesses that the first estimate of a bin counts for
FIRST_TAU = 3.0  # of the first two rounds' worth of running figures
CAUTION = 1.25  # a doubtful gain must be so many times its cost: the best size is a flat hill, and small trees are also right early on
FIRST_REACH = 3.0  # levels at first
BEYOND, SLOWLY = 2.5, 0.35  # levels tried beyond what came true, and how fast to follow that
FADE = 0.9  # weight of the past in running figures, a round
LONGEST_REST = 32  # rounds without a draft between two tries
UNMEASURED = Costs({1: 1.0}, 0.0, 0.0)


class Table:
    """How often children came true whose parents did, by the drafter's score for them and their kind."""

    def __init__(self):
        self.hits, self.tries = [0.0] * BINS * KINDS, [0.0] * BINS * KINDS

    def chance(self, score: float, kind: int) -> float:
        cell = kind * BINS + min(int(score * BINS), BINS - 1)
        return (self.hits[cell] + TRUST * score) / (self.tries[cell] + TRUST)

    def learn(self, score: float, kind: int, came_true: bool) -> None:
        cell = kind * BINS + min(int(score * BINS), BINS - 1)
        self.hits[cell] += came_true
        self.tries[cell] += 1.0


@dataclass
class Pace:
    """Tokens won and ms spent, lately."""

    tokens: float
    spent: float

    @property
    def rate(self) -> float:
        return self.tokens / self.spent

    def learn(self, tokens: int, ms: float) -> None:
        self.tokens, self.spent = FADE * self.tokens + tokens, FADE * self.spent + ms


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
        self.verify_ms = [costs.verify_at(rows) for rows in range(nodes + depth + 2)]
        self.plain = 1.0 / self.verify_ms[1]  # tokens a ms without a draft
        first = (2 * FIRST_TAU, 2 * costs.round_ms(8, 4))
        self.table = Table()
        self.pace, self.drafted = Pace(*first), Pace(*first)  # of all rounds; of those with a draft forward
        self.pause = self.rest = 0
        self.reach = FIRST_REACH  # levels, by how far paths went lately: scores are too hopeful where a text is new
        self.levels = 0  # of the last tree that took a draft forward
        self.resting = False
        self.raw: dict[int, tuple[float, int]] = {}  # by key, the drafter's score and the kind of guess

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, frontier, costs = DraftTree.rooted(root), [0], self.costs
        self.levels, self.raw = 0, {}
        self.resting = self.rest > 0
        if self.resting:
            self.rest -= 1
            return tree
        rate = CAUTION * max(self.pace.rate, self.plain)
        row_ms = (self.verify_ms[self.nodes] - self.verify_ms[1]) / (self.nodes - 1)
        room = min(self.depth, room)
        levels = 0 if self.copying_pays(drafter, tree, room) else room
        for level in range(1, levels + 1):
            if self.levels and level > round(self.reach):
                break
            free = level > self.levels + 1  # a table answered so far, and will do so below
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
                    kind = OTHER if rank else FAVOURITE
                    value = tree.score[node] * self.table.chance(score, kind)
                    if value > rate * row_ms:
                        child = tree.add(node, token, value, q)
                        self.raw[child] = (score, kind)
                        added.append(child)
            if not added:
                break
            frontier = sorted(tree.best(self.width, added))
        self.copy_on(drafter, tree, tree.best(1, frontier)[0], room, rate * row_ms)
        return self.pruned(tree, rate)

    def copying_pays(self, drafter: Drafter, tree: DraftTree, room: int) -> bool:
        """Whether what can be copied behind the root promises more tokens a ms than rounds with draft forwards won."""
        chain, chance = copies(drafter, tree, 0)
        promised = sum(chance**place for place in range(min(len(chain), room) + 1))
        return bool(chain) and promised / self.verify_ms[min(len(chain), room) + 1] >= self.drafted.rate

    def copy_on(self, drafter: Drafter, tree: DraftTree, node: int, room: int, least: float) -> None:
        """Add what can be copied behind the node, as far as it is worth `least`."""
        chain, score = copies(drafter, tree, node)
        for token in chain[: room - tree.depth[node]]:
            value = tree.score[node] * self.table.chance(score, COPY)
            if value <= least:
                break
            node = tree.add(node, token, value, score)
            self.raw[node] = (score, COPY)

    def pruned(self, tree: DraftTree, rate: float) -> DraftTree:
        """The best nodes, as many as win more than they cost."""
        order = tree.best(self.nodes - 1)
        worth, best, most = 0.0, 0, -rate * self.verify_ms[1]
        for count, node in enumerate(order, 1):
            worth += tree.score[node]
            if (gain := worth - rate * self.verify_ms[count + 1]) > most:
                best, most = count, gain
        return tree.kept([0, *sorted(order[:best])])

    def learn(self, tree: DraftTree, path: list[int]) -> None:
        if self.resting:
            return
        reached = {0, *path}
        for node in range(1, len(tree)):
            if tree.parents[node] in reached:
                self.table.learn(*self.raw[tree.keys[node]], node in reached)
        if self.levels and len(path) >= min(self.levels, max(tree.depth)):
            self.reach = min(self.reach + 2, self.depth)
        elif self.levels:
            self.reach = max(2.0, self.reach + SLOWLY * (len(path) + BEYOND - self.reach))
        emitted, spent = len(path) + 1, self.verify_ms[len(tree)] + self.costs.draft_ms(self.levels)
        self.pace.learn(emitted, spent)
        if self.levels:
            self.drafted.learn(emitted, spent)
        if self.pace.rate >= self.plain:
            self.pause = 0
        elif emitted / spent >= self.plain:
            self.pause //= 2
        else:
            self.pause = min(2 * self.pause or 1, LONGEST_REST)
        self.rest = self.pause


def copies(drafter: Drafter, tree: DraftTree, node: int) -> tuple[list[int], float]:
    """What the drafter can copy behind the node, and each token's chance; nothing for drafters that cannot."""
    return drafter.copies(tree, node) if hasattr(drafter, "copies") else ([], 0.0)
