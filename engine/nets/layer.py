"""Layer: what nets are built from, their sizes, what they share with a target, saving and loading."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

FEATURES = 3  # hidden states of an early, a middle and a late layer; the fourth feature, the final norm's output, is not counted

# What `NetConfig` and transformers' configurations call the same size
SIZE_NAMES = {
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "mlp": "intermediate_size",
    "layers": "num_hidden_layers",
    "vocab": "vocab_size",
    "rope_theta": "rope_theta",
}
N = TypeVar("N", bound="Net")
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
    def load_and_check_target_sizes(cls, folder: Path, embedding: Tensor) -> "NetConfig":
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
        return {theirs: getattr(self, ours) for ours, theirs in SIZE_NAMES.items()} | {
            "num_key_value_heads": self.heads,
            "head_dim": self.hidden // self.heads,
            "hidden_act": "silu",
            "attention_bias": False,
        }


class Net(nn.Module):
    """A learned drafter's weights. The target's embedding `[V, H]` and LM head `[V, H]` are shared, frozen and never saved.

    On a GPU they stay the target's own tensors, in its type: copies in float32 would take gigabytes. On a CPU they are float32.

    A net with a width of its own has `used_table_names` of its own, `[V, hidden]`, trained and saved, or the target's made narrower.
    """

    used_table_names: tuple[str, ...] = ("embedding",)  # which of the two a net reads after it was made
    file_name_by_weight: Mapping[str, str] = MappingProxyType(
        {}
    )  # what files call a weight, where that is another name

    def __init__(self, config: NetConfig, embedding: Tensor, head: Tensor):
        """`embedding [V, hidden]` and `head [V, hidden]` are the target's, or what tables of the net's own start from."""
        super().__init__()
        self.config = config
        for name, shared in (("embedding", embedding.detach()), ("head", head.detach())):
            if config.target_hidden and name in self.used_table_names:
                self.register_parameter(name, nn.Parameter(shared.float().clone()))
            else:
                kept = shared if shared.is_cuda or shared.is_mps else shared.float()
                self.register_buffer(name, kept, persistent=False)

    @classmethod
    def with_unread_weights(cls: type[N], config: NetConfig, embedding: Tensor, head: Tensor) -> N:
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

    def pack_compiled_on_cpu(self: N) -> N:
        """Copy the weights into `compiled`, on a CPU. Call it again after they have changed."""
        self.compiled = self.build_compiled() if self.embedding.device.type == "cpu" else None
        return self

    def prepare_for_drafting(self: N, device: torch.device) -> N:
        """The net on the device and packed. Nothing of it learns."""
        return self.to(device).eval().requires_grad_(False).pack_compiled_on_cpu()

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
        return {self.file_name_by_weight.get(name, name): each.contiguous().cpu() for name, each in weights.items()}

    @classmethod
    def load_for_drafting(cls, folder: Path, embedding: Tensor, head: Tensor) -> "Net":
        """Raises `ValueError` when the files do not fit this class or the target."""
        net = cls.with_unread_weights(NetConfig.load_and_check_target_sizes(folder, embedding), embedding, head)
        try:
            stored = load_file(folder / "model.safetensors")
            if net.config.target_hidden and not set(net.used_table_names) & set(stored):
                share_narrowed_target_tables(net, embedding, head)
            net.load_state_dict({name: each.float() for name, each in stored.items()})
        except (RuntimeError, OSError, SafetensorError) as error:
            last = str(error).splitlines()[-1].strip().rstrip(".")
            raise ValueError(f"{folder} holds no {net.config.kind} drafter: {last}. {ANEW}") from error
        return net.prepare_for_drafting(embedding.device)


def embedding_and_head_of(target: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """The target's embedding and head, each `[V, H]`."""
    return target.get_input_embeddings().weight, target.get_output_embeddings().weight


def narrow_table_by_means(table: Tensor, hidden: int) -> Tensor:
    """`[V, hidden]` float32: means of H / hidden numbers of `table [V, H]`. Raises `ValueError` where H is no multiple of `hidden`."""
    if table.shape[1] % hidden:
        raise ValueError(
            f"A drafter with a hidden size of {hidden} cannot share the tables of a target with {table.shape[1]}, which is no "
            "multiple of it. Train it with tables of its own, or with another --hidden."
        )
    return table.detach().float().view(len(table), -1, hidden).mean(1)


def share_narrowed_target_tables(net: Net, embedding: Tensor, head: Tensor) -> None:
    """Puts the target's tables, each `[V, H]` and cut by `narrow_table_by_means`, in place of the net's own.

    They are not trained and not saved.
    """
    for name, table in (("embedding", embedding), ("head", head)):
        if name in net.used_table_names:
            rows = len(getattr(net, name))
            delattr(net, name)
            shared = narrow_table_by_means(table, net.config.hidden)
            net.register_buffer(name, shared if rows == len(shared) else shared[net.vocabulary], persistent=False)
