"""Sampling: how logits become probabilities and how probabilities become tokens. The only randomness in the engine.

Noise is keyed, never consumed: the Gumbel row of a position depends on (seed, position) alone, so every lane that reaches a
position draws the same token there, whatever tree brought it. Draws for the papers' rules are keyed by (seed, purpose, position,
depth), where position is the round's root: no two rounds share one.
"""

import hashlib
import math
from collections import OrderedDict
from dataclasses import dataclass, field

import torch

MAX_TEMPERATURE = 5.0
BLOCK_ELEMENTS = 1 << 18  # noise is drawn this many numbers at a time


def seeded(*key: int | str) -> torch.Generator:
    """A CPU generator that depends on the key alone; the same key gives the same numbers on every machine."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


class GumbelNoise:
    """Standard Gumbel rows by position: `row(position) -> [V]`. A few blocks of positions stay in memory."""

    def __init__(self, seed: int, blocks_kept: int = 8):
        self.seed, self.blocks_kept = seed, blocks_kept
        self.blocks: OrderedDict[tuple[int, int], torch.Tensor] = OrderedDict()

    def row(self, position: int, vocab: int) -> torch.Tensor:
        rows = max(1, min(64, BLOCK_ELEMENTS // vocab))
        key = (position // rows, vocab)
        if key not in self.blocks:
            uniform = torch.rand(rows, vocab, generator=seeded("gumbel", self.seed, *key), dtype=torch.float64)
            self.blocks[key] = (-(-uniform.clamp_(1e-300, 1 - 1e-16).log_()).log_()).float()
            while len(self.blocks) > self.blocks_kept:
                self.blocks.popitem(last=False)
        return self.blocks[key][position % rows]

    def rows(self, positions: list[int], vocab: int) -> torch.Tensor:
        return torch.stack([self.row(position, vocab) for position in positions])


@dataclass(frozen=True)
class Sampling:
    """How both lanes sample. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 keep every token.

    Raises `ValueError` with the offending value when a setting makes no sense.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    noise: GumbelNoise = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        if not (math.isfinite(self.temperature) and 0 <= self.temperature <= MAX_TEMPERATURE):
            raise ValueError(f"Temperature must be between 0 and {MAX_TEMPERATURE:g}, got {self.temperature}.")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (keep every token) or more, got {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}.")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"Seed must be a whole number from 0 to 2^63 - 1, got {self.seed}.")
        object.__setattr__(self, "noise", GumbelNoise(self.seed))

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def scaled(self, logits: torch.Tensor) -> torch.Tensor:
        """`[..., V]` logits / temperature in float32 or better, with what top-k and top-p exclude at -inf."""
        scaled = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if not self.greedy:
            scaled = scaled / self.temperature
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
        return self.scaled(logits).softmax(-1)

    def perturbed(self, logits: torch.Tensor, positions: list[int]) -> torch.Tensor:
        """`[n, V]` scores whose argmax is the token drawn at each of the n positions (Gumbel-max); plain logits when greedy."""
        scaled = self.scaled(logits)
        return scaled if self.greedy else scaled + self.noise.rows(positions, logits.shape[-1]).to(scaled.device)

    def draw(self, logits: torch.Tensor, positions: list[int]) -> list[int]:
        """The token that this seed draws from each row of `logits [n, V]` at its position."""
        return self.perturbed(logits, positions).argmax(-1).tolist()

    def choose(self, weights: torch.Tensor, *key: int | str) -> int:
        """An index drawn in proportion to `weights [V]`, by the key's own randomness."""
        return int(torch.multinomial(weights.cpu().double(), 1, generator=seeded(self.seed, *key)))

    def accept(self, probability: float, *key: int | str) -> bool:
        """True with the given probability, by the key's own randomness."""
        return float(torch.rand((), generator=seeded(self.seed, *key), dtype=torch.float64)) < probability
