"""Shapes: every policy keeps to its limits, static trees are the best ones, and no key of randomness is drawn twice.

That every key differs is what makes the laws of `test_laws.py`, composed round by round, those of the running engine.
"""

import itertools
import random

import pytest
import torch

import engine.sampling as sampling_module
from engine.acceptance import ACCEPTANCES
from engine.acceptance.k_seq import solve_kseq_division_factor
from engine.acceptance.token_match import TokenMatch
from engine.contracts import Drafter
from engine.policies import POLICIES
from engine.policies.best_first import LEAST_SCORE, BestFirst
from engine.policies.dyspec import DySpec
from engine.policies.expand_rerank import ExpandRerank
from engine.policies.sequoia import OPEN_BUDGET, UNMEASURED_BUDGET, SequoiaDynamicProgram, SequoiaStaticTree
from engine.policies.shared.ranking import shortlist_by_shared_gumbel
from engine.policies.sparse import CalibratedSparseTree
from engine.policies.widths import widths_within_budget
from engine.record.calibration import Calibration
from engine.record.costs import Costs
from engine.record.promise import select_most_probable_paths
from engine.sampling import DRAFT_TEMPERATURE, Sampling
from engine.systems import SYSTEMS, System, can_feed_policy, is_sound_policy_for_acceptance
from engine.tree import DraftTree
from helpers.decoding import decoded
from helpers.enumeration import TableDrafter, Tables, tokens_to
from helpers.pairs import tiny_pair

MEASURED = Calibration(
    acceptance=[0.6, 0.2, 0.1, 0.05],
    ranks={"medusa": [[0.6, 0.2, 0.1], [0.5, 0.2, 0.05], [0.4, 0.1, 0.05]]},
    costs=Costs({1: 5.0, 8: 6.0, 16: 9.0, 64: 30.0}, 0.6, 0.6),
)
ANY_DRAFTER = {name: policy for name, policy in POLICIES.items() if not policy.required_capability}
EVERY_WAY = [
    (name, proposal) for name, policy in ANY_DRAFTER.items() for proposal in sorted(policy.supported_proposal_modes)
]


def size_of(shape) -> int:
    return 1 + sum(map(size_of, shape))


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize(("name", "proposal"), EVERY_WAY)
def test_trees_keep_to_their_limits(name, proposal, temperature):
    """Budget, depth, width and room; parents first; siblings distinct; what was drawn is in the tree with the q it came from."""
    rng = random.Random(name)
    for seed in range(25):
        depth, width, nodes, room = rng.randint(1, 4), rng.randint(1, 3), rng.randint(2, 14), rng.randint(0, 5)
        drafter = TableDrafter(Tables(seed, vocab=12), ())
        policy = POLICIES[name](depth, width, nodes, proposal, MEASURED)
        sampling = Sampling(temperature=temperature, seed=seed)
        tree = policy.grow(drafter, 7, 0, sampling, room)
        budget = {"kary": sum(width**level for level in range(depth + 1)), "chain": depth + 1}.get(name, nodes)
        assert tree.tokens[0] == 7 and len(tree) <= budget and max(tree.depth) <= min(depth, room)
        assert len(tree) > 1 or room == 0
        assert all(parent < node for node, parent in enumerate(tree.parents))
        for node in range(len(tree)):
            children = tree.children(node)
            assert len(children) <= width and len({tree.tokens[child] for child in children}) == len(children)
            assert all(tree.score[child] <= tree.score[node] for child in children)
            if proposal not in ("ranked", "top"):
                assert sorted(set(tree.draws.get(node, []))) == children
                for child in children:
                    row = tree.q_rows[node]
                    assert float(row.sum()) == pytest.approx(1) and tree.q[child] == pytest.approx(
                        float(row[tree.tokens[child]])
                    )


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize(("name", "proposal"), EVERY_WAY)
def test_nothing_grows_below_a_stop_token(name, proposal, temperature):
    """Nothing behind one can be emitted. The root may be one, because a prompt may end so. The stop tokens themselves are guessed."""
    guessed = 0
    for seed in range(25):
        tables = Tables(seed, vocab=6)
        tables.stop_ids = frozenset({0, 4})
        policy = POLICIES[name](4, 3, 14, proposal, MEASURED)
        tree = policy.grow(TableDrafter(tables, ()), 4, 0, Sampling(temperature=temperature, seed=seed), 9)
        above = [tree.tokens[parent] for parent in tree.parents if parent > 0]
        assert len(tree) > 1 and not tables.stop_ids & set(above)
        guessed += sum(token in tables.stop_ids for token in tree.tokens[1:])
    assert guessed > 10


