"""A Llama forward without transformers' modules, on weights laid out for the CPU. Tested equal to the transformers path.

On two cores a small model spends much of a forward in module overhead and in badly laid out matrix products; without them an 8-node
verification costs little more than one token, which is what lets a tree win there (`python -m engine.bench` measures it).
"""

import statistics
import time

import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM, PreTrainedModel

from engine.cache import KVCache
from engine.products import pack, packed_product

ROWS, REPEATS = (1, 2, 4, 8, 16), 6  # numbers of rows at which both layouts are timed, and how often


def serves(model: PreTrainedModel) -> bool:
    """Whether the lean forward computes exactly this model: plain Llama in float32 on a CPU."""
    config = model.config
    return (
        type(model) is LlamaForCausalLM
        and model.device.type == "cpu"
        and all(parameter.dtype == torch.float32 for parameter in model.parameters())
        and getattr(model, "hf_quantizer", None) is None
        and not config.attention_bias
        and not config.mlp_bias
        and config.hidden_act == "silu"
        and model.model.rotary_emb.rope_type == "default"
    )


class Weight:
    """One matrix `[out, in]` as it is and packed. Which product is faster depends on the machine, the matrix and the rows."""

    def __init__(self, weight: torch.Tensor):
        self.plain, self.packed = weight.detach().contiguous(), pack(weight)

    def __call__(self, x: torch.Tensor, packed: bool) -> torch.Tensor:
        """`x [N, in]` times the transposed matrix, `[N, out]`."""
        return packed_product(x, self.packed) if packed else F.linear(x, self.plain)


class LeanLlama:
    """The weights of a `LlamaForCausalLM`, query/key/value and gate/up fused, and one function over them.

    `packed_from` is the number of rows from which packed weights win; `calibrate` measures it, for every lane alike.
    """

    def __init__(self, model: LlamaForCausalLM, packed_from: int | None = None):
        config = model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps, self.hidden, self.mlp = config.rms_norm_eps, config.hidden_size, config.intermediate_size
        self.embedding = model.model.embed_tokens.weight.detach()
        self.layers = []
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            self.layers.append(
                (
                    layer.input_layernorm.weight.detach(),
                    Weight(torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])),
                    Weight(attention.o_proj.weight),
                    layer.post_attention_layernorm.weight.detach(),
                    Weight(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])),
                    Weight(mlp.down_proj.weight),
                )
            )
        self.norm, self.head = model.model.norm.weight.detach(), Weight(model.lm_head.weight)
        angles = torch.arange(config.max_position_embeddings).float()[:, None] * model.model.rotary_emb.inv_freq.float()
        sign = torch.cat([-torch.ones(self.head_dim // 2), torch.ones(self.head_dim // 2)])
        self.cos = torch.cat([angles.cos()] * 2, -1)[:, None]  # [context, 1, head_dim]
        self.sin = (torch.cat([angles.sin()] * 2, -1) * sign)[:, None]
        self.packed_from = self.calibrate() if packed_from is None else packed_from

    @torch.inference_mode()
    def calibrate(self) -> int:
        """The smallest of `ROWS` from which on packed weights are the faster ones here, by interleaved medians."""
        cache = KVCache(len(self.layers), self.kv_heads, self.head_dim, max(ROWS), torch.float32, torch.device("cpu"))
        winner_from = max(ROWS) + 1
        for rows in reversed(ROWS):
            ids = torch.zeros(rows, dtype=torch.long)
            seconds: dict[int, list[float]] = {1: [], max(ROWS) + 1: []}
            for _ in range(REPEATS):
                for self.packed_from, times in seconds.items():
                    start = time.perf_counter()
                    self(cache, ids, ids, None, last_only=False)
                    times.append(time.perf_counter() - start)
            packed, plain = (statistics.median(times[1:]) for times in seconds.values())
            if packed >= plain:
                break
            winner_from = rows
        return winner_from

    def __call__(
        self,
        cache: KVCache,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None,
        last_only: bool,
        taps: tuple[int, ...] = (),
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits `[N, V]` of `ids [N]` at `positions [N]`, writing their rows behind the cache's committed ones; and, with `taps`,
        the hidden states behind these layers and behind the final norm, `[N, taps + 1, H]`.

        `mask` is additive `[N, rows + N]`, or None when every query may see every key.
        """
        count, heads, kv_heads, width = ids.shape[0], self.heads, self.kv_heads, self.head_dim
        start, end = cache.rows, cache.rows + count
        packed = count >= self.packed_from
        cos, sin, shape = self.cos[positions], self.sin[positions], (self.hidden,)
        x, tapped = F.embedding(ids, self.embedding), []
        for layer, (norm1, qkv_weight, out_weight, norm2, gate_up_weight, down_weight) in enumerate(self.layers):
            qkv = qkv_weight(F.rms_norm(x, shape, norm1, self.eps), packed).view(count, heads + 2 * kv_heads, width)
            rotated = qkv[:, : heads + kv_heads]
            rotated = torch.addcmul(rotated * cos, rotated.roll(width // 2, -1), sin)
            keys, values = cache.kv[layer].unbind(0)
            keys[:, start:end] = rotated[:, heads:].transpose(0, 1)
            values[:, start:end] = qkv[:, heads + kv_heads :].transpose(0, 1)
            attended = F.scaled_dot_product_attention(
                rotated[:, :heads].transpose(0, 1)[None],
                keys[None, :, :end],
                values[None, :, :end],
                attn_mask=mask,
                enable_gqa=heads != kv_heads,
            )
            x = x + out_weight(attended[0].transpose(0, 1).reshape(count, heads * width), packed)
            gate_up = gate_up_weight(F.rms_norm(x, shape, norm2, self.eps), packed)
            x = x + down_weight(F.silu(gate_up[:, : self.mlp]).mul_(gate_up[:, self.mlp :]), packed)
            tapped += [x] * taps.count(layer + 1)
        if last_only and not taps:
            x = x[-1:]
        x = F.rms_norm(x, shape, self.norm, self.eps)
        return self.head(x[-1:] if last_only else x, packed), torch.stack([*tapped, x], 1) if taps else None
