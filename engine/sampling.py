"""Sampling: how logits become probabilities and how probabilities become tokens. The only randomness in the engine.

Noise is keyed, never consumed: the Gumbel row of a position depends on (seed, position) alone. Every lane that reaches a position
therefore draws the same token there, whatever tree brought it.

Draws for the papers' rules are keyed by (seed, purpose, position, node or depth, try). The position is the round's root, so no two
rounds, nodes or tries share a key.

A race on a GPU makes its Gumbel rows there, by the same counting. They are the same numbers but for a logarithm's last digits.
"""

import bisect
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from engine.kernels.compiling import exactly_compiled
from engine.kernels.elementwise import GOLDEN, MIX, write_gumbel_row
from engine.kernels.intrinsics import larger_float

LEAST_TEMPERATURE, MAX_TEMPERATURE = 1e-30, 100.0  # logits that are divided by less are infinite in float32
DRAFT_TEMPERATURE = 0.6  # for branching drafts when the target is greedy (DySpec, section 6.1)
LEAST_MASS = 1e-12  # when less of q is left to draw from, it is rounding
PIECE = 16  # positions whose noise a device makes at a time
ROWS_KEPT = 32  # of noise


def build_generator_from_key(*key: int | str) -> torch.Generator:
    """A CPU generator that depends on the key alone. The same key gives the same numbers on every machine."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


class GumbelNoise:
    """Standard Gumbel rows by position: `row(position, vocab) -> [V]`, on a CPU. The last `ROWS_KEPT` stay in memory."""

    device: torch.device | None = None

    def __init__(self, seed: int):
        self.seed = seed
        self.kept: OrderedDict[tuple[int, int], torch.Tensor] = OrderedDict()

    def row(self, position: int, vocab: int) -> torch.Tensor:
        if (position, vocab) not in self.kept:
            self.make_row(position, vocab)
            while len(self.kept) > ROWS_KEPT:
                self.kept.popitem(last=False)
        return self.kept[position, vocab]

    def rows(self, positions: list[int], vocab: int) -> torch.Tensor:
        """The rows of n positions, `[n, V]`."""
        return torch.stack([self.row(position, vocab) for position in positions])

    def make_row(self, position: int, vocab: int) -> None:
        made = np.empty(vocab, np.float32)
        write_gumbel_row(self.seed, position, made)
        self.kept[position, vocab] = torch.from_numpy(made)


class DeviceNoise(GumbelNoise):
    """The same on a device, where `PIECE` neighbouring rows are made at a time."""

    def __init__(self, seed: int, device: torch.device):
        super().__init__(seed)
        self.device = device

    def make_row(self, position: int, vocab: int) -> None:
        first, seed = position - position % PIECE, torch.full((), self.seed, device=self.device)
        positions = torch.arange(first, first + PIECE, device=self.device)
        for each, made in enumerate(compute_gumbel_by_position(seed, positions, vocab), first):
            self.kept[each, vocab] = made


def compute_gumbel_by_position(seed: torch.Tensor, positions: torch.Tensor, vocab: int) -> torch.Tensor:
    """Standard Gumbel rows `[n, V]` float32 of `positions [n]` int64, from a seed that is a tensor too. Waits for no device.

    It is `engine.kernels.elementwise.write_gumbel_row` in PyTorch: integers are the same everywhere, and logarithms can differ in their
    last digits.
    """
    place = hash_int64_by_splitmix64(
        hash_int64_by_splitmix64(seed + GOLDEN) ^ hash_int64_by_splitmix64(positions * MIX[0] + 1)
    )
    tokens = torch.arange(1, vocab + 1, device=positions.device)
    bits = hash_int64_by_splitmix64(place[:, None] + tokens * GOLDEN) >> 12 & (1 << 52) - 1
    uniform = (bits.double() + 0.5) * 2.0**-52
    return (-(-uniform.log()).log()).float()


def hash_int64_by_splitmix64(integers: torch.Tensor) -> torch.Tensor:
    """SplitMix64's mixing, of int64 numbers. They wrap around as unsigned ones would."""
    integers = (integers ^ (integers >> 30 & (1 << 34) - 1)) * MIX[0]
    integers = (integers ^ (integers >> 27 & (1 << 37) - 1)) * MIX[1]
    return integers ^ (integers >> 31 & (1 << 33) - 1)


