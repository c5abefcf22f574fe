"""The policy `auto`: its trees follow the costs and what came true."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from engine.acceptance.token_match import TokenMatch
from engine.contracts import SURE, Drafter
from engine.decode import decode
from engine.drafters import DRAFTERS
from engine.kernels.expansion import COPY, FAVOURITE, OTHER, calibrated_chance_and_cell
from engine.policies.auto import LONGEST_REST, CostAdaptiveTree
from engine.policies.shared.ranking import shortlist_by_shared_gumbel
from engine.record.calibration import SCORE_CELLS, ScoreHitCounts
from engine.record.costs import Costs
from engine.rounds.guiding import ConstraintGuidedDrafter
from engine.rounds.round import HostRoundRunner
from engine.sampling import Sampling
from engine.systems import resolve_system_name
from engine.target import Target
from engine.tree import DraftTree
from helpers.pairs import tiny_pair

V = 16
COSTS = Costs({1: 5.0, 2: 5.1, 8: 5.8, 16: 7.0, 32: 10.0}, first_ms=1.0, level_ms=0.5)


class Fixed(Drafter):
    """Says everywhere that token 1 has probability `sure`, token 2 half of the rest, and so on."""

    def __init__(self, sure: float):
        q, left = [0.0], 1.0
        for _ in range(1, V):
            q.append(left * sure)
            left *= 1 - sure
        self.row = torch.tensor(q).add_(1e-9).log()
        self.draft_forward_count = 0

    def log_q(self, tree, nodes):
        self.draft_forward_count += 1
        return self.row.expand(len(nodes), -1)


class Copying(Fixed):
    """Doubtful, and sees a run of `chance` behind the root."""

    def __init__(self, chance: float):
        super().__init__(0.1)
        self.chance = chance

    def draft_free_chain_and_token_chance(self, tree, node):
        return [7, 8, 9], self.chance


def policy(costs: Costs = COSTS, depth: int = 8, width: int = 4, nodes: int = 24) -> CostAdaptiveTree:
    return CostAdaptiveTree(depth, width, nodes, "ranked", costs=costs)


def rounds(auto: CostAdaptiveTree, drafter: Fixed, count: int, accepts: bool) -> tuple[list[int], float]:
    """Sizes of `count` trees whose favourites all come true, or none; and the ms that they took by the costs."""
    sizes, spent = [], 0.0
    for number in range(count):
        before = drafter.draft_forward_count
        tree = auto.grow(drafter, 0, number, Sampling(), 99)
        path = []
        while accepts and (child := tree.find_child_with_token(path[-1] if path else 0, 1)) is not None:
            path.append(child)
        auto.learn_from_accepted_path(tree, path)
        sizes.append(len(tree))
        spent += auto.costs.round_ms(len(tree), drafter.draft_forward_count - before)
    return sizes, spent


def test_a_sure_drafter_gets_a_deep_chain_and_a_doubtful_one_a_wide_tree():
    sure = policy()
    rounds(sure, Fixed(0.99), 5, accepts=True)
    deep = sure.grow(Fixed(0.99), 0, 0, Sampling(), 99)
    assert max(deep.depth) == 8 and len(deep) <= 12
    wide = policy().grow(Fixed(0.5), 0, 0, Sampling(), 99)
    assert max(wide.depth) < 8 and len(wide.children(0)) > len(deep.children(0))


def test_dear_rows_make_small_trees_and_dear_levels_shallow_ones():
    sizes = []
    for ms in (0.0, 0.3, 1.5):
        dear = replace(COSTS, verify_ms={1: 5.0, 33: 5.0 + 32 * ms})
        sizes.append(len(policy(dear).grow(Fixed(0.6), 0, 0, Sampling(), 99)))
    assert sizes[0] > sizes[1] > sizes[2]
    levels = []
    for ms in (0.01, 1.0, 3.0):
        drafter = Fixed(0.45)
        grown = policy(replace(COSTS, level_ms=ms))
        grown.reach = 8.0
        grown.grow(drafter, 0, 0, Sampling(), 99)
        levels.append(drafter.draft_forward_count)
    assert levels[0] > levels[1] > levels[2] >= 1


def test_caution_asks_more_of_a_guess_than_it_costs():
    """A node must win a quarter more tokens than its row's time is worth at the running rate."""
    auto = policy()
    rate, row = (
        max(auto.pace.tokens_per_ms, auto.plain),
        (COSTS.interpolate_verify_ms(24) - COSTS.interpolate_verify_ms(1)) / 23,
    )
    auto.grow(Fixed(0.6), 0, 0, Sampling(), 99)
    assert float(auto.expansion.terms["least"]) == pytest.approx(1.25 * rate * row)


