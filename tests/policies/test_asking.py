"""Asking: whatever a drafter answers wrongly, with any policy, ends in one sentence that names it and says what is right."""

import pytest
import torch

from engine.acceptance.token_match import TokenMatch
from engine.contracts import OWN_TREE, RANK_HEAD, Drafter
from engine.policies import POLICIES
from engine.policies.shared.asking import GrowingTree
from engine.record.calibration import Calibration
from engine.rounds.round import HostRoundRunner
from engine.sampling import Sampling
from engine.target import Target
from engine.tree import DraftTree
from helpers.pairs import tiny_pair

VOCAB = 256
RANKS = Calibration(ranks={"medusa": [[0.5, 0.2, 0.1]] * 3})
EVERY_WAY = [
    (name, proposal)
    for name, policy in POLICIES.items()
    if policy.required_capability != OWN_TREE
    for proposal in sorted(policy.supported_proposal_modes)
]


class Odd(Drafter):
    """Answers rightly `right` times, then with what `wrong` makes of a right answer."""

    title, capabilities, depth = "odd", frozenset({RANK_HEAD}), 4

    def __init__(self, wrong, right: int = 0, vocab: int = VOCAB, bucket: object = 1):
        self.wrong, self.right, self.bucket = wrong, right, bucket
        self.answer = (3 * torch.randn(vocab, generator=torch.Generator().manual_seed(1))).log_softmax(-1)

    def begin(self, prompt, features=None):
        pass

    def log_q(self, tree, nodes):
        rows = self.answer.repeat(len(nodes), 1)
        self.right -= 1
        return rows if self.right >= 0 else self.wrong(rows)

    def predict_rank_buckets(self, tree, nodes):
        return [self.bucket]

    def draft_blocks_from_nodes(self, tree, nodes):
        pass

    def commit(self, tree, path, bonus, features=None):
        pass


def put(value: float, where):
    def change(rows: torch.Tensor) -> torch.Tensor:
        rows[where] = value
        return rows

    return change


WRONG = {
    "a row too many": (lambda rows: torch.cat([rows, rows[:1]]), r"answered float32 \[\d, 256\]"),
    "no rows": (lambda rows: rows[:0], r"answered float32 \[0, 256\]"),
    "no tokens": (lambda rows: rows[:, :0], r"answered float32 \[\d, 0\]"),
    "one dimension": (lambda rows: rows[0], r"answered float32 \[256\]"),
    "three dimensions": (lambda rows: rows[None], r"answered float32 \[1, \d, 256\]"),
    "whole numbers": (lambda rows: rows.long(), r"answered int64 \[\d, 256\]"),
    "a list": (lambda rows: rows.tolist(), "answered a list"),
    "an array": (lambda rows: rows.numpy(), "answered a ndarray"),
    "one NaN": (put(torch.nan, (0, 9)), "answered a row with NaN"),
    "NaN in the last row": (put(torch.nan, (-1, -1)), "answered a row with NaN"),
    "plus infinity": (put(torch.inf, (0, 3)), "answered a row with NaN, with plus infinity"),
    "minus infinity everywhere": (put(-torch.inf, 0), "answered a row with .* minus infinity for every token"),
}


def grown(drafter: Drafter, name: str, proposal: str, temperature: float = 0.8) -> DraftTree:
    policy = POLICIES[name](3, 2, 8, proposal, RANKS)
    return policy.grow(drafter, 7, 5, Sampling(temperature=temperature), 3)


@pytest.mark.parametrize("right", [0, 1])
@pytest.mark.parametrize(("name", "proposal"), EVERY_WAY)
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_answer_ends_in_a_sentence_that_names_the_drafter(kind, name, proposal, right):
    """Whether the first answer is wrong or a later one."""
    wrong, words = WRONG[kind]
    with pytest.raises(ValueError, match=rf"The odd drafter {words}.*Its `log_q` must return float32 .*\[\d, V\]"):
        grown(Odd(wrong, right), name, proposal)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("name", "proposal"), EVERY_WAY)
def test_no_guess_ends_the_tree_where_it_is_met(name, proposal, temperature):
    assert len(grown(Odd(lambda rows: None), name, proposal, temperature)) == 1
    assert 1 < len(grown(Odd(lambda rows: None, 1), name, proposal, temperature)) <= 8


@pytest.mark.parametrize(("name", "proposal"), EVERY_WAY)
def test_minus_infinity_for_some_tokens_rules_them_out(name, proposal):
    for dtype in (torch.float32, torch.float64):
        tree = grown(Odd(lambda rows: put(-torch.inf, (slice(None), slice(5, None)))(rows).to(dtype)), name, proposal)  # noqa: B023
        assert len(tree) > 1 and max(tree.tokens[1:]) < 5


@pytest.mark.parametrize("bucket", [4, -1, 1.5, None])
def test_a_bucket_that_does_not_exist_is_refused(bucket):
    with pytest.raises(ValueError, match=r"The odd drafter answered \[.*whole number from 0 to 3"):
        grown(Odd(None, 99, bucket=bucket), "rank_guided", "ranked")


@pytest.mark.parametrize(
    ("name", "proposal", "vocab", "answered"),
    [
        ("best_first", "ranked", 900, r"token \d{3}"),
        ("chain", "one draw", 900, "log-probabilities of 900 tokens"),
        ("chain", "one draw", 100, "log-probabilities of 100 tokens"),
    ],
)
def test_another_vocabulary_than_the_targets_is_refused(name, proposal, vocab, answered):
    pair, drafter = tiny_pair(), Odd(None, 99, vocab)
    drafter.answer[256:] += 9
    policy = POLICIES[name](3, 2, 8, proposal)
    rounds = HostRoundRunner(Target(pair.target, 160), drafter, policy, TokenMatch(), Sampling())
    rounds.prefill_and_return_seconds([1, 2, 3], 100)
    with pytest.raises(
        ValueError, match=rf"The odd drafter answered {answered}, and the target has 256\. .*\[nodes, 256\]"
    ):
        rounds.run_round()


def test_a_right_answer_is_handed_on_as_it_is():
    drafter = Odd(None, 1)
    assert GrowingTree(drafter, 7, 5, Sampling()).validated_log_q([0]).equal(drafter.answer[None])


def test_a_tree_of_the_drafters_own_that_breaks_its_limits_is_refused():
    class Laid(Odd):
        capabilities = frozenset({OWN_TREE})

        def build_own_tree(self, root, levels, width, nodes):
            tree = DraftTree.from_root_token(root + self.bucket[0])
            for node in range(self.bucket[1]):
                tree.add(node if self.bucket[2] else 0, node, 1.0, 1.0)
            return tree

    assert len(grown(Laid(None, bucket=(0, 3, True)), "own_tree", "ranked")) == 4
    assert len(grown(Laid(None, bucket=(0, 7, False)), "own_tree", "ranked")) == 8
    for wrong in ((1, 2, True), (0, 4, True), (0, 8, False)):
        with pytest.raises(ValueError, match=r"odd drafter .* 8 nodes .*3 levels .*token 7"):
            grown(Laid(None, bucket=wrong), "own_tree", "ranked")
    with pytest.raises(ValueError, match="odd drafter lays out no tree of its own"):
        grown(Odd(None), "own_tree", "ranked")
