"""A Llama layer as tensors: RMS norm, rotary positions, attention over rows of a KV cache, and a gated MLP.

Learned drafters run it on every device, and models of `engine.forward.llama.FAMILIES` in forwards of fixed shapes. What differs is
handed in: the products of its matrices, the mask, and the rows. Rows are written behind a number of others, and attention ends with
them. Or a tensor names their slots, and attention reads the whole capacity, so that a CUDA graph can hold it.

A model's own forward on a CPU stays apart (`engine.forward.llama`). Through these layers it took a fifth more of a core's time.
"""

from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.kernels.attention import rotation_table_of
from engine.kernels.eight_bit import EightBitMatrix
from engine.kernels.stack import EightBitLayer, fold_norm_and_quantise

EPS = 1e-6  # of the norms in nets that are trained here

Rotation = tuple[Tensor, Tensor]  # a `Rotary`'s cosines and sines
Linear = partial(nn.Linear, bias=False)


@cache
def norm_floor_of(size: int, eps: float, dtype: torch.dtype) -> Tensor:
    """sqrt(size eps), which keeps the length of a vector of this size from zero."""
    return torch.tensor((size * eps) ** 0.5, dtype=dtype)


def floored_l2_norms_of(x: Tensor, eps: float) -> Tensor:
    """sqrt(|x|^2 + n eps) `[..., 1]` of `x [..., n]`."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(norm_floor_of(x.shape[-1], eps, x.dtype))


def normalise_rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm of `x [..., n]` with `weight [n]`: on a GPU a single kernel, and on a CPU the fewest operations."""
    if torch.is_grad_enabled():  # in training, where products may be bfloat16
        return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight
    if x.device.type != "cpu":
        return F.rms_norm(x, weight.shape, weight, eps)
    return x * (weight * x.shape[-1] ** 0.5) / floored_l2_norms_of(x, eps)


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float = EPS):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return normalise_rms(x, self.weight, self.eps)


class Rotary(nn.Module):
    """Rotary tables: `forward(positions [...])` gives cosines and sines, each `[..., 1, head_dim]`. The sines carry the sign."""

    def __init__(self, inverse_frequencies: Tensor, scaling: float = 1.0):
        """`inverse_frequencies [head_dim / 2]` are the inverse frequencies, and `scaling` is the factor of cosines and sines."""
        super().__init__()
        half, self.scaling = len(inverse_frequencies), scaling
        self.register_buffer("inverse", torch.cat([inverse_frequencies, inverse_frequencies]), persistent=False)
        sign = torch.cat([-torch.ones(half), torch.ones(half)]).to(inverse_frequencies.device)
        self.register_buffer("sign", sign * scaling, persistent=False)
        self.known = np.zeros((0, 2, half), np.float32)

    @classmethod
    def from_theta(cls, head_dim: int, theta: float) -> "Rotary":
        return cls(theta ** -(torch.arange(0, head_dim, 2).float() / head_dim))

    @classmethod
    def from_transformers(cls, rotary: Any) -> "Rotary":
        """As transformers' embedding of this kind."""
        return cls(rotary.inv_freq.float(), rotary.attention_scaling)

    def rotation_table(self, capacity: int) -> np.ndarray:
        """Cosines and sines `[>= capacity + 1, 2, head_dim / 2]`, one more than rows because a stream may begin at position 1."""
        if capacity >= len(self.known):
            turns = rotation_table_of(torch.arange(capacity + 1), self.inverse[: self.known.shape[2]])
            self.known = (turns * self.scaling).numpy()
        return self.known

    def forward(self, positions: Tensor) -> Rotation:
        angles = positions[..., None, None].float() * self.inverse
        cosines = angles.cos()
        return cosines if self.scaling == 1 else cosines * self.scaling, angles.sin() * self.sign


