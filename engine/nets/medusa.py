"""Medusa heads (Cai et al. 2024): several next-token heads on the target's last hidden state, one for each future position.

Head k is `x + SiLU(W x)`, then its own projection onto the vocabulary. W starts at zero, and the projection as a copy of the
target's LM head, so an untrained head repeats the target's guess for the root. A net with a width of its own begins with one matrix
that narrows the hidden state. For a large vocabulary such projections would outweigh many a target: then all heads share rows of the
target's own head, those of a vocabulary of theirs. Published heads may have several blocks, and guess some of the target's tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.forward.layer_ops import expand_log_q_to_full_vocab
from engine.forward.llama_layer import Linear
from engine.nets.layer import Net, NetConfig
from engine.nets.medusa_compiled import CompiledMedusa


class Medusa(Net):
    used_table_names = ()

    def __init__(self, config: NetConfig, embedding: Tensor, head: Tensor, vocabulary: Tensor | None = None):
        """`config.layers` is the number of blocks in a head, 0 for one.

        A `vocabulary [own_vocab]` holds the target's ids of the tokens that published heads guess, each by a projection of its own.
        """
        super().__init__(config, embedding, head)
        self.published, self.blocks_in_head = vocabulary is not None, max(1, config.layers)
        self.narrow = Linear(config.target_hidden, config.hidden) if config.target_hidden else None
        count = config.depth * self.blocks_in_head
        self.blocks = nn.ModuleList(nn.Linear(config.hidden, config.hidden) for _ in range(count))
        start = self.head.new_zeros(config.own_vocab, config.hidden) if self.published else self.head
        own = config.depth if self.published or not config.own_vocab else 0
        self.unembeds = nn.ParameterList(nn.Parameter(start.float().clone()) for _ in range(own))
        if config.own_vocab:
            ids = torch.arange(config.own_vocab) if vocabulary is None else vocabulary
            self.register_buffer("vocabulary", ids, persistent=not self.published)
        for block in self.blocks:
            nn.init.zeros_(block.weight)
            nn.init.zeros_(block.bias)

    def build_compiled(self) -> CompiledMedusa | None:
        """None for published heads of several blocks, or over some of the target's tokens."""
        return None if self.published else CompiledMedusa(self)

    def log_q(self, final_hidden: Tensor, head_index: int) -> Tensor:
        """Log-probabilities `[n, V]` of head k from the target's `final_hidden [n, H]`, in compiled loops where the net is packed."""
        if self.compiled:
            return self.compiled(final_hidden, head_index)
        own = self(final_hidden, head_index).log_softmax(-1)
        return expand_log_q_to_full_vocab(own, self.vocabulary, self.config.vocab) if self.config.own_vocab else own

    def unembedding_of_head(self, head_index: int) -> Tensor:
        """The matrix `[own_vocab or V, hidden]` behind head k's block."""
        return self.unembeds[head_index] if len(self.unembeds) else self.head[self.vocabulary]

    def forward(self, final_hidden: Tensor, head_index: int) -> Tensor:
        """Logits `[..., own_vocab or V]` of head k, the first after the root.

        `final_hidden [..., H]` is the final norm's output before the root.
        """
        x = self.narrow(final_hidden) if self.narrow else final_hidden
        for number in range(self.blocks_in_head):
            x = x + F.silu(self.blocks[head_index * self.blocks_in_head + number](x))
        matrix = self.unembedding_of_head(head_index)
        return F.linear(x.to(matrix.dtype), matrix).float()