@pytest.mark.parametrize(("temperature", "of_draft"), [(0.0, DRAFT_TEMPERATURE), (0.7, 0.7), (1.0, 1.0)])
@pytest.mark.parametrize("name", ["widths", "chains", "sequoia", "dyspec", "dyspec_threshold"])
def test_the_tree_holds_the_q_that_it_was_drawn_from(name, temperature, of_draft):
    """The draft's distribution at the target's temperature; at 0.6 when that is 0, where q would never branch."""
    drafter, proposal = TableDrafter(Tables(3, vocab=12), ()), min(POLICIES[name].supported_proposal_modes)
    tree = POLICIES[name](3, 3, 12, proposal, MEASURED).grow(drafter, 0, 0, Sampling(temperature=temperature), 9)
    assert set(tree.draws) <= set(tree.q_rows) and len(tree) > 3
    for node, row in tree.q_rows.items():
        assert torch.allclose(row, (drafter.log_q(tree, [node])[0] / of_draft).softmax(-1))


@pytest.mark.parametrize(("name", "proposal"), EVERY_WAY)
def test_token_match_writes_the_same_tokens_on_every_policys_trees(name, proposal):
    for seed in range(15):
        tables, sampling = Tables(seed, vocab=5), Sampling(temperature=0.9, seed=seed)
        plain: tuple[int, ...] = ()
        for position in range(6):
            plain += tuple(sampling.draw_tokens_at_positions(tables.logits("p", plain)[None], [position + 1]))
        policy, context, accepted = POLICIES[name](2, 2, 6, proposal, MEASURED), (), 0
        while len(context) < 6:
            tree = policy.grow(TableDrafter(tables, context), 0, len(context), sampling, 6 - len(context) - 1)
            verdict = TokenMatch().decide(tree, tables.verify(tree, context), sampling, len(context))
            context += (*(tree.tokens[node] for node in verdict.path), verdict.bonus)
            accepted += len(verdict.path)
        assert context == plain


@pytest.mark.parametrize("name", [name for name, each in SYSTEMS.items() if each.guarantee != "tokens"])
def test_no_key_is_drawn_twice(name, monkeypatch):
    keys, seeded = [], sampling_module.build_generator_from_key
    monkeypatch.setattr(sampling_module, "build_generator_from_key", lambda *key: keys.append(key) or seeded(*key))
    decoded(tiny_pair(same=True), name, [1, 2, 3], 30, temperature=1.0)
    keys = [key for key in keys if key[0] != "gumbel"]
    assert len(keys) > 10 and len(set(keys)) == len(keys)


def test_drawing_stops_for_a_drafter_without_a_guess():
    class Silent(Drafter):
        def __init__(self):
            pass

        def log_q(self, tree: DraftTree, nodes: list[int]) -> None:
            return None

    for name, proposal in EVERY_WAY:
        assert len(POLICIES[name](3, 2, 9, proposal, MEASURED).grow(Silent(), 4, 0, Sampling(), 9)) == 1


# ---- single policies


def test_dyspec_spends_its_budget_on_the_most_valuable_draws():
    """Behind every node the draws that were made were worth at least as much as any that was not."""
    for seed in range(20):
        tree = DySpec(9, 12, 8, "").grow(TableDrafter(Tables(seed, vocab=12), ()), 0, 0, Sampling(seed=seed), 9)
        made, open_ = [], []
        for node in range(len(tree)):
            left = 1.0
            for child in tree.draws.get(node, []):
                made.append(tree.score[node] * left)
                left -= tree.q[child]
            open_.append(tree.score[node] * left)
        assert len(made) == 7 and min(made) >= max(open_) - 1e-9


def test_dyspec_asks_about_one_node_at_a_time_and_its_threshold_form_about_a_level():
    class Counting(TableDrafter):
        asked: list[int]

        def log_q(self, tree, nodes):
            self.asked.append(len(nodes))
            return super().log_q(tree, nodes)

    for name in ("dyspec", "dyspec_threshold"):
        drafter = Counting(Tables(1, vocab=12), ())
        drafter.asked = []
        tree = POLICIES[name](3, 4, 12, "").grow(drafter, 0, 0, Sampling(), 9)
        assert sum(drafter.asked) >= len(tree.draws)
        assert set(drafter.asked) == {1} if name == "dyspec" else len(drafter.asked) <= 3


