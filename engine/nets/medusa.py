"""Medusa heads (Cai et al. 2024): several next-token heads on the target's last hidden state, one for each future position.

Head k is `x + SiLU(W x)`, then its own projection onto the vocabulary. W starts at zero, and the projection starts as a copy of the
target's LM head. So an untrained head repeats the target's guess for the root.
"""

import torch
import torch.nn.functional as F
from torch import nn

from engine.nets.layer import Net, NetConfig
from engine.nets.medusa_compiled import CompiledMedusa


class Medusa(Net):
    def __init__(self, config: NetConfig, embedding: torch.Tensor, head: torch.Tensor):
        super().__init__(config, embedding, head)
        self.blocks = nn.ModuleList(nn.Linear(config.hidden, config.hidden) for _ in range(config.depth))
        self.unembeds = nn.ParameterList(nn.Parameter(self.head.clone()) for _ in range(config.depth))
        for block in self.blocks:
            nn.init.zeros_(block.weight)
            nn.init.zeros_(block.bias)

    def packed(self) -> CompiledMedusa:
        return CompiledMedusa(self)

    def log_q(self, final: torch.Tensor, k: int) -> torch.Tensor:
        """Log-probabilities `[n, V]` of head k from `final [n, H]`, in compiled loops where the net is packed."""
        return self.compiled(final, k) if self.compiled else self(final, k).log_softmax(-1)

    def forward(self, final: torch.Tensor, k: int) -> torch.Tensor:
        """Logits `[..., V]` of head k; head 0 guesses the token after the root.

        `final [..., H]` is the final norm's output behind the token before the root.
        """
        return F.linear(final + F.silu(self.blocks[k](final)), self.unembeds[k])
