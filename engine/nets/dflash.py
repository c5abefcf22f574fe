"""DFlash's net (z-lab/dflash `dflash/model.py`): a whole block of tokens from one forward over the target's features.

The context is one entry a token that the target has read, fused from layers of the target. A block stands behind it: the anchor, which
is the root, and mask tokens. Every layer takes keys and values from both, and queries from the block alone, which sees all of itself.
A published layer may have a window, or a block that is causal: its `BlockLayerMask` says so.
The slot at place k of the block predicts the token at that place, so no slot knows what another one guesses. In DSpark's form it
predicts the token behind that place.
"""

from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from engine.forward.cache import additive_mask
from engine.forward.layer_ops import expand_log_q_to_full_vocab
from engine.forward.llama_eight_bit import LARGEST
from engine.forward.llama_layer import Linear, RMSNorm, Rotary, TransformersNamedLayer, write_kv_rows
from engine.nets.dflash_compiled import CompiledDFlash
from engine.nets.layer import Net, NetConfig


class BlockLayerMask(NamedTuple):
    """Which rows the slots of a block attend to in a layer, as z-lab's `_attention_mask`. A row stands at its position.

    `window` is the number of positions, the slot's own included, 0 for all; in a block that is not `causal` it reaches as far ahead.
    """

    window: int = 0
    causal: bool = False

    def narrow_additive_block_mask(self, mask: Tensor | None, positions: Tensor, column_count: int) -> Tensor | None:
        """An additive mask `[block_size, column_count]` of slots at `positions [block_size]`: `mask [block_size or 1,
        column_count]`, and what this layer hides.
        """
        if not self.window and not self.causal:
            return mask
        away = positions[:, None] - torch.arange(column_count, device=positions.device)
        ahead = 0 if self.causal else self.window - 1
        seen = away >= -ahead
        if self.window:
            seen = seen & (away < self.window)
        hidden = additive_mask(seen, column_count)
        return hidden if mask is None else torch.minimum(hidden, mask)


