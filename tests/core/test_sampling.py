"""Sampling: noise by position on host and device, the drawn distribution, and refusals."""

import math

import numpy as np
import pytest
import torch

from engine.sampling import (
    ROWS_KEPT,
    DeviceNoise,
    GumbelNoise,
    Sampling,
    argmax_with_gumbel_noise,
    compute_gumbel_by_position,
)


def test_noise_depends_on_seed_and_position_alone():
    forwards, backwards = GumbelNoise(3), GumbelNoise(3)
    rows = [forwards.row(position, 50) for position in range(200)]
    for position in reversed(range(200)):
        assert torch.equal(backwards.row(position, 50), rows[position])
    assert not torch.equal(GumbelNoise(4).row(0, 50), rows[0])
    assert len({tuple(row.tolist()) for row in rows}) == 200


def test_a_forgotten_row_comes_back_the_same():
    noise = GumbelNoise(0)
    first = noise.row(0, 50).clone()
    assert noise.row(0, 50) is noise.row(0, 50)
    for position in range(1, ROWS_KEPT + 5):
        noise.row(position, 50)
    assert (0, 50) not in noise.kept and len(noise.kept) == ROWS_KEPT
    assert torch.equal(noise.row(0, 50), first)


def test_rows_are_those_of_their_positions():
    noise = GumbelNoise(5)
    assert torch.equal(noise.rows([7, 2, 7], 50), torch.stack([noise.row(position, 50) for position in (7, 2, 7)]))
    assert torch.equal(noise.row(7, 80)[:50], noise.row(7, 50))


@pytest.mark.parametrize("seed", [0, 5, 2**63 - 1])
def test_noise_is_that_of_the_counting_in_float64(seed):
    """Over 600,000 numbers, large ones among them, which decide what is drawn: u near 1 keeps its digits in float32."""
    positions, vocab = [0, 1, 10**6], 200_000
    found = GumbelNoise(seed).rows(positions, vocab)
    expected = compute_gumbel_by_position(torch.tensor(seed), torch.tensor(positions), vocab)
    assert torch.allclose(found, expected, rtol=0, atol=2e-6) and found.max() > 11