@pytest.mark.parametrize("seed", range(6))
def test_every_draw_of_the_threshold_form_is_worth_its_place(seed):
    """A draw behind a node of value v is worth v times what is left of q there."""
    nodes = 12
    tree = POLICIES["dyspec_threshold"](3, 6, nodes, "").grow(
        TableDrafter(Tables(seed, vocab=8), ()), 0, seed, Sampling(1.0, seed=seed), 9
    )
    assert len(tree) > 2
    for parent in range(len(tree)):
        left = tree.score[parent]
        for child in tree.children(parent):
            assert left >= 1 / nodes - 1e-9
            left -= tree.score[child]


def test_opt_tree_is_best_first():
    """OPT-Tree without its early stop: the best n of every level, then the best n of all levels."""
    for seed, temperature in itertools.product(range(10), (0.0, 0.8)):
        tables, sampling = Tables(seed, vocab=4), Sampling(temperature=temperature, seed=seed)
        level, seen = {(): 1.0}, {}
        for depth in range(1, 4):
            grown = {}
            for path, score in level.items():
                log_q = tables.logits("q", path).log_softmax(-1)[None]
                [tokens], [scores], _ = (
                    each.tolist() for each in shortlist_by_shared_gumbel(log_q, depth, 4, sampling)
                )
                grown |= {(*path, token): score * each for token, each in zip(tokens, scores, strict=True)}
            level = dict(sorted(grown.items(), key=lambda each: -each[1])[:4])
            seen |= level
        best = {path for path in sorted(seen, key=seen.__getitem__, reverse=True)[:4] if seen[path] >= LEAST_SCORE}
        tree = BestFirst(3, 4, 5, "ranked").grow(TableDrafter(tables, ()), 0, 0, sampling, 9)
        assert {tuple(tokens_to(tree, node)) for node in range(1, len(tree))} == best


def test_expand_and_rerank_is_best_first_where_its_beam_is_wide_enough():
    for seed, temperature in itertools.product(range(20), (0.0, 0.8)):
        sampling, paths = Sampling(temperature=temperature, seed=seed), []
        for policy in (BestFirst(3, 4, 5, "ranked"), ExpandRerank(3, 4, 5, "ranked")):
            tree = policy.grow(TableDrafter(Tables(seed, vocab=4), ()), 0, 0, sampling, 9)
            likely = [node for node in range(1, len(tree)) if tree.score[node] >= 0.01]
            paths.append({tuple(tokens_to(tree, node)) for node in likely})
        assert paths[0] == paths[1]


def test_narrowing_widths_keep_to_the_budget():
    assert widths_within_budget(4, 4, 31) == [2, 2, 2, 2]
    assert widths_within_budget(4, 4, 16) == [2, 2, 1, 1]
    assert widths_within_budget(6, 3, 3) == [1, 1]
    assert widths_within_budget(1, 5, 64) == [5]


# ---- static trees


def every_shape(nodes: int, depth: int, width: int):
    """All ordered trees of exactly that many nodes."""
    if nodes == 1:
        yield ()
    elif depth > 0:
        for children in range(1, min(width, nodes - 1) + 1):
            yield from every_forest(nodes - 1, depth - 1, width, children)


def every_forest(nodes: int, depth: int, width: int, trees: int):
    if trees == 0:
        yield from [()] if nodes == 0 else []
        return
    for first in range(1, nodes + 1):
        for child in every_shape(first, depth, width):
            for others in every_forest(nodes - first, depth, width, trees - 1):
                yield (child, *others)


def worth(shape, acceptance) -> float:
    return 1 + sum(chance * worth(child, acceptance) for chance, child in zip(acceptance, shape, strict=False))


@pytest.mark.parametrize("seed", range(5))
def test_the_dynamic_program_finds_what_brute_force_finds(seed):
    rng = random.Random(seed)
    acceptance = sorted((rng.random() / 3 for _ in range(3)), reverse=True)
    trees = SequoiaDynamicProgram(tuple(acceptance), 8, 3)
    for levels, nodes in itertools.product((1, 2, 3), range(2, 9)):
        best = max(worth(shape, acceptance) for size in range(1, nodes + 1) for shape in every_shape(size, levels, 3))
        assert trees.value[levels][nodes] == pytest.approx(best)
        assert worth(trees.build_best_tree_shape(nodes, levels), acceptance) == pytest.approx(best)
        assert size_of(trees.build_best_tree_shape(nodes, levels)) <= nodes


