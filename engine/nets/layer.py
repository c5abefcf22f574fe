"""Layer: what nets are built from, a Llama layer with explicit masks, rotary tables, saving and loading."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.kernels.attention import rotation_table_of
from engine.kernels.eight_bit import EightBit
from engine.kernels.stack import LayerWeights, fold_norm_into_matrix

EPS = 1e-6  # of the norms in nets that are trained here
FEATURES = 3  # hidden states of an early, a middle and a late layer; the fourth feature, the final norm's output, is not counted

Turned = tuple[Tensor, Tensor]  # a `Rotary`'s cosines and sines
N = TypeVar("N", bound="Net")
Linear = partial(nn.Linear, bias=False)
ANEW = "Fetch its files anew, or train it with `python -m engine train`."


@dataclass(frozen=True)
class NetConfig:
    """A learned drafter's sizes; `vocab` and `rope_theta` are its target's.

    `depth` is the number of positions that it was trained for. `own_vocab` is the size of its own vocabulary, 0 without one.
    `hidden` is the target's too, unless `target_hidden` says another size: then the net has a width of its own.
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
    target_hidden: int = 0

    @property
    def feature_size(self) -> int:
        """The target's hidden size, which is that of the features."""
        return self.target_hidden or self.hidden

    @classmethod
    def load_fitting(cls, folder: Path, embedding: Tensor) -> "NetConfig":
        """The sizes in `folder/config.json`. Raises `ValueError` when they are not those of the target's `embedding [V, H]`."""
        try:
            config = cls(**json.loads((folder / "config.json").read_text("utf-8")))
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"{folder}/config.json holds no drafter's sizes: {error}. {ANEW}") from error
        if (config.vocab, config.feature_size) != tuple(embedding.shape):
            raise ValueError(
                f"The drafter in {folder} was trained for a target of {config.vocab} tokens and hidden size {config.feature_size}, "
                f"this one has {embedding.shape[0]} and {embedding.shape[1]}. Train it with `python -m engine train {config.kind}`."
            )
        return config

    def to_transformers_names(self) -> dict[str, Any]:
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