def refuse_too_low_temperature(temperature: float) -> None:
    """Raises `ValueError` for a temperature by which logits cannot be divided in float32."""
    if 0 < temperature < LEAST_TEMPERATURE:
        raise ValueError(
            f"Temperature must be 0 or at least {LEAST_TEMPERATURE:g}, got {temperature}. Take 0 for the likeliest tokens."
        )


@dataclass(frozen=True)
class Sampling:
    """How every lane samples. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 keep every token.

    Gumbel rows are made on `device`, with None on the CPU. A `constraint` forbids tokens by the text
    that they would follow; `engine.rounds.guiding` masks logits by it before they come here.

    Raises `ValueError` with the offending value when a setting makes no sense.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    device: torch.device | None = None
    constraint: Any = None  # None or an `engine.models.constraint.CompiledConstraint`
    noise: GumbelNoise = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        if not (math.isfinite(self.temperature) and 0 <= self.temperature <= MAX_TEMPERATURE):
            raise ValueError(f"Temperature must be between 0 and {MAX_TEMPERATURE:g}, got {self.temperature}.")
        refuse_too_low_temperature(self.temperature)
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (keep every token) or more, got {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}.")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"Seed must be a whole number from 0 to 2^63 - 1, got {self.seed}.")
        noise = GumbelNoise(self.seed) if self.device is None else DeviceNoise(self.seed, self.device)
        object.__setattr__(self, "noise", noise)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def keeps_all_tokens(self) -> bool:
        """Whether every token may be drawn: neither top-k, nor top-p, nor a constraint leaves any out."""
        return not self.top_k and self.top_p == 1 and self.constraint is None

    def scale_and_filter_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """`[..., V]` logits / temperature, in float32 or better; at temperature 0 they are not divided. Excluded tokens are at -inf."""
        return self.scale_and_filter_by_temperature(self.temperature or 1.0, logits)

    def scale_and_filter_by_temperature(self, temperature: float, logits: torch.Tensor) -> torch.Tensor:
        scaled = (
            logits if logits.dtype == torch.float32 else logits.to(torch.promote_types(logits.dtype, torch.float32))
        )
        if temperature != 1:
            scaled = scaled / temperature
        if self.top_k and self.top_k < scaled.shape[-1]:
            scaled = scaled.masked_fill(scaled < scaled.topk(self.top_k, dim=-1).values[..., -1:], -torch.inf)
        if self.top_p < 1:
            ordered, order = scaled.sort(dim=-1, descending=True)
            p = ordered.softmax(-1)
            dropped = torch.zeros_like(p, dtype=torch.bool).scatter(-1, order, p.cumsum(-1) - p >= self.top_p)
            scaled = scaled.masked_fill(dropped, -torch.inf)
        return scaled

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """`[..., V]` the distribution that is sampled from; one-hot at temperature 0."""
        if self.greedy:
            return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()
        return self.scale_and_filter_logits(logits).softmax(-1)

    def draft_probabilities(self, log_q: torch.Tensor) -> torch.Tensor:
        """`[..., V]` the q that guesses are drawn from. At temperature 0 it has `DRAFT_TEMPERATURE`: a one-hot q would never branch."""
        return self.scale_and_filter_by_temperature(self.temperature or DRAFT_TEMPERATURE, log_q).softmax(-1)

    def scale_logits_and_add_gumbel_noise(self, logits: torch.Tensor, positions: list[int]) -> torch.Tensor:
        """`[n, V]` scores whose argmax is the token drawn at each of the n positions (Gumbel-max). When greedy they are the logits."""
        scaled = self.scale_and_filter_logits(logits)
        return scaled if self.greedy else scaled + self.noise.rows(positions, logits.shape[-1]).to(scaled.device)

    def draw_tokens_at_positions(self, logits: torch.Tensor, positions: list[int]) -> list[int]:
        """The token that this seed draws from each row of `logits [n, V]` at its position."""
        scores = self.scale_logits_and_add_gumbel_noise(logits, positions)
        if scores.is_cpu:
            return scores.numpy().argmax(-1).tolist()  # a sixth of the time that torch takes
        return scores.argmax(-1).tolist()

    def build_lazy_token_drawer(self, logits: torch.Tensor, positions: list[int]) -> Callable[[int], int]:
        """`draw_tokens_at_positions` for a row a call. On a CPU a row is drawn when it is asked for, elsewhere all are at once."""
        if not logits.is_cpu:  # `is_cpu`, because asking for the device's type takes as long as a draw
            return self.draw_tokens_at_positions(logits, positions).__getitem__
        if logits.dtype != torch.float32 or not (self.greedy or self.keeps_all_tokens):
            return lambda row: self.draw_tokens_at_positions(logits[row : row + 1], positions[row : row + 1])[0]
        rows, vocab = logits.numpy(), logits.shape[-1]
        if self.greedy:
            return lambda row: int(rows[row].argmax())
        temperature, noise = np.float32(self.temperature), self.noise.row
        return lambda row: argmax_with_gumbel_noise(rows[row], temperature, noise(positions[row], vocab).numpy())

    def draw_index_by_weight(self, weights: torch.Tensor, *key: int | str) -> int:
        """An index drawn in proportion to `weights [V]`, by the key's own randomness."""
        return self.draw_with_replacement(weights[None], [1], *key)[0][0][0]

    def draw_acceptance(self, probability: float, *key: int | str) -> bool:
        """True with the given probability, by the key's own randomness."""
        return (
            float(torch.rand((), generator=build_generator_from_key(self.seed, *key), dtype=torch.float64))
            < probability
        )

    def draw_uniform_matrix(self, rows: int, columns: int, *key: int | str) -> torch.Tensor:
        """Numbers in [0, 1), float64 `[rows, columns]` on a CPU: the key's own randomness."""
        return torch.rand(rows, columns, generator=build_generator_from_key(self.seed, *key), dtype=torch.float64)

    def draw_with_replacement(
        self, q: torch.Tensor, draws_by_row: list[int], *key: int | str
    ) -> list[list[tuple[int, float]]]:
        """For each row i of `q [n, V]`, `draws_by_row[i]` independent draws as (token, its q), by the key's own randomness."""
        q = q.cpu()
        edges = q.double().cumsum(-1)
        uniform = self.draw_uniform_matrix(len(q), max(draws_by_row), *key)
        tokens = torch.searchsorted(edges, uniform * edges[:, -1:], right=True).clamp_(max=q.shape[-1] - 1)
        drawn = zip(tokens.tolist(), q.gather(-1, tokens).tolist(), strict=True)
        return [list(zip(*row, strict=True))[:count] for row, count in zip(drawn, draws_by_row, strict=True)]

    def draw_without_replacement(
        self, q: torch.Tensor, max_draws: int, *key: int | str
    ) -> list[Iterator[tuple[int, float]]]:
        """For each row of `q [n, V]` up to `max_draws` draws without replacement, as (token, its q). Each is made when it is taken."""
        edges = q.cpu().double().cumsum(-1).numpy()
        uniform = self.draw_uniform_matrix(len(q), max_draws, *key).tolist()
        return [draw_without_replacement_by_inversion(*row) for row in zip(edges, uniform, strict=True)]


