"""Levels that are drafted before they are asked for: what is found among them, what is not, and which draws are foreseen."""

import numpy as np
import pytest
import torch

from engine.kernels.expansion import KINDS, chance
from engine.policies.sequoia import Sequoia
from engine.policies.shared.asking import Growth, Reach
from engine.policies.shared.ranking import foreseen_distinct, likely, shortlist, split
from engine.record.calibration import Calibration
from engine.sampling import Sampling
from helpers.enumeration import TableDrafter, Tables

SAMPLINGS = [Sampling(), Sampling(0.8, seed=3), Sampling(0.8, top_k=3, seed=3)]


class Deep(TableDrafter):
    """Drafts below rows that it answered, and notes what it was told of them."""

    def __init__(self, levels: int = 9):
        super().__init__(Tables(5, vocab=6), ())
        self.paths, self.left, self.told = [()], levels, []

    def behind(self, path: tuple[int, ...]) -> torch.Tensor:
        return self.tables.logits("q", path).log_softmax(-1).float()

    def deeper(self, tokens, above):
        self.left -= 1
        if self.left < 0:
            return None
        pairs = zip(above.tolist(), tokens.tolist(), strict=True)
        self.paths = [(*self.paths[parent], token) for parent, token in pairs]
        return torch.stack([self.behind(path) for path in self.paths])

    def drafted(self, tree, nodes, rows):
        self.told.append(rows)


def drafted(sampling: Sampling, reach: Reach, levels: int = 9) -> tuple[Deep, Growth]:
    """The drafter, and the growth of a tree of the root and its favourites."""
    drafter = Deep(levels)
    growth = Growth(drafter, 0, 0, sampling)
    answer = growth.ranked_ahead(drafter.behind(())[None], [0], 3, reach)
    for token, score, q in zip(*(each[0].tolist() for each in answer), strict=True):
        growth.tree.add(0, token, score, q)
    return drafter, growth


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_what_was_drafted_ahead_is_what_is_drafted_when_asked(sampling):
    drafter, growth = drafted(sampling, Reach(3, 2))
    tree = growth.tree
    first, second = sorted(tree.best(2))
    found = split(growth.answered([second, first]))
    for at, node in enumerate((second, first)):
        alone = shortlist(drafter.behind((tree.tokens[node],))[None], 2, 3, sampling)
        assert found[0][at].tolist() == alone[0][0].tolist()
        assert found[1][at] == pytest.approx(alone[1][0]) and found[2][at] == pytest.approx(alone[2][0])
    assert drafter.told == [[1, 0]]
    for at, node in enumerate((second, first)):
        for token, score, q in zip(*(each[at].tolist() for each in found), strict=True):
            tree.add(node, token, tree.score[node] * score, q)
    [likeliest] = tree.best(1, [node for node in range(len(tree)) if tree.depth[node] == 2])  # it was drafted behind
    below = split(growth.answered([likeliest]))
    path = tuple(tree.tokens[node] for node in tree.path(likeliest))
    assert below[0].tolist() == shortlist(drafter.behind(path)[None], 3, 3, sampling)[0].tolist()
    node = tree.add(likeliest, int(below[0][0, 0]), 0.1, 0.1)
    assert len(drafter.told) == 2 and growth.answered([node]) is None  # three levels were drafted


@pytest.mark.parametrize("unforeseen", ["not among the best", "no guess of the drafter's", "a level too deep"])
def test_a_node_that_was_not_foreseen_is_not_found_and_nothing_is_told_of_it(unforeseen):
    drafter, growth = drafted(Sampling(), Reach(3, 2), levels=0 if unforeseen == "a level too deep" else 9)
    tree = growth.tree
    worst = max(range(1, 4), key=lambda node: -tree.score[node])
    strange = next(token for token in range(6) if token not in tree.tokens[1:])
    node = worst if unforeseen == "not among the best" else tree.best(1)[0]
    if unforeseen == "no guess of the drafter's":
        node = tree.add(0, strange, 0.9, 0.9)
    assert growth.answered([tree.best(1)[0], node]) is None
    assert growth.ahead == [] and drafter.told == []


def test_no_more_is_drafted_than_can_be_asked_for():
    for levels in (1, 0, -2):  # what takes no forward may be asked for beyond a policy's reach
        drafter, _ = drafted(Sampling(), Reach(levels, 2))
        assert drafter.left == 9
    drafter, _ = drafted(Sampling(), Reach(99, 2))
    assert drafter.left == 9 - 3 and len(drafter.paths) == 2


def test_a_row_that_is_no_distribution_is_refused_on_a_deeper_level_too():
    class Broken(Deep):
        def deeper(self, tokens, above):
            return super().deeper(tokens, above) * torch.nan

    with pytest.raises(ValueError, match="a row with NaN"):
        Growth(Broken(), 0, 0, Sampling()).ranked_ahead(Deep().behind(())[None], [0], 3, Reach(2, 2))


def test_chances_on_a_device_are_those_of_the_host():
    counts = np.random.default_rng(0).integers(0, 9, (2, KINDS * 10)).astype(float)
    scores = torch.rand(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scores[0] = torch.tensor([1.0, 0.0, 0.3])
    expected = [[chance(counts, score, min(rank, 1))[0] for rank, score in enumerate(row)] for row in scores.tolist()]
    assert likely(scores, torch.from_numpy(counts)).numpy() == pytest.approx(np.array(expected), rel=1e-12)
    assert likely(scores, torch.zeros(2, 0)).equal(scores)


@pytest.mark.parametrize("sharpness", [0.5, 3.0, 9.0])
def test_foreseen_draws_are_the_draws(sharpness):
    sampling, generator = Sampling(0.8, seed=5), torch.Generator().manual_seed(2)
    for position in range(50):
        q = (sharpness * torch.randn(4, 12, generator=generator)).softmax(-1)
        drawn = [[token for token, _ in row] for row in sampling.distinct(q, 6, "draft", position, 1)]
        foreseen = foreseen_distinct(q, sampling.uniform(4, 6, "draft", position, 1)).tolist()
        assert [row[: len(each)] for row, each in zip(foreseen, drawn, strict=True)] == drawn
        assert max(map(len, drawn)) == 6


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_sequoia_foresees_its_whole_tree(temperature):
    """Drawn ahead or level by level: the same tree, and every level below the first is found."""

    class Counting(Deep):
        asked = 0

        def log_q(self, tree, nodes):
            self.asked, self.paths = (
                self.asked + 1,
                [tuple(tree.tokens[at] for at in tree.path(each)) for each in nodes],
            )
            return OnDevice(torch.stack([self.behind(path) for path in self.paths]))

    class OnDevice(torch.Tensor):
        is_cpu = False

    policy = Sequoia(4, 3, 14, "without replacement", Calibration(acceptance=[0.6, 0.2, 0.1]))
    for position in range(9):
        sampling = Sampling(temperature, seed=7)
        ahead, plain = Counting(), Deep()
        trees = [policy.grow(drafter, 0, position, sampling, 4) for drafter in (ahead, plain)]
        assert trees[0].tokens == trees[1].tokens and trees[0].parents == trees[1].parents
        assert trees[0].draws == trees[1].draws and ahead.asked == 1 and len(ahead.told) == max(trees[0].depth) - 1