@dataclass(frozen=True)
class DFlashSizes:
    """What a published config says. `vocab` is its target's, and so is `hidden`, unless `target_hidden` says another size.

    `reads_features` are the target's layers, by how many are behind each. `block_size` counts the anchor, and `mask_token_id` is
    that of its other slots. With `anchor_slot_predicts` the anchor's own slot predicts too, and every slot the token behind it.
    `layer_masks` has one for each layer, and is empty where every layer sees all.
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
    reads_features: tuple[int, ...]
    block_size: int
    mask_token_id: int
    rotary: Rotary = field(compare=False)
    attention_bias: bool = False
    anchor_slot_predicts: bool = False
    target_hidden: int = 0
    layer_masks: tuple[BlockLayerMask, ...] = ()

    @property
    def skipped_slots(self) -> int:
        """How many of a block's first slots predict nothing: the anchor's own, or none."""
        return 0 if self.anchor_slot_predicts else 1


def build_layer(sizes: DFlashSizes) -> TransformersNamedLayer:
    """A layer with weights still to come."""
    hidden, width, keys = sizes.hidden, sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    columns = {"q_proj": (hidden, width), "k_proj": (hidden, keys), "v_proj": (hidden, keys), "o_proj": (width, hidden)}
    attention = {name: nn.Linear(*size, bias=sizes.attention_bias) for name, size in columns.items()}
    norms = {name: RMSNorm(sizes.head_dim, sizes.eps) for name in ("q_norm", "k_norm")}
    gates = {name: Linear(hidden, sizes.mlp) for name in ("gate_proj", "up_proj")}
    part = SimpleNamespace(
        input_layernorm=RMSNorm(hidden, sizes.eps),
        post_attention_layernorm=RMSNorm(hidden, sizes.eps),
        self_attn=nn.ModuleDict({**attention, **norms}),
        mlp=nn.ModuleDict({**gates, "down_proj": Linear(sizes.mlp, hidden)}),
    )
    return TransformersNamedLayer(part, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.eps)


class DFlash(Net):
    kind = "dflash"
    used_table_names = "embedding", "head"
    file_name_by_weight = MappingProxyType({"embedding": "embed_tokens.weight", "head": "lm_head.weight"})

    def __init__(
        self, sizes: DFlashSizes, embedding: Tensor, head: Tensor, vocabulary: Tensor, published: dict[str, Any]
    ):
        """`embedding [V, hidden]` and `head [own_vocab, hidden]` are the drafter's own or the target's.

        `vocabulary [own_vocab]` holds the target's ids of guessed tokens, ascending in nets that are trained here. `published` is the
        config that gave the sizes.
        """
        config = NetConfig(
            self.kind, sizes.hidden, sizes.heads, sizes.mlp, sizes.layers, sizes.block_size - sizes.skipped_slots, sizes.vocab,
            own_vocab=sizes.own_vocab, target_hidden=sizes.target_hidden,
        )  # fmt: skip
        super().__init__(config, embedding, head)
        self.sizes, self.reads_features, self.published = sizes, sizes.reads_features, published
        self.fc = Linear(len(sizes.reads_features) * config.feature_size, sizes.hidden)
        self.hidden_norm, self.norm = RMSNorm(sizes.hidden, sizes.eps), RMSNorm(sizes.hidden, sizes.eps)
        self.layers = nn.ModuleList(build_layer(sizes) for _ in range(sizes.layers))
        self.rotary = sizes.rotary
        self.register_buffer("vocabulary", vocabulary, persistent=False)

    def build_compiled(self) -> CompiledDFlash | None:
        """None for a net that is too large for one thread, and for what `kernels/stack.py` lacks: MLPs of odd width, and windows."""
        weights = {name: each for name, each in self.named_parameters() if name not in self.used_table_names}
        read = self.head.numel() + sum(each.numel() for each in weights.values())
        return None if read > LARGEST or self.sizes.mlp % 2 or self.sizes.layer_masks else CompiledDFlash(self)

    def to_config(self) -> dict[str, Any]:
        return self.published

    def tensors_to_save(self) -> dict[str, Tensor]:
        if self.sizes.own_vocab == self.sizes.vocab:
            return super().tensors_to_save()
        return super().tensors_to_save() | {"d2t": self.vocabulary.cpu() - torch.arange(self.sizes.own_vocab)}

    def logit_bias_after(self, tokens: Tensor) -> Tensor:
        """What is added to the logits behind `tokens [...]`: nothing, because a slot does not know which token stands before it."""
        return self.head.new_zeros(())

    def write_context_kv_rows(self, features: Tensor, positions: Tensor, kv: Tensor, rows: int | Tensor) -> None:
        """Write the rows of `features [N, taps + 1, H]` at `positions [N]` into the `kv` of all layers, as `write_kv_rows`."""
        context = self.hidden_norm(self.fc(features[:, : len(self.reads_features)].flatten(1)))[None]
        rotary = self.rotary(positions)
        for layer, cached in zip(self.layers, kv, strict=True):
            keys, values = layer.project_and_rotate_kv(context, rotary)
            write_kv_rows(keys, values, cached, rows)

    def expand_slots_to_full_vocab(self, slots: Tensor) -> Tensor:
        """Log-probabilities `[depth, V]` of `slots`; -inf for tokens that the net lacks."""
        return expand_log_q_to_full_vocab(slots, self.vocabulary, self.sizes.vocab)

    def condition_on_tokens(self, slots: Tensor, tokens: list[int] | Tensor) -> Tensor:
        """Log-probabilities `[n, V]` behind `tokens [n]`, from rows of what `expand_slots_to_full_vocab` gave. They are the same."""
        return slots

    def forward_block_to_log_q(
        self, tokens: Tensor, positions: Tensor, mask: Tensor | None, kv: Tensor, start_rows: int | Tensor
    ) -> Tensor:
        """Log-probabilities `[depth, own_vocab]` of a block's `tokens [block_size]`, the anchor and mask tokens, at `positions
        [block_size]`.

        Its rows are written behind those of the context. `mask` and `start_rows` are as in `llama_layer.attend_with_optional_cache`.
        """
        x, rotary = self.embed_tokens(tokens)[None], self.rotary(positions)
        end = kv.shape[3] if isinstance(start_rows, Tensor) else start_rows + len(tokens)
        masks = self.sizes.layer_masks or (BlockLayerMask(),) * len(self.layers)
        for layer, cached, each in zip(self.layers, kv, masks, strict=True):
            x = layer(
                x, layer.norm_in(x), rotary, each.narrow_additive_block_mask(mask, positions, end), cached, start_rows
            )
        return self.apply_lm_head(self.norm(x[0, self.sizes.skipped_slots :])).log_softmax(-1)
