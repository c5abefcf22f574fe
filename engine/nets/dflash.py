"""DFlash's net (z-lab/dflash `dflash/model.py`): a whole block of tokens from one forward over the target's features.

The context is one entry a token that the target has read, fused from layers of the target. A block stands behind it: the anchor, which
is the root, and mask tokens. Every layer takes keys and values from both, and queries from the block alone, which sees all of itself.
The slot at place k of the block predicts the token at that place, so no slot knows what another one guesses. In DSpark's form it
predicts the token behind that place.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from engine.forward.llama_eight_bit import LARGEST
from engine.nets.dflash_compiled import CompiledDFlash
from engine.nets.eagle3 import Norm
from engine.nets.layer import Linear, Net, NetConfig, Rotary


@dataclass(frozen=True)
class DFlashSizes:
    """What a published config says. `hidden` and `vocab` are its target's.

    `reads` are the target's layers, by how many layers are behind each. `block` counts the anchor, and `mask` is the id of the mask
    token. `inverse` holds the rotary embedding's `head_dim / 2` inverse frequencies, and `attention_scaling` is the factor of its
    cosines and sines. With `from_anchor` the anchor's own slot predicts too, and every slot the token behind it.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    layers: int
    vocab: int
    own_vocab: int
    eps: float
    reads: tuple[int, ...]
    block: int
    mask: int
    inverse: torch.Tensor = field(compare=False)
    attention_scaling: float = 1.0
    biased: bool = False
    from_anchor: bool = False

    @property
    def silent(self) -> int:
        """How many of a block's first slots predict nothing: the anchor's own, or none."""
        return 0 if self.from_anchor else 1


