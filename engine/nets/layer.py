"""Layer: what nets are built from, a Llama layer with explicit masks, rotary tables, saving and loading. Knows tensors; knows no tree,
no target model's class and no training."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from engine.kernels.attention import turns_of
from engine.kernels.layer import LayerWeights

FEATURES = 3  # hidden states of an early, a middle and a late layer; the fourth feature, the final norm's output, is not counted


ANEW = "Fetch its files anew, or train it with `python -m engine train`."


@dataclass(frozen=True)
class NetConfig:
    """A learned drafter's sizes; `hidden`, `heads`, `vocab` and `rope_theta` are its target's.

    `depth` is the number of positions that it was trained for. `own_vocab` is the size of its own vocabulary, 0 without one.
    """

    kind: str
    hidden: int
    heads: int
    mlp: int
    layers: int
    depth: int
    vocab: int
    rope_theta: float = 10000.0
    own_vocab: int = 0

    @classmethod
    def fitting(cls, folder: Path, embedding: torch.Tensor) -> "NetConfig":
        """The sizes in `folder/config.json`. Raises `ValueError` when they are not those of the target's `embedding [V, H]`."""
        try:
            config = cls(**json.loads((folder / "config.json").read_text("utf-8")))
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"{folder}/config.json holds no drafter's sizes: {error}. {ANEW}") from error
        if (config.vocab, config.hidden) != tuple(embedding.shape):
            raise ValueError(
                f"The drafter in {folder} was trained for a target of {config.vocab} tokens and hidden size {config.hidden}, this "
                f"one has {embedding.shape[0]} and {embedding.shape[1]}. Train it with `python -m engine train {config.kind}`."
            )
        return config

    def in_transformers(self) -> dict[str, Any]:
        """The sizes under the names of transformers' configurations, which published files use too."""
        return {
            "hidden_size": self.hidden,
            "intermediate_size": self.mlp,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "head_dim": self.hidden // self.heads,
            "num_hidden_layers": self.layers,
            "vocab_size": self.vocab,
            "rope_theta": self.rope_theta,
            "hidden_act": "silu",
            "attention_bias": False,
        }