@pytest.mark.parametrize("sampling", [Sampling(seed=2), Sampling(0.7, seed=2), Sampling(1.3, top_k=9, seed=2)])
def test_a_drawer_draws_what_all_rows_at_once_do(sampling):
    """Number by number, whatever the processor does side by side: logits on a coarse grid meet each other's neighbourhoods often."""
    logits = (8 * torch.randn(300, 77, generator=torch.Generator().manual_seed(1))).round() / 8
    positions = [3 * row % 130 for row in range(300)]
    draw = sampling.build_lazy_token_drawer(logits, positions)
    assert [draw(row) for row in range(300)] == sampling.draw_tokens_at_positions(logits, positions)
    assert argmax_with_gumbel_noise(np.array([1, 3, 3, 2], np.float32), np.float32(0.5), np.zeros(4, np.float32)) == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_tempered_distribution(temperature):
    """20,000 positions, 5 tokens: a standard error of at most 0.0036, so 0.02 is beyond five of them."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])
    sampling = Sampling(temperature=temperature, seed=1)
    drawn = torch.tensor(sampling.draw_tokens_at_positions(logits.expand(20_000, 5), list(range(20_000))))
    observed = torch.bincount(drawn, minlength=5) / 20_000
    assert torch.allclose(observed, (logits / temperature).softmax(-1), atol=0.02)


def test_greedy_takes_the_best_and_a_tie_goes_to_the_first():
    assert Sampling().draw_tokens_at_positions(torch.tensor([[0.0, 3.0, 3.0]]), [9]) == [1]
    assert Sampling().probabilities(torch.tensor([0.0, 3.0, 1.0])).tolist() == [0.0, 1.0, 0.0]


def test_top_k_and_top_p_exclude_the_tail():
    logits = torch.tensor([3.0, 2.0, 1.0, 0.0])
    assert Sampling(temperature=1.0, top_k=2).probabilities(logits)[2:].tolist() == [0.0, 0.0]
    p = Sampling(temperature=1.0, top_p=0.7).probabilities(logits)
    assert p[2:].tolist() == [0.0, 0.0] and math.isclose(float(p.sum()), 1.0, abs_tol=1e-6)


def test_choose_and_accept_are_keyed():
    sampling, weights = Sampling(seed=5), torch.tensor([0.2, 0.3, 0.5])
    picks = [sampling.draw_index_by_weight(weights, "draft", position, 0) for position in range(400)]
    assert picks == [sampling.draw_index_by_weight(weights, "draft", position, 0) for position in range(400)]
    assert set(picks) == {0, 1, 2}
    assert picks != [sampling.draw_index_by_weight(weights, "residual", position, 0) for position in range(400)]
    assert not sampling.draw_acceptance(0.0, "accept", 0, 0) and sampling.draw_acceptance(1.0, "accept", 0, 0)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"temperature": -1.0}, "between 0 and 100, got -1.0"),
        ({"temperature": math.nan}, "between 0 and 100, got nan"),
        ({"temperature": 1e-38}, "must be 0 or at least 1e-30, got 1e-38"),
        ({"temperature": 5e-324}, "must be 0 or at least 1e-30"),
        ({"top_k": -3}, "top_k must be 0"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"seed": -1}, "Seed must be a whole number"),
    ],
)
def test_senseless_settings_are_refused(setting, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sampling(**setting)


CPU = torch.device("cpu")


def test_counted_noise_depends_on_seed_and_position_alone():
    seed, vocab = torch.tensor(5), 300
    whole = compute_gumbel_by_position(seed, torch.arange(200), vocab)
    assert torch.equal(compute_gumbel_by_position(seed, torch.tensor([130, 2]), vocab), whole[[130, 2]])
    noise = DeviceNoise(5, CPU)
    assert torch.equal(noise.rows([130, 2, 131], vocab), whole[[130, 2, 131]])
    assert len(set(whole.flatten().tolist())) > 0.99 * whole.numel()


def test_counted_noise_is_splitmix64():
    """The first outputs of the published generator at state 0, whose mixing step ours is."""
    from engine.sampling import GOLDEN, hash_int64_by_splitmix64

    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    ours = hash_int64_by_splitmix64(torch.arange(1, 4) * GOLDEN)
    assert [each % 2**64 for each in ours.tolist()] == published


@pytest.mark.parametrize("axis", ["positions", "seeds", "tokens"])
def test_counted_noise_is_gumbel_and_neighbours_know_nothing_of_each_other(axis):
    """100,000 numbers: the mean of uniform numbers within 5 standard errors, 20 cells by chi-square (99.99% below 55), and no
    correlation between neighbours beyond 5 / sqrt(n)."""
    count, step = 100_000, torch.arange(1000)
    if axis == "seeds":
        noise = torch.stack(
            [compute_gumbel_by_position(torch.tensor(seed), torch.tensor([9]), 100)[0] for seed in range(1000)]
        )
    else:
        noise = compute_gumbel_by_position(torch.tensor(1), step, 100)
    rows = noise if axis != "tokens" else noise.T
    uniform = (-(-rows.double()).exp()).exp()
    assert abs(float(uniform.mean()) - 0.5) < 5 * (1 / 12 / count) ** 0.5
    cells = torch.histc(uniform.float(), 20, 0, 1)
    assert float(((cells - count / 20) ** 2 / (count / 20)).sum()) < 55
    centred = uniform - 0.5
    for one, other in ((centred[1:], centred[:-1]), (centred[:, 1:], centred[:, :-1]), (centred[2:], centred[:-2])):
        assert abs(float((one * other).mean() * 12)) < 5 / one.numel() ** 0.5


def test_a_race_with_counted_noise_draws_the_tempered_distribution():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])
    sampling = Sampling(temperature=0.8, seed=1, device=CPU)
    drawn = torch.tensor(sampling.draw_tokens_at_positions(logits.expand(20_000, 5), list(range(20_000))))
    assert torch.allclose(torch.bincount(drawn, minlength=5) / 20_000, (logits / 0.8).softmax(-1), atol=0.02)