def test_sequoia_uses_a_given_budget_and_chooses_where_it_is_open():
    assert size_of(SequoiaStaticTree(6, 4, 24, "", MEASURED).shape) == 24
    open_ = size_of(SequoiaStaticTree(6, 4, OPEN_BUDGET, "", MEASURED).shape)
    assert 4 <= open_ <= 16
    free = Calibration(acceptance=MEASURED.acceptance, costs=Costs({1: 5.0, 64: 5.1}, 0.01, 0.01))
    assert size_of(SequoiaStaticTree(6, 4, OPEN_BUDGET, "", free).shape) > 40
    assert size_of(SequoiaStaticTree(6, 4, OPEN_BUDGET, "").shape) == UNMEASURED_BUDGET


def test_the_sparse_tree_takes_the_best_products():
    chosen = select_most_probable_paths(MEASURED.ranks["medusa"], width=3, max_nodes_with_root=9)
    values = {
        ranks: torch.tensor([MEASURED.ranks["medusa"][level][rank] for level, rank in enumerate(ranks)]).prod().item()
        for levels in (1, 2, 3)
        for ranks in itertools.product(range(3), repeat=levels)
    }
    assert sorted(chosen.values(), reverse=True) == pytest.approx(sorted(values.values(), reverse=True)[:8], abs=1e-6)
    assert all(ranks[:-1] in chosen for ranks in chosen if len(ranks) > 1)


def test_sparse_says_what_is_missing():
    for calibration in (Calibration(), Calibration(acceptance=[0.5])):
        with pytest.raises(ValueError, match=r"python -m engine calibrate"):
            CalibratedSparseTree(3, 3, 9, "ranked", calibration)


# ---- rules and combinations


def test_the_division_factor_solves_its_equation():
    rng = torch.Generator().manual_seed(0)
    for k, vocab in itertools.product((1, 2, 3, 8), (3, 50)):
        p, q = (torch.randn(vocab, generator=rng, dtype=torch.float64).mul(2).softmax(-1) for _ in range(2))
        rho = solve_kseq_division_factor(p.numpy(), q.numpy(), k)
        beta = float(torch.minimum(q, p / rho).sum())
        assert 1 <= rho <= k
        assert 0 <= rho * beta - (1 - (1 - beta) ** k) < 1e-4
        assert rho > 1 or k == 1


def test_every_unsound_combination_is_refused_and_every_suggestion_works():
    parts = {"name": "x", "title": "x", "idea": "x", "source": "x", "cost": "x", "depth": 2, "width": 2, "nodes": 4}
    for drafter, policy, rule in itertools.product(("model", "specblock"), POLICIES, ACCEPTANCES):
        if not can_feed_policy(drafter, policy):
            with pytest.raises(
                ValueError, match=f"{policy} needs .*{POLICIES[policy].required_capability}.* {drafter} has none"
            ):
                System(drafter=drafter, policy=policy, acceptance=rule, **parts)
            continue
        if is_sound_policy_for_acceptance(policy, rule):
            System(drafter=drafter, policy=policy, acceptance=rule, **parts)
            continue
        with pytest.raises(ValueError) as refused:
            System(drafter=drafter, policy=policy, acceptance=rule, **parts)
        why, advice = str(refused.value).split(" Use ")
        assert why.startswith(f"{policy} with {rule} ") and "the rule needs" in why and "the policy offers" in why
        rules, policies = advice.removesuffix(".").split(f", or {rule} with the policy ")
        rules = rules.removeprefix(f"{policy} with ").replace(" or ", ", ").split(", ")
        assert rules == [each for each in ACCEPTANCES if is_sound_policy_for_acceptance(policy, each)]
        assert policies.replace(" or ", ", ").split(", ") == [
            each for each in POLICIES if is_sound_policy_for_acceptance(each, rule) and can_feed_policy(drafter, each)
        ]


def test_a_tree_that_was_drawn_is_not_pruned():
    tree = DraftTree.from_root_token(0)
    tree.record_drawn_child(0, 5, 0.5)
    assert tree.record_drawn_child(0, 5, 0.5) == 1 and tree.draws == {0: [1, 1]}
    tree.record_drawn_child(0, 6, 0.25)
    with pytest.raises(KeyError):
        tree.subtree([0, 1])
    assert tree.subtree([0, 2, 1]).draws == {0: [2, 2, 1]}