class Linear(nn.Linear):
    """A matrix without bias."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, bias=False)


def unit(x: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """`x [..., n]` divided by its length, which `least []` = sqrt(n eps) keeps from zero.

    It is an RMS norm without the weight and without the factor sqrt(n), and takes a third of the time.
    """
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(least)


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float = 1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps
        self.register_buffer("least", torch.tensor((size * eps) ** 0.5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight
        return unit(x, self.least) * (self.weight * x.shape[-1] ** 0.5)


class Rotary(nn.Module):
    """Rotary tables: `forward(positions [...])` gives cosines and sines, each `[..., 1, head_dim]`. The sines carry the sign."""

    def __init__(self, head_dim: int, theta: float):
        super().__init__()
        inverse = theta ** -(torch.arange(0, head_dim, 2).float() / head_dim)
        self.register_buffer("inverse", torch.cat([inverse, inverse]), persistent=False)
        sign = torch.cat([-torch.ones(head_dim // 2), torch.ones(head_dim // 2)])
        self.register_buffer("sign", sign, persistent=False)
        self.known = np.zeros((0, 2, head_dim // 2), np.float32)

    def turns(self, capacity: int) -> np.ndarray:
        """Cosines and sines `[>= capacity + 1, 2, head_dim / 2]`, one more than rows because a stream may begin at position 1."""
        if capacity >= len(self.known):
            self.known = turns_of(torch.arange(capacity + 1), self.inverse[: self.known.shape[2]]).numpy()
        return self.known

    def forward(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = positions[..., None, None].float() * self.inverse
        return angles.cos(), angles.sin() * self.sign


class Layer(nn.Module):
    """Attention and a gated MLP. `entering` has `inputs` columns; the residual stream `x` has `hidden`.

    The caller norms `entering`, because drafters feed attention more than the residual stream.
    """

    def __init__(self, hidden: int, heads: int, mlp: int, inputs: int | None = None):
        super().__init__()
        self.heads, self.mlp = heads, mlp
        self.qkv = Linear(inputs or hidden, 3 * hidden)
        self.out = Linear(hidden, hidden)
        self.norm = RMSNorm(hidden)
        self.gate_up = Linear(hidden, 2 * mlp)
        self.down = Linear(mlp, hidden)
        for matrix in (self.qkv, self.gate_up):
            nn.init.normal_(matrix.weight, std=0.02)
        for matrix in (self.out, self.down):
            nn.init.normal_(matrix.weight, std=0.01)

    def project(
        self, entering: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries, rotated keys and values of `entering [B, N, inputs]`, each `[B, heads, N, head_dim]`."""
        batch, count, _ = entering.shape
        qkv = self.qkv(entering).view(batch, count, 3 * self.heads, -1)
        rotated = qkv[:, :, : 2 * self.heads]
        rotated = rotated * rotary[0] + rotated.roll(qkv.shape[-1] // 2, -1) * rotary[1]
        queries, keys = rotated.transpose(1, 2).chunk(2, dim=1)
        return queries, keys, qkv[:, :, 2 * self.heads :].transpose(1, 2)

    def in_eight_bits(self) -> LayerWeights:
        """The matrices after the query/key/value product, as compiled loops take them."""
        root = len(self.norm.weight) ** 0.5
        return LayerWeights.of(self.out.weight, self.gate_up.weight * self.norm.weight * root, self.down.weight)

    def finish(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The residual stream `[B, N, H]` after this layer, from `x [B, N, H]` and `attended [B, heads, N, head_dim]`."""
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        gate_up = self.gate_up(self.norm(x))
        return x + self.down(F.silu(gate_up[..., : self.mlp]) * gate_up[..., self.mlp :])

    def forward(
        self,
        x: torch.Tensor,
        entering: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        kv: torch.Tensor | None = None,
        rows: int = 0,
    ) -> torch.Tensor:
        """`x [B, N, H]` after attention and MLP. `mask` is bool (True: may attend) or additive, broadcastable to `[B, heads, N, M]`.

        With `kv [2, heads, capacity, head_dim]`, for B = 1, the N new rows are written behind its first `rows` ones and M is rows + N.
        Without it M is N.
        """
        queries, keys, values = self.project(entering, rotary)
        if kv is not None:
            end = rows + keys.shape[2]
            kv[0, :, rows:end], kv[1, :, rows:end] = keys[0], values[0]
            keys, values = kv[None, 0, :, :end], kv[None, 1, :, :end]
        return self.finish(x, F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask))


class Net(nn.Module):
    """A learned drafter's weights. The target's embedding `[V, H]` and LM head `[V, H]` are shared, frozen and never saved."""

    def __init__(self, config: NetConfig, embedding: torch.Tensor, head: torch.Tensor):
        super().__init__()
        self.config = config
        self.register_buffer("embedding", embedding.detach().float(), persistent=False)
        self.register_buffer("head", head.detach().float(), persistent=False)

    compiled: Any = None  # what `packed` made

    def packed(self) -> object:
        """The weights as a CPU drafts with them: in eight bits and compiled loops. Rounding costs acceptance, not exactness."""
        raise NotImplementedError

    def pack(self) -> "Net":
        """Copy the weights into `compiled`, on a CPU. Call it again after they have changed."""
        self.compiled = self.packed() if self.embedding.device.type == "cpu" else None
        return self

    def described(self) -> dict[str, Any]:
        """What `config.json` says of the net."""
        return asdict(self.config)

    def save(self, folder: Path) -> None:
        """Write `config.json` and float16 `model.safetensors`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.described(), indent=1) + "\n")
        weights = {name: each.half() if each.is_floating_point() else each for name, each in self.state_dict().items()}
        save_file({name: each.contiguous().cpu() for name, each in weights.items()}, folder / "model.safetensors")

    @classmethod
    def load(cls, folder: Path, embedding: torch.Tensor, head: torch.Tensor) -> "Net":
        """Raises `ValueError` when the files do not fit this class or the target."""
        net = cls(NetConfig.fitting(folder, embedding), embedding, head)
        try:
            net.load_state_dict({name: each.float() for name, each in load_file(folder / "model.safetensors").items()})
        except (RuntimeError, OSError, SafetensorError) as error:
            last = str(error).splitlines()[-1].strip().rstrip(".")
            raise ValueError(f"{folder} holds no {net.config.kind} drafter: {last}. {ANEW}") from error
        return net.to(embedding.device).eval().requires_grad_(False).pack()
