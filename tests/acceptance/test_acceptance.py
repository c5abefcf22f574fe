"""Rules on small trees by hand: which node passes, in which order, and what the bonus is drawn from."""

import pytest
import torch

from engine.acceptance.independent import LossyIndependentNodes
from engine.acceptance.k_seq import KSeq
from engine.acceptance.token_match import TokenMatch
from engine.acceptance.typical import LossyTypicalAcceptance
from engine.acceptance.with_replacement import MultiRoundWithReplacement
from engine.acceptance.without_replacement import MultiRoundWithoutReplacement
from engine.sampling import Sampling
from engine.tree import DraftTree


class Scripted(Sampling):
    """Answers `draw_acceptance` from a list and notes the probabilities asked for; `draw_index_by_weight` takes the heaviest and
    notes all weights.
    """

    def answer(self, *answers: bool) -> "Scripted":
        self.__dict__.update(answers=list(answers), asked=[], weights=None)
        return self

    def draw_acceptance(self, probability: float, *key) -> bool:
        self.asked.append(probability)
        return self.answers.pop(0)

    def draw_index_by_weight(self, weights: torch.Tensor, *key) -> int:
        self.__dict__["weights"] = [round(weight, 6) for weight in (weights / weights.sum()).tolist()]
        return int(weights.argmax())


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def two_draws(q: list[float], first: int, second: int) -> DraftTree:
    tree = DraftTree.from_root_token(0)
    tree.q_rows[0] = torch.tensor(q, dtype=torch.float64)
    for token in (first, second):
        tree.record_drawn_child(0, token, q[token])
    return tree


P = [0.2, 0.5, 0.3]


def test_draws_without_replacement_are_tried_against_what_is_left():
    """p - q = (-.4, .3, .1), so R = (0, .75, .25); D without token 0 is (0, .5, .5), so token 2 passes with .25 / .5."""
    sampling = Scripted(temperature=1.0).answer(False, True)
    tree = two_draws([0.6, 0.2, 0.2], 0, 2)
    verdict = MultiRoundWithoutReplacement().decide(tree, logits(P, P, [0.1, 0.1, 0.8]), sampling, 5)
    assert sampling.asked == pytest.approx([0.2 / 0.6, 0.5])
    assert (verdict.path, verdict.bonus) == ([2], 2) and sampling.weights == [0.1, 0.1, 0.8]


def test_after_the_last_rejection_the_bonus_comes_from_the_residual():
    sampling = Scripted(temperature=1.0).answer(False, False)
    verdict = MultiRoundWithoutReplacement().decide(two_draws([0.6, 0.2, 0.2], 0, 2), logits(P, P, P), sampling, 5)
    assert (verdict.path, verdict.bonus) == ([], 1) and sampling.weights == [0.0, 1.0, 0.0]


def test_draws_with_replacement_are_tried_against_the_same_q_and_duplicates_count():
    """After two rejections R = norm(max((0, .75, .25) - q, 0)), though both draws were one node."""
    sampling = Scripted(temperature=1.0).answer(False, False)
    tree = two_draws([0.6, 0.2, 0.2], 0, 0)
    MultiRoundWithReplacement().decide(tree, logits(P, P), sampling, 5)
    assert len(tree) == 2 and sampling.asked == pytest.approx([0.2 / 0.6, 0.0])
    assert sampling.weights == [0.0, round(0.55 / 0.6, 6), round(0.05 / 0.6, 6)]


@pytest.mark.parametrize("rule", [MultiRoundWithReplacement(), MultiRoundWithoutReplacement(), KSeq()])
def test_where_p_is_q_nothing_is_rejected_and_rounding_falls_back_to_p(rule):
    sampling = Scripted(temperature=1.0).answer(False, False)
    tree = two_draws(P, 0, 2)
    verdict = rule.decide(tree, logits(P, P, P), sampling, 5)
    assert sampling.asked[0] == pytest.approx(1, abs=1e-5)
    assert verdict.bonus in (0, 1, 2) and sum(sampling.weights) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("rule", [MultiRoundWithReplacement(), MultiRoundWithoutReplacement(), KSeq()])
def test_a_draft_that_shares_no_token_with_the_target_is_always_rejected(rule):
    tree = two_draws([0.0, 0.0, 1.0], 2, 2)
    verdict = rule.decide(tree, logits([0.5, 0.5, 0.0], P), Sampling(temperature=1.0), 5)
    assert verdict.path == [] and verdict.bonus in (0, 1)


def test_the_independent_rule_takes_the_longest_path_and_seed_000s_residual():
    tree = DraftTree.from_root_token(0)
    for parent, token, q in ((0, 0, 0.6), (0, 1, 0.2), (2, 2, 0.5)):
        tree.add(parent, token, q, q)
    tree.q_rows[0] = torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64)
    sampling = Scripted(temperature=1.0).answer(True, True, True)
    assert LossyIndependentNodes().decide(tree, logits(P, P, P, P), sampling, 5).path == [2, 3]
    assert sampling.asked == pytest.approx([0.2 / 0.6, 0.5 / 0.2, 0.3 / 0.5])
    sampling = Scripted(temperature=1.0).answer(False, False)
    assert LossyIndependentNodes().decide(tree, logits(P, P, P, P), sampling, 5).path == []
    assert sampling.weights == [0.0, 0.75, 0.25]


def test_typical_acceptance_takes_what_the_entropy_allows():
    """At p = (.93, .05, .02) the limit is .09, at twenty equal tokens .3 / 20; of equally long paths the likelier wins."""
    tree = DraftTree.from_root_token(0)
    peaked, flat = [0.93, 0.05, 0.02] + [0.0] * 17, [0.05] * 20
    tree.add(0, 1, 1, 1)
    assert LossyTypicalAcceptance().decide(tree, logits(peaked, flat), Sampling(temperature=1.0), 5).path == []
    assert LossyTypicalAcceptance().decide(tree, logits(flat, flat), Sampling(temperature=1.0), 5).path == [1]
    tree.add(0, 0, 1, 1)
    assert LossyTypicalAcceptance().decide(
        tree, logits([0.6, 0.4] + [0.0] * 18, flat, flat), Sampling(temperature=1.0), 5
    ).path == [2]
    assert LossyTypicalAcceptance().decide(tree, logits(peaked, flat, flat), Sampling(), 5).path == [2]


def test_token_match_follows_the_targets_own_draws():
    tree, sampling = DraftTree.from_root_token(0), Sampling(temperature=1.0, seed=2)
    row = torch.zeros(4)
    drawn = [sampling.draw_tokens_at_positions(row[None], [position])[0] for position in (6, 7, 8)]
    first = tree.add(0, drawn[0], 1, 1)
    tree.add(0, (drawn[0] + 1) % 4, 1, 1)
    second = tree.add(first, drawn[1], 1, 1)
    verdict = TokenMatch().decide(tree, row.expand(4, 4), sampling, 5)
    assert (verdict.path, verdict.bonus) == ([first, second], drawn[2])