class DFlashLayer(nn.Module):
    """One layer, its parts under their published names."""

    def __init__(self, sizes: DFlashSizes):
        super().__init__()
        hidden, width, keys = sizes.hidden, sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.input_layernorm, self.post_attention_layernorm = Norm(hidden, sizes.eps), Norm(hidden, sizes.eps)
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(hidden, width, bias=sizes.biased),
                "k_proj": nn.Linear(hidden, keys, bias=sizes.biased),
                "v_proj": nn.Linear(hidden, keys, bias=sizes.biased),
                "o_proj": nn.Linear(width, hidden, bias=sizes.biased),
                "q_norm": Norm(sizes.head_dim, sizes.eps),
                "k_norm": Norm(sizes.head_dim, sizes.eps),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": Linear(hidden, sizes.mlp),
                "up_proj": Linear(hidden, sizes.mlp),
                "down_proj": Linear(sizes.mlp, hidden),
            }
        )

    def heads(self, name: str, entering: torch.Tensor, head_dim: int) -> torch.Tensor:
        """Queries, keys or values `[N, heads, head_dim]` of `entering [N, H]`, by the first letter of their name."""
        found = self.self_attn[f"{name}_proj"](entering).view(len(entering), -1, head_dim)
        return found if name == "v" else self.self_attn[f"{name}_norm"](found)

    def finish(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The residual stream `[N, H]` after this layer, from `x [N, H]` and `attended [N, heads * head_dim]`."""
        x = x + self.self_attn["o_proj"](attended)
        within = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](within)) * self.mlp["up_proj"](within))


class DFlash(Net):
    kind = "dflash"

    def __init__(
        self,
        sizes: DFlashSizes,
        embedding: torch.Tensor,
        head: torch.Tensor,
        vocabulary: torch.Tensor,
        published: dict[str, Any],
    ):
        """`embedding [V, H]` and `head [own_vocab, H]` are the drafter's own or the target's.

        `vocabulary [own_vocab]` holds the target's ids of the tokens that the head guesses. `published` is the config that gave the
        sizes.
        """
        config = NetConfig(
            self.kind, sizes.hidden, sizes.heads, sizes.mlp, sizes.layers, sizes.block - sizes.silent, sizes.vocab,
            own_vocab=sizes.own_vocab,
        )  # fmt: skip
        super().__init__(config, embedding, head)
        self.sizes, self.reads, self.published = sizes, sizes.reads, published
        self.fc = Linear(len(sizes.reads) * sizes.hidden, sizes.hidden)
        self.hidden_norm, self.norm = Norm(sizes.hidden, sizes.eps), Norm(sizes.hidden, sizes.eps)
        self.layers = nn.ModuleList(DFlashLayer(sizes) for _ in range(sizes.layers))
        self.rotary = Rotary(sizes.head_dim, 1.0)
        self.rotary.inverse.copy_(torch.cat([sizes.inverse, sizes.inverse]))
        self.register_buffer("vocabulary", vocabulary, persistent=False)

    def packed(self) -> CompiledDFlash | None:
        """None for a net that is too large for one thread, and for an MLP of odd width, which `kernels/layer.py` cannot split."""
        read = self.head.numel() + sum(each.numel() for each in self.parameters())
        return None if read > LARGEST or self.sizes.mlp % 2 else CompiledDFlash(self)

    def described(self) -> dict[str, Any]:
        return self.published

    def bias(self, tokens: torch.Tensor) -> torch.Tensor:
        """What is added to the logits behind `tokens [...]`: nothing, because a slot does not know which token stands before it."""
        return self.head.new_zeros(())

    def turned(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """`x [N, heads, head_dim]`, rotated by `positions [N]`."""
        cosines, sines = (each * self.sizes.attention_scaling for each in self.rotary(positions))
        return x * cosines + x.roll(self.sizes.head_dim // 2, -1) * sines

    def write(self, layer: DFlashLayer, entering: torch.Tensor, positions: torch.Tensor, kv: torch.Tensor, rows: int):
        """Write the keys and values of `entering [N, H]` into `kv [2, kv_heads, capacity, head_dim]`, behind its first `rows`."""
        end, width = rows + len(entering), self.sizes.head_dim
        kv[0, :, rows:end] = self.turned(layer.heads("k", entering, width), positions).transpose(0, 1)
        kv[1, :, rows:end] = layer.heads("v", entering, width).transpose(0, 1)

    def read(self, features: torch.Tensor, positions: torch.Tensor, kv: torch.Tensor, rows: int) -> None:
        """Write the context's rows into the `kv` of all layers, behind the first `rows`.

        `features [N, taps + 1, H]` are those of the tokens at `positions [N]`; the last feature is not read.
        """
        context = self.hidden_norm(self.fc(features[:, : len(self.reads)].flatten(1)))
        for layer, cached in zip(self.layers, kv, strict=True):
            self.write(layer, context, positions, cached, rows)

    def log_q(self, anchor: int, position: int, kv: torch.Tensor, rows: int) -> torch.Tensor:
        """Log-probabilities `[depth, V]` of the tokens behind the `anchor` at `position`; -inf for tokens that the net lacks.

        Its `kv` has `rows` rows of context. The block's rows are written behind them.
        """
        sizes, device = self.sizes, self.embedding.device
        tokens = torch.tensor([anchor, *[sizes.mask] * (sizes.block - 1)], device=device)
        positions = torch.arange(position, position + sizes.block, device=device)
        x, end = F.embedding(tokens, self.embedding), rows + sizes.block
        for layer, cached in zip(self.layers, kv, strict=True):
            entering = layer.input_layernorm(x)
            self.write(layer, entering, positions, cached, rows)
            queries = self.turned(layer.heads("q", entering, sizes.head_dim), positions).transpose(0, 1)
            attended = F.scaled_dot_product_attention(
                queries[None], cached[None, 0, :, :end], cached[None, 1, :, :end], enable_gqa=True
            )
            x = layer.finish(x, attended[0].transpose(0, 1).flatten(1))
        own = F.linear(self.norm(x[sizes.silent :]), self.head).log_softmax(-1)
        return own.new_full((len(own), sizes.vocab), -torch.inf).index_copy_(1, self.vocabulary, own)