def divide_by_length(x: Tensor, least_length: Tensor) -> Tensor:
    """`x [..., n]` divided by its length, which `least_length []` = sqrt(n eps) keeps from zero: a plain RMS norm in a third of the
    time.
    """
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(least_length)


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float = EPS):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps
        self.register_buffer("least", torch.tensor((size * eps) ** 0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight
        return divide_by_length(x, self.least) * (self.weight * x.shape[-1] ** 0.5)


class Rotary(nn.Module):
    """Rotary tables: `forward(positions [...])` gives cosines and sines, each `[..., 1, head_dim]`. The sines carry the sign."""

    def __init__(self, inverse: Tensor, scaling: float = 1.0):
        """`inverse [head_dim / 2]` are the inverse frequencies, and `scaling` is the factor of cosines and sines."""
        super().__init__()
        half, self.scaling = len(inverse), scaling
        self.register_buffer("inverse", torch.cat([inverse, inverse]), persistent=False)
        sign = torch.cat([-torch.ones(half), torch.ones(half)])
        self.register_buffer("sign", sign * scaling, persistent=False)
        self.known = np.zeros((0, 2, half), np.float32)

    @classmethod
    def plain(cls, head_dim: int, theta: float) -> "Rotary":
        return cls(theta ** -(torch.arange(0, head_dim, 2).float() / head_dim))

    def rotation_table(self, capacity: int) -> np.ndarray:
        """Cosines and sines `[>= capacity + 1, 2, head_dim / 2]`, one more than rows because a stream may begin at position 1."""
        if capacity >= len(self.known):
            turns = rotation_table_of(torch.arange(capacity + 1), self.inverse[: self.known.shape[2]])
            self.known = (turns * self.scaling).numpy()
        return self.known

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[..., None, None].float() * self.inverse
        cosines = angles.cos()
        return cosines if self.scaling == 1 else cosines * self.scaling, angles.sin() * self.sign


def rotate_heads(heads: Tensor, rotary: Turned) -> Tensor:
    """`heads [..., heads, head_dim]`, each turned by its position."""
    return heads * rotary[0] + heads.roll(heads.shape[-1] // 2, -1) * rotary[1]


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


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    kv: Tensor | None = None,
    rows: int | Tensor = 0,
) -> Tensor:
    """Attention `[B, heads, N, head_dim]` of `queries` over `keys` and `values`, each `[B, heads, N, head_dim]`.

    With `kv`, for B = 1, keys and values are written as in `write_kv_rows`, and queries see the rows before their end too. `mask` is
    bool (True: may attend) or additive, broadcastable to `[B, heads, N, end]`.
    """
    if kv is not None:
        end = write_kv_rows(keys, values, kv, rows)
        keys, values = kv[None, 0, :, :end], kv[None, 1, :, :end]
    grouped = queries.shape[1] != keys.shape[1]
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=grouped)


class Layer(nn.Module):
    """A Llama layer: attention and a gated MLP. Its matrices are joined where they read the same.

    The residual stream `x` has `hidden` columns. The caller makes and norms what is `entering` attention, in `inputs` columns, because
    drafters feed it more than the stream.
    """

    def __init__(self, hidden: int, heads: int, mlp: int, inputs: int | None = None, form: Any = None):
        """A `form` says `kv_heads`, `head_dim`, `eps` and `head_norms`. Without one, heads are equal and `hidden / heads` wide."""
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, heads, hidden // heads
        eps, head_norms = EPS, False
        if form:
            self.kv_heads, self.head_dim, eps, head_norms = form.kv_heads, form.head_dim, form.eps, form.head_norms
        self.qkv = Linear(inputs or hidden, (heads + 2 * self.kv_heads) * self.head_dim)
        self.out = Linear(heads * self.head_dim, hidden)
        self.norm = RMSNorm(hidden, eps)
        self.gate_up = Linear(hidden, 2 * mlp)
        self.down = Linear(mlp, hidden)
        self.norm_q = RMSNorm(self.head_dim, eps) if head_norms else None
        self.norm_k = RMSNorm(self.head_dim, eps) if head_norms else None
        for matrix in (self.qkv, self.gate_up):
            nn.init.normal_(matrix.weight, std=0.02)
        for matrix in (self.out, self.down):
            nn.init.normal_(matrix.weight, std=0.01)

    def project_qkv(self, entering: Tensor, rotary: Turned) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries, rotated keys and values of `entering [B, N, inputs]`, each `[B, heads, N, head_dim]`."""
        counts = [self.heads, self.kv_heads]
        turned, values = self.qkv(entering).unflatten(-1, (-1, self.head_dim)).split([sum(counts), self.kv_heads], 2)
        if self.norm_q and self.norm_k:
            queries, keys = turned.split(counts, 2)
            turned = torch.cat([self.norm_q(queries), self.norm_k(keys)], 2)
        queries, keys = rotate_heads(turned, rotary).transpose(1, 2).split(counts, 1)
        return queries, keys, values.transpose(1, 2)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The residual stream `[B, N, H]` after this layer, from `x [B, N, H]` and `attended [B, heads, N, head_dim]`."""
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def forward(
        self,
        x: Tensor,
        entering: Tensor,
        rotary: Turned,
        mask: Tensor | None,
        kv: Tensor | None = None,
        rows: int | Tensor = 0,
    ) -> Tensor:
        """`x [B, N, H]` after attention and MLP. `mask`, `kv` and `rows` are as in `attend`."""
        return self.finish(x, attend(*self.project_qkv(entering, rotary), mask, kv, rows))

    def to_eight_bits(self, norm: RMSNorm, qkv: Tensor | None = None) -> LayerWeights:
        """The layer as compiled loops take it. `norm` is that of `entering`, and `qkv` are the columns that read it, None for all."""
        return LayerWeights(
            fold_norm_into_matrix(self.qkv.weight if qkv is None else qkv, norm.weight),
            EightBit.of(self.out.weight),
            fold_norm_into_matrix(self.gate_up.weight, self.norm.weight),
            EightBit.of(self.down.weight),
        )


class Net(nn.Module):
    """A learned drafter's weights. The target's embedding `[V, H]` and LM head `[V, H]` are shared, frozen and never saved.

    On a GPU they stay the target's own tensors, in its type: copies in float32 would take gigabytes. On a CPU they are float32.

    A net with a width of its own has `tables` of its own, `[V, hidden]`, trained and saved, or the target's made narrower.
    """

    tables: tuple[str, ...] = ("embedding",)  # which of the two a net reads after it was made
    names: Mapping[str, str] = MappingProxyType({})  # what files call a weight, where that is another name

    def __init__(self, config: NetConfig, embedding: Tensor, head: Tensor):
        """`embedding [V, hidden]` and `head [V, hidden]` are the target's, or what tables of the net's own start from."""
        super().__init__()
        self.config = config
        for name, shared in (("embedding", embedding.detach()), ("head", head.detach())):
            if config.target_hidden and name in self.tables:
                self.register_parameter(name, nn.Parameter(shared.float().clone()))
            else:
                kept = shared if shared.is_cuda or shared.is_mps else shared.float()
                self.register_buffer(name, kept, persistent=False)

    @classmethod
    def blank(cls: type[N], config: NetConfig, embedding: Tensor, head: Tensor) -> N:
        """A net whose stored weights are yet to be read, for a target with `embedding [V, H]` and `head [V, H]`."""
        if config.target_hidden:
            embedding = head = embedding.new_empty(config.vocab, config.hidden)
        return cls(config, embedding, head)

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        """The embeddings `[..., hidden]` of `tokens [...]`, float32."""
        return F.embedding(tokens, self.embedding).float()

    def apply_lm_head(self, x: Tensor) -> Tensor:
        """Logits `[..., V]` of states `[..., hidden]` by the head, in float32. The product has the head's type."""
        return F.linear(x.to(self.head.dtype), self.head).float()

    compiled: Any = None  # what `build_compiled` made

    def build_compiled(self) -> object:
        """The net in eight bits and compiled loops, for a CPU: rounding costs acceptance, not exactness. None without such loops."""
        return None

    def pack(self: N) -> N:
        """Copy the weights into `compiled`, on a CPU. Call it again after they have changed."""
        self.compiled = self.build_compiled() if self.embedding.device.type == "cpu" else None
        return self

    def prepare_for_drafting(self: N, device: torch.device) -> N:
        """The net on the device and packed. Nothing of it learns."""
        return self.to(device).eval().requires_grad_(False).pack()

    def to_config(self) -> dict[str, Any]:
        """What `config.json` says of the net."""
        said = asdict(self.config)
        return said if self.config.target_hidden else {name: said[name] for name in said if name != "target_hidden"}

    def save(self, folder: Path) -> None:
        """Write `config.json` and float16 `model.safetensors`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.to_config(), indent=1) + "\n")
        save_file(self.tensors_to_save(), folder / "model.safetensors")

    def tensors_to_save(self) -> dict[str, Tensor]:
        """The tensors of its file by their names there."""
        weights = {name: each.half() if each.is_floating_point() else each for name, each in self.state_dict().items()}
        return {self.names.get(name, name): each.contiguous().cpu() for name, each in weights.items()}

    @classmethod
    def load(cls, folder: Path, embedding: Tensor, head: Tensor) -> "Net":
        """Raises `ValueError` when the files do not fit this class or the target."""
        net = cls.blank(NetConfig.load_fitting(folder, embedding), embedding, head)
        try:
            stored = load_file(folder / "model.safetensors")
            if net.config.target_hidden and not set(net.tables) & set(stored):
                replace_shared_tables(net, embedding, head)
            net.load_state_dict({name: each.float() for name, each in stored.items()})
        except (RuntimeError, OSError, SafetensorError) as error:
            last = str(error).splitlines()[-1].strip().rstrip(".")
            raise ValueError(f"{folder} holds no {net.config.kind} drafter: {last}. {ANEW}") from error
        return net.prepare_for_drafting(embedding.device)


def embedding_and_head_of(target: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """The target's embedding and head, each `[V, H]`."""
    return target.get_input_embeddings().weight, target.get_output_embeddings().weight


def narrow_table(table: Tensor, hidden: int) -> Tensor:
    """`[V, hidden]` float32: means of H / hidden numbers of `table [V, H]`. Raises `ValueError` where H is no multiple of `hidden`."""
    if table.shape[1] % hidden:
        raise ValueError(
            f"A drafter with a hidden size of {hidden} cannot share the tables of a target with {table.shape[1]}, which is no "
            "multiple of it. Train it with tables of its own, or with another --hidden."
        )
    return table.detach().float().view(len(table), -1, hidden).mean(1)


def replace_shared_tables(net: Net, embedding: Tensor, head: Tensor) -> None:
    """Puts the target's tables, each `[V, H]` and cut by `narrow_table`, in place of the net's own.

    They are not trained and not saved.
    """
    for name, table in (("embedding", embedding), ("head", head)):
        if name in net.tables:
            rows = len(getattr(net, name))
            delattr(net, name)
            shared = narrow_table(table, net.config.hidden)
            net.register_buffer(name, shared if rows == len(shared) else shared[net.vocabulary], persistent=False)