def test_the_first_trees_are_shallow_and_later_ones_follow_the_paths():
    auto = policy(replace(COSTS, level_ms=0.01))
    assert max(auto.grow(Fixed(0.9), 0, 0, Sampling(), 99).depth) == 5
    rounds(auto, Fixed(0.9), 5, accepts=True)
    assert max(auto.grow(Fixed(0.9), 0, 0, Sampling(), 99).depth) == 8
    rounds(auto, Fixed(0.9), 3, accepts=False)
    assert auto.reach < 6


@pytest.mark.parametrize(("chance", "room", "tokens"), [(SURE, 99, [7, 8, 9]), (SURE, 2, [7, 8]), (0.9, 99, [])])
def test_while_it_rests_a_tree_holds_what_cannot_be_wrong(chance, room, tokens):
    auto, drafter = policy(), Copying(chance)
    auto.rest = 1
    tree = auto.grow(drafter, 0, 0, Sampling(), room)
    assert tree.tokens[1:] == tokens and tree.parents[1:] == list(range(len(tokens)))
    assert drafter.draft_forward_count == 0 and auto.rest == 0


def test_limits_and_ancestors_hold_when_everything_is_free():
    for shape in ((1, 4, 24), (3, 2, 6), (8, 4, 24)):
        tree = CostAdaptiveTree(*shape, "ranked").grow(Fixed(0.4), 0, 0, Sampling(), 99)
        assert max(tree.depth) <= shape[0] and 1 < len(tree) <= shape[2]
        assert all(parent < node for node, parent in enumerate(tree.parents))
        assert max(len(tree.children(node)) for node in range(len(tree))) <= shape[1]
    assert max(CostAdaptiveTree(8, 4, 24, "ranked").grow(Fixed(0.9), 0, 0, Sampling(), 2).depth) == 2


def test_a_drafter_that_is_always_wrong_costs_less_than_five_percent():
    drafter = Fixed(0.9)
    sizes, spent = rounds(policy(), drafter, 128, accepts=False)
    assert spent < 1.05 * 128 * COSTS.interpolate_verify_ms(1)
    assert sizes.count(1) > 100 and drafter.draft_forward_count < 60


def test_it_comes_back_when_guesses_come_true_again():
    auto, drafter = policy(), Fixed(0.9)
    rounds(auto, drafter, 200, accepts=False)
    sizes, _ = rounds(auto, drafter, 4 * LONGEST_REST, accepts=True)
    assert all(size > 3 for size in sizes[-20:])


def test_chances_follow_what_came_true():
    auto, drafter = policy(), Fixed(0.45)
    [[score, other, *_]] = shortlist_by_shared_gumbel(drafter.row[None], 0, 4, Sampling())[1]
    assert calibrated_chance_and_cell(auto.chances, score, FAVOURITE)[0] == pytest.approx(score)
    rounds(auto, drafter, 10, accepts=True)
    assert calibrated_chance_and_cell(auto.chances, score, FAVOURITE)[0] > 0.9
    assert calibrated_chance_and_cell(auto.chances, other, OTHER)[0] < other  # the others never did
    rounds(auto, drafter, 60, accepts=False)
    assert calibrated_chance_and_cell(auto.chances, score, FAVOURITE)[0] < 0.9


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_it_begins_with_what_a_calibration_counted_at_the_temperature_at_hand(temperature):
    """As many guesses as a calibration counts for at most, whether it counted more or less; the text's own counts go on from there."""
    right, wrong = (
        ScoreHitCounts([400] * SCORE_CELLS, [400] * SCORE_CELLS),
        ScoreHitCounts([0] * SCORE_CELLS, [4] * SCORE_CELLS),
    )
    auto, drafter = policy(), Fixed(0.45)
    drafter.score_hits = (wrong, right) if temperature else (right, wrong)
    auto.grow(drafter, 0, 0, Sampling(temperature), 99)
    assert (auto.chances[:, :SCORE_CELLS] == 20).all() and not auto.chances[:, SCORE_CELLS:].any()
    drafter.score_hits = drafter.score_hits[::-1]
    auto.grow(drafter, 0, 1, Sampling(temperature), 99)
    assert (auto.chances[:, :SCORE_CELLS] == 20).all()  # it begins once
    unlike = policy()
    assert len(unlike.grow(drafter, 0, 0, Sampling(temperature), 99)) < len(
        auto.grow(drafter, 0, 2, Sampling(temperature), 99)
    )
    assert (
        unlike.chances[:, :SCORE_CELLS] == [[0], [4]]
    ).all()  # counted less often than that, it counts as often as it was counted


