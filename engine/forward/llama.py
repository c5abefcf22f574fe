"""The lean forward: Llama and its kin on a CPU, without transformers' modules. Knows weights and rows; knows no tree and no drafter.

On two cores a small model spends much of a forward in module overhead and in badly laid out matrix products. This forward has neither.
`engine.forward.llama_compiled` takes its place in float32 wherever compiled code runs. Tests hold it equal to the transformers path.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from engine.forward.cache import KVCache
from engine.forward.layer_ops import LayerOps, Sizes
from engine.forward.lighten import on_cpu
from engine.forward.products import Int8, pack, packed_product
from engine.kernels.attention import turns_of

FAMILIES = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
STEADY_ROPE = ("default", "linear", "llama3", "yarn")  # one table of angles for texts of any length
# The least elements in a draft's largest matrix, half the embedded draft's. Smaller drafts gain less than rounding costs in guesses.
EIGHT_BIT_FROM = 2**18
# A product's rows share one scale. A prompt's first row is so large that the others would be rounded away.
EIGHT_BIT_ROWS = 16


def serves(model: PreTrainedModel) -> bool:
    """Whether the lean forward computes exactly this model: one of `FAMILIES` on a CPU, with full attention in every layer."""
    config = model.config
    window = getattr(config, "sliding_window", None)
    return (
        type(model) in FAMILIES
        and on_cpu(model)
        and set(getattr(config, "layer_types", None) or ()) <= {"full_attention"}
        and (window is None or window >= config.max_position_embeddings)
        and config.hidden_act == "silu"
        and model.model.rotary_emb.rope_type in STEADY_ROPE
    )


def eight_bits_pay(draft: PreTrainedModel) -> bool:
    """Whether to compute a draft in eight bits, decided by its size.

    A timing could decide differently at the next load, and systems that draw from q would then write another text for the same seed.
    """
    if not serves(draft) or max(parameter.numel() for parameter in draft.parameters()) < EIGHT_BIT_FROM:
        return False
    try:
        Int8(torch.eye(64))
    except RuntimeError:
        return False
    return True


def rotations(model: PreTrainedModel, head_dim: int) -> torch.Tensor:
    """Cosines and sines by position, `[context, 2, head_dim / 2]`."""
    rotary = model.model.rotary_emb
    places = torch.arange(model.config.max_position_embeddings)
    return turns_of(places, rotary.inv_freq) * rotary.attention_scaling


def head_dim_of(config: PreTrainedConfig) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def head_norm_of(attention: nn.Module, config: PreTrainedConfig) -> torch.Tensor | None:
    """Weights `[heads + kv_heads, head_dim]` of the norms of queries and keys, times sqrt(head_dim); None without such norms."""
    if not hasattr(attention, "q_norm"):
        return None
    counts = ((attention.q_norm, config.num_attention_heads), (attention.k_norm, config.num_key_value_heads))
    return (
        torch.stack([norm.weight for norm, count in counts for _ in range(count)]).detach() * head_dim_of(config) ** 0.5
    )


class Weight:
    """The matrices of linear layers that read the same input, stacked `[out, in]`.

    `plain` is the stack as it is; `fast` is packed or in eight bits.
    """

    def __init__(self, *linears: nn.Linear, eight_bit: bool = False):
        weights, biases = [each.weight.detach() for each in linears], [each.bias for each in linears]
        self.plain = torch.cat(weights) if len(weights) > 1 else weights[0].contiguous()
        for linear, part in zip(linears, self.plain.split([len(weight) for weight in weights]), strict=True):
            linear.weight.data = part  # the module's weight becomes a view of the stack, so nothing is kept twice
        self.bias = None if biases[0] is None else torch.cat(biases).detach()
        self.fast: Any
        if eight_bit:
            self.fast = Int8(self.plain, None if self.bias is None else self.bias.float())
        else:
            self.fast = pack(self.plain)

    def __call__(self, x: torch.Tensor, fast: bool) -> torch.Tensor:
        """`x [N, in]` times the transposed matrix, plus the bias: `[N, out]`."""
        if not fast:
            return F.linear(x, self.plain, self.bias)
        if isinstance(self.fast, Int8):
            return self.fast(x.float()).to(x.dtype)
        return packed_product(x, self.fast, self.bias)


class LeanLlama:
    """The weights of a model of `FAMILIES`, with query/key/value and gate/up stacked, and one forward over them.

    `eight_bit` rounds the matrices to eight bits. It is for drafts only, where it changes guesses; in a target it would change the
    text.
    """

    def __init__(self, model: PreTrainedModel, eight_bit: bool = False):
        """Raises `RuntimeError` for `eight_bit` where this torch or this processor multiplies no eight-bit matrices."""
        config, self.dtype, self.eight_bit = model.config, model.dtype, eight_bit
        heads, kv_heads, hidden = config.num_attention_heads, config.num_key_value_heads, config.hidden_size
        head_dim = head_dim_of(config)
        self.embedding = model.model.embed_tokens.weight.detach()
        self.layers, norms, head_norms = [], [], []
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            norms += [layer.input_layernorm.weight, layer.post_attention_layernorm.weight]
            head_norms.append(head_norm_of(attention, config))
            self.layers.append(
                (
                    Weight(attention.q_proj, attention.k_proj, attention.v_proj, eight_bit=eight_bit),
                    Weight(attention.o_proj, eight_bit=eight_bit),
                    Weight(mlp.gate_proj, mlp.up_proj, eight_bit=eight_bit),
                    Weight(mlp.down_proj, eight_bit=eight_bit),
                )
            )
        norms.append(model.model.norm.weight)
        self.head = Weight(model.lm_head, eight_bit=eight_bit)
        self.cache_of = partial(KVCache, len(self.layers), kv_heads, head_dim, dtype=self.dtype, device=model.device)
        sizes = Sizes(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            norms=[each.detach() * hidden**0.5 for each in norms],
            head_norms=head_norms,
            turns=rotations(model, head_dim),
            least=(hidden * config.rms_norm_eps) ** 0.5,
            head_least=(head_dim * config.rms_norm_eps) ** 0.5,
        )
        self.ops = LayerOps(sizes, self.dtype)

    def __call__(
        self,
        cache: KVCache,
        ids: torch.Tensor,
        positions: torch.Tensor,
        visible: torch.Tensor | None,
        last_only: bool,
        taps: tuple[int, ...] = (),
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits `[N, V]` (`[1, V]` with `last_only`) of `ids [N]` at `positions [N]`, and with `taps` the features of `Session`.

        Their rows are written behind the cache's committed ones. `visible` bool `[N, M]` says which of the last M rows each may see;
        all see the rows before those. None is for a single query.
        """
        ops, fast = self.ops, not self.eight_bit or len(ids) <= EIGHT_BIT_ROWS
        where = ops.where(cache, positions, visible)
        x, tapped = self.embedding.index_select(0, ids), []
        normed = ops.first(x)
        for number, (qkv, out, gate_up, down) in enumerate(self.layers):
            x, normed = ops.added(x, out(ops.attended(qkv(normed, fast), number, where), fast), 2 * number + 1)
            x, normed = ops.added(x, down(ops.gated(gate_up(normed, fast)), fast), 2 * number + 2)
            tapped += [x] * taps.count(number + 1)
        logits = self.head(normed[-1:] if last_only else normed, fast)
        return logits, ops.features(tapped, normed) if taps else None