def rotate_heads(heads: Tensor, rotary: Rotation) -> Tensor:
    """`heads [..., heads, head_dim]`, each turned by its position."""
    return torch.addcmul(heads * rotary[0], heads.roll(heads.shape[-1] // 2, -1), rotary[1])


def write_kv_rows(keys: Tensor, values: Tensor, kv: Tensor, start_rows: int | Tensor) -> int:
    """Write keys and values `[1, kv_heads, N, head_dim]` into `kv [2, kv_heads, capacity, head_dim]`, behind its first `start_rows`
    rows.

    With a tensor `start_rows [N]` each has its own place. Returns up to where rows are seen: where the new ones end, else the capacity.
    """
    if isinstance(start_rows, Tensor):
        kv.index_copy_(2, start_rows, torch.cat([keys, values]))
        return kv.shape[2]
    end = start_rows + keys.shape[2]
    kv[0, :, start_rows:end], kv[1, :, start_rows:end] = keys[0], values[0]
    return end


def is_single_bfloat16_row_on_cpu(queries: Tensor) -> bool:
    """Whether `queries [B, heads, N, head_dim]` are a single row of bfloat16 on a CPU, which takes three times as long as two."""
    return queries.shape[2] == 1 and queries.dtype == torch.bfloat16 and queries.device.type == "cpu"


def attend_with_optional_cache(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    kv: Tensor | None = None,
    start_rows: int | Tensor = 0,
    scale: float | None = None,
) -> Tensor:
    """Attention `[B, heads, N, head_dim]` of `queries` over `keys` and `values`, each `[B, heads or kv_heads, N, head_dim]`.

    With `kv`, for B = 1, keys and values are written as in `write_kv_rows`, and queries see the rows before their end too. `mask` is
    bool (True: may attend) or additive, broadcastable to `[B, heads, N, end]`. With `heads / kv_heads * N` rows, the N rows once for
    each query head of a key head, query heads become rows of one query: keys and values are then read in place, and never copied.
    `scale` is the factor of scores, None for 1 / sqrt(head_dim).
    """
    if kv is not None:
        end = write_kv_rows(keys, values, kv, start_rows)
        keys, values = kv[None, 0, :, :end], kv[None, 1, :, :end]
    batch, heads, count, width = queries.shape
    grouped = heads != keys.shape[1]
    attention = partial(F.scaled_dot_product_attention, scale=scale)
    if grouped and mask is not None and mask.shape[-2] == heads // keys.shape[1] * count:
        folded = attention(queries.reshape(batch, keys.shape[1], -1, width), keys, values, attn_mask=mask)
        return folded.reshape(batch, heads, count, -1)
    if is_single_bfloat16_row_on_cpu(queries):
        queries = queries.expand(-1, -1, 2, -1)
    return attention(queries, keys, values, attn_mask=mask, enable_gqa=grouped)[:, :, :count]


class GatedDecoderLayer(nn.Module):
    """Attention and a gated MLP over a residual stream `x [B, N, H]`. Matrices are joined where they read the same.

    The caller makes and norms what is `entering` attention, because drafters feed it more than the stream.
    """

    def __init__(
        self, hidden: int, heads: int, mlp: int, attention_input_size: int | None = None, head_form: Any = None
    ):
        """A `head_form` says `kv_heads`, `head_dim`, `eps` and `has_head_norms`. Without one, heads are equal and `hidden / heads`
        wide.

        What is `entering` has `attention_input_size` columns, None for `hidden`.
        """
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, eps = heads, heads, hidden // heads, EPS
        if head_form:
            self.kv_heads, self.head_dim, eps = head_form.kv_heads, head_form.head_dim, head_form.eps
        self.qkv = Linear(attention_input_size or hidden, (heads + 2 * self.kv_heads) * self.head_dim)
        self.out = Linear(heads * self.head_dim, hidden)
        self.norm = RMSNorm(hidden, eps)
        self.gate_up = Linear(hidden, 2 * mlp)
        self.down = Linear(mlp, hidden)
        self.norm_q = RMSNorm(self.head_dim, eps) if head_form and head_form.has_head_norms else None
        self.norm_k = RMSNorm(self.head_dim, eps) if head_form and head_form.has_head_norms else None
        for matrix in (self.qkv, self.gate_up):
            nn.init.normal_(matrix.weight, std=0.02)
        for matrix in (self.out, self.down):
            nn.init.normal_(matrix.weight, std=0.01)

    def project_heads(self, entering: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys `[B, N, heads + kv_heads, head_dim]`, normed, and values `[B, N, kv_heads, head_dim]`."""
        heads = self.qkv(entering).unflatten(-1, (-1, self.head_dim))
        both, values = heads.split([self.heads + self.kv_heads, self.kv_heads], 2)
        if self.norm_q and self.norm_k:
            queries, keys = both.split([self.heads, self.kv_heads], 2)
            both = torch.cat([self.norm_q(queries), self.norm_k(keys)], 2)
        return both, values

    def project_out(self, attended: Tensor) -> Tensor:
        """`[B, N, H]` of what heads found, `[B, N, heads * head_dim]`."""
        return self.out(attended)

    def norm_and_apply_mlp(self, x: Tensor) -> Tensor:
        """`[B, N, H]` of the stream `x`, which is normed first."""
        gate, up = self.gate_up(self.norm(x)).chunk(2, -1)
        return self.down(F.silu(gate) * up)

    def project_and_rotate_qkv(self, entering: Tensor, rotary: Rotation) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries, rotated keys and values of `entering [B, N, inputs]`, each `[B, heads, N, head_dim]`."""
        both, values = self.project_heads(entering)
        queries, keys = rotate_heads(both, rotary).transpose(1, 2).split([self.heads, self.kv_heads], 1)
        return queries, keys, values.transpose(1, 2)

    def add_attention_and_mlp(self, x: Tensor, attended: Tensor) -> Tensor:
        """The residual stream `[B, N, H]` after this layer, from `x [B, N, H]` and `attended [B, heads, N, head_dim]`."""
        x = x + self.project_out(attended.transpose(1, 2).flatten(2))
        return x + self.norm_and_apply_mlp(x)

    def forward(
        self,
        x: Tensor,
        entering: Tensor,
        rotary: Rotation,
        mask: Tensor | None,
        kv: Tensor | None = None,
        start_rows: int | Tensor = 0,
    ) -> Tensor:
        """`x [B, N, H]` after attention and MLP. `mask`, `kv` and `start_rows` are as in `attend_with_optional_cache`."""
        return self.add_attention_and_mlp(
            x, attend_with_optional_cache(*self.project_and_rotate_qkv(entering, rotary), mask, kv, start_rows)
        )

    def to_eight_bits(self, norm: RMSNorm, qkv: Tensor | None = None) -> EightBitLayer:
        """The layer as compiled loops take it. `norm` is that of `entering`, and `qkv` are the columns that read it, None for all."""
        return EightBitLayer(
            fold_norm_and_quantise(self.qkv.weight if qkv is None else qkv, norm.weight),
            EightBitMatrix.quantise(self.out.weight),
            fold_norm_and_quantise(self.gate_up.weight, self.norm.weight),
            EightBitMatrix.quantise(self.down.weight),
        )


class TransformersNamedLayer(GatedDecoderLayer):
    """A layer whose matrices are apart, in modules with the names that transformers gives them."""

    def __init__(self, modules: Any, heads: int, kv_heads: int, head_dim: int, eps: float):
        """`modules` holds the modules, as one of transformers' layers does. They are shared and not copied."""
        nn.Module.__init__(self)  # none of the joined matrices
        self.heads, self.kv_heads, self.head_dim, self.eps = heads, kv_heads, head_dim, eps
        self.self_attn, self.mlp, self.norms_heads = (
            modules.self_attn,
            modules.mlp,
            hasattr(modules.self_attn, "q_norm"),
        )
        self.input_layernorm, self.post_attention_layernorm = modules.input_layernorm, modules.post_attention_layernorm

    def norm_in(self, x: Tensor) -> Tensor:
        """What enters attention, of the stream `x` alone."""
        return normalise_rms(x, self.input_layernorm.weight, self.eps)

    def project_normed_heads_by_letter(self, letter: str, entering: Tensor) -> Tensor:
        """Queries, keys or values `[B, N, heads, head_dim]` by their first letter, normed where the layer norms them."""
        heads = getattr(self.self_attn, f"{letter}_proj")(entering).unflatten(-1, (-1, self.head_dim))
        if letter == "v" or not self.norms_heads:
            return heads
        return normalise_rms(heads, getattr(self.self_attn, f"{letter}_norm").weight, self.eps)

    def project_heads(self, entering: Tensor) -> tuple[Tensor, Tensor]:
        queries, keys, values = (self.project_normed_heads_by_letter(letter, entering) for letter in "qkv")
        return torch.cat([queries, keys], 2), values

    def project_and_rotate_kv(self, entering: Tensor, rotary: Rotation) -> tuple[Tensor, Tensor]:
        """Rotated keys and values `[B, kv_heads, N, head_dim]` of `entering [B, N, H]`."""
        keys = rotate_heads(self.project_normed_heads_by_letter("k", entering), rotary)
        return keys.transpose(1, 2), self.project_normed_heads_by_letter("v", entering).transpose(1, 2)

    def project_out(self, attended: Tensor) -> Tensor:
        return self.self_attn.o_proj(attended)

    def norm_and_apply_mlp(self, x: Tensor) -> Tensor:
        within = normalise_rms(x, self.post_attention_layernorm.weight, self.eps)
        return self.mlp.down_proj(F.silu(self.mlp.gate_proj(within)) * self.mlp.up_proj(within))