def test_the_drafter_of_a_lane_brings_the_counts_of_its_pair():
    counts = tuple(ScoreHitCounts([n] * SCORE_CELLS, [5] * SCORE_CELLS) for n in (1, 2))
    pair = tiny_pair()
    pair = replace(pair, calibration=replace(pair.calibration, score_hits={"eagle": counts}))
    for name, expected in (("auto", counts), ("eagle", counts), ("tree", None)):
        drafter = resolve_system_name(name).build_parts(pair, 200, 3, 2, 6)[0]
        assert drafter.score_hits == expected
        assert ConstraintGuidedDrafter(drafter, SimpleNamespace(draft_masking="masked")).score_hits == expected


def test_what_became_of_copies_is_counted_apart_from_guesses():
    """Guesses come true and copies never do: guesses are trusted all the same. Else trees would be as small as copies are bad."""

    class Copying(Fixed):
        def draft_free_chain_and_token_chance(self, tree, node):
            return [3] * 5, 0.6

    auto, drafter = policy(depth=12), Copying(0.9)
    rounds(auto, drafter, 40, accepts=True)
    [[score, *_]] = shortlist_by_shared_gumbel(drafter.row[None], 0, 4, Sampling())[1]
    assert (
        calibrated_chance_and_cell(auto.chances, 0.6, COPY)[0] < 0.3
        and calibrated_chance_and_cell(auto.chances, score, FAVOURITE)[0] > 0.9
    )


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("same", [False, True])
def test_auto_writes_plain_decodings_tokens(temperature, same):
    pair = tiny_pair(same=same)

    def written(drafter: str, grower) -> list[int]:
        guesser = DRAFTERS[drafter](pair, 560)
        target = Target(pair.target, 560, guesser.reads_features)
        rounds = HostRoundRunner(target, guesser, grower, TokenMatch(), Sampling(temperature=temperature, seed=4))
        found = decode(rounds, [5, 9, 3], 60, frozenset(), 160)
        return [token for each in found for token in each.burst]

    plain = written("none", resolve_system_name("vanilla").build_parts(pair, 560, 1, 1, 2)[1])
    for drafter in ("model", "eagle", "lookup"):
        assert written(drafter, policy()) == plain


def test_of_a_tree_the_best_nodes_stay_as_many_as_win_the_most_beyond_their_cost():
    """Of all sizes, tried one by one. A step in the costs makes another size best than a straight line would."""
    steps = Costs({1: 5.0, 2: 5.0, 3: 5.0, 4: 5.1, 5: 8.0, 6: 8.0, 7: 8.1, 24: 20.0}, first_ms=1.0, level_ms=0.5)
    for rate in (0.02, 0.1, 0.3, 1.0, 3.0):
        for scores in ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], [0.4, 0.1, 0.1], [0.9, 0.5, 0.5, 0.45, 0.45, 0.1, 0.05], [0.01]):
            auto, tree = policy(steps), DraftTree.from_root_token(0)
            for token, score in enumerate(scores, 1):
                tree.add(0, token, score, score)
            auto.grown = 0  # as behind copies: the order is the tree's own
            values = [
                sum(scores[:count]) - rate * steps.interpolate_verify_ms(count + 1) for count in range(len(scores) + 1)
            ]
            found = auto.prune_to_best_paying_nodes(tree, rate)
            assert len(found) - 1 == values.index(max(values))
            assert found.score[1:] == scores[: len(found) - 1]