@exactly_compiled
def argmax_with_gumbel_noise(logits, temperature, noise):
    """The first token with the highest `logits [V]` / temperature + `noise [V]`. The numbers are exactly those of
    `scale_logits_and_add_gumbel_noise`.
    """
    keys, most = np.empty(len(logits), np.float32), np.float32(-np.inf)
    for token in range(len(logits)):
        keys[token] = logits[token] / temperature + noise[token]
    for token in range(len(logits)):
        most = larger_float(most, keys[token])
    for token in range(len(logits)):
        if keys[token] == most:
            return token
    return 0


def draw_without_replacement_by_inversion(
    cumulative_probabilities: np.ndarray, uniform_numbers: list[float]
) -> Iterator[tuple[int, float]]:
    """Draws without replacement by inversion. `cumulative_probabilities [V]` are the cumulative probabilities.

    A uniform number picks a place in what the tokens drawn so far have left of [0, total). Ends early when nothing is left to draw.
    """
    taken: list[tuple[float, float]] = []  # start and length of each drawn token's interval, ascending
    for number in uniform_numbers:
        left = float(cumulative_probabilities[-1]) - sum(length for _, length in taken)
        if left < LEAST_MASS:
            return
        point = number * left
        for start, length in taken:
            if point < start:
                break
            point += length
        token = int(cumulative_probabilities.searchsorted(point, "right"))
        if token == len(cumulative_probabilities):
            return
        start = float(cumulative_probabilities[token - 1]) if token else 0.0
        length = float(cumulative_probabilities[token]) - start
        if any(start == other for other, _ in taken):
            return
        bisect.insort(taken, (start, length))
        yield token, length
