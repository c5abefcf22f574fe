"""EAGLE-3 checkpoints in the form of SafeAILab (`midlayer.*`) and in that of speculators and vLLM (`layers.0.*`), as `Eagle3` nets.

Both count a layer to read by the number of layers before it. Where a config does not name them, they are 2, half of all, and all but 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig

from engine.forward.session import tapped_layers
from engine.nets.eagle import Eagle
from engine.nets.eagle3 import Eagle3, Eagle3Sizes
from engine.nets.formats.checked import refuse_other_tensors, rotary_of, tensors_of, vocabulary_of
from engine.nets.layer import NetConfig, RMSNorm

SPECULATORS, SAFEAILAB = "layers.0.", "midlayer."  # how each calls its one layer
NUMBERS = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")  # that a config must have
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")  # each true or false
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
IN_LAYER = {
    "input_layernorm.weight": "norm_token.weight",
    "hidden_norm.weight": "norm_feature.weight",
    "post_attention_layernorm.weight": "norm_mlp.weight",
    "self_attn.q_proj.weight": "q.weight",
    "self_attn.k_proj.weight": "k.weight",
    "self_attn.v_proj.weight": "v.weight",
    "self_attn.o_proj.weight": "o.weight",
    "self_attn.q_norm.weight": "norm_q.weight",
    "self_attn.k_norm.weight": "norm_k.weight",
    "mlp.gate_proj.weight": "gate.weight",
    "mlp.up_proj.weight": "up.weight",
    "mlp.down_proj.weight": "down.weight",
}
OUTSIDE = {
    "fc.weight": "fuse.weight",
    "norm.weight": "norm_out.weight",
    "lm_head.weight": "unembed.weight",
    "input_norm.weight": "norm_input.weight",
}


def names_of(prefix: str, taps: int) -> dict[str, str]:
    """The name in `Eagle3` of every weight that a checkpoint may have, by the checkpoint's own name."""
    each_tap = {f"fc_norm.{tap}.weight": f"norm_tap_{tap}.weight" for tap in range(taps)}
    return {prefix + name: own for name, own in IN_LAYER.items()} | OUTSIDE | each_tap


def is_form_of(config: dict[str, Any]) -> bool:
    """Whether a config is of one of the two forms."""
    architectures = config.get("architectures")
    named = isinstance(architectures, list) and any("eagle3" in str(each).lower() for each in architectures)
    return named or "speculators_model_type" in config or "draft_vocab_size" in config


OUTSIDE_LAYER = ("fuse", "norm_token", "norm_feature", "norm_out")  # modules that `Eagle` and `Eagle3` both have


@dataclass(frozen=True)
class Eagle3Checkpoint:
    """A published EAGLE-3 drafter that fits the target by its config. `prefix` is what the names of its layer's tensors begin with.

    `own` holds the sizes of an `Eagle` net that computes what the config says, None where it says anything else.
    """

    sizes: Eagle3Sizes
    prefix: str
    own: NetConfig | None = None

    def load(self, folder: Path, embedding: torch.Tensor, head: torch.Tensor) -> Eagle3 | Eagle:
        """The net for a target with `embedding [V, H_t]` and `head [V, H_t]`. Raises `ValueError` for tensors that do not fit.

        It is the `Eagle` net, whose loops are compiled, where that computes the same: the embedding is the target's and the norms of
        single layers have no weights.
        """
        sizes, found = self.sizes, tensors_of(folder)
        ours = names_of(self.prefix, len(sizes.layers))
        wanted = {name: sizes.shapes[own] for name, own in ours.items() if own in sizes.shapes}
        optional = {"embed_tokens.weight": (sizes.vocab, sizes.hidden), "t2d": (sizes.vocab,)}
        if sizes.own_vocab == sizes.vocab:
            optional["d2t"] = (sizes.own_vocab,)
        else:
            wanted["d2t"] = (sizes.own_vocab,)
        if sizes.hidden != sizes.target_hidden:
            wanted["embed_tokens.weight"] = optional.pop("embed_tokens.weight")
        refuse_other_tensors(folder, found, wanted, optional)
        vocabulary = vocabulary_of(folder, found, sizes.own_vocab, sizes.vocab)
        own = found["embed_tokens.weight"].to(embedding.device) if "embed_tokens.weight" in found else embedding
        weights = {ours[name]: found[name].float() for name in ours if name in found}
        taps = [weights.pop(name) for name in list(weights) if name.startswith("norm_tap_")] if self.own else []
        if self.own and own is embedding and all(bool((each == 1).all()) for each in taps):
            trained = Eagle(self.own, embedding, head)
            trained.load_state_dict(own_weights(weights, vocabulary))
            return trained.to(embedding.device).eval().requires_grad_(False).pack()
        net = Eagle3(sizes, own, head, vocabulary)
        net.load_state_dict(weights | {f"norm_tap_{tap}.weight": each for tap, each in enumerate(taps)})
        return net.to(embedding.device).eval().requires_grad_(False)


def own_weights(weights: Mapping[str, torch.Tensor], vocabulary: torch.Tensor) -> dict[str, torch.Tensor]:
    """The weights of an `Eagle` net by its names, from those of an `Eagle3` net by its names and the target's ids `[own_vocab]`."""
    joined = {
        "qkv": ("q", "k", "v"),
        "gate_up": ("gate", "up"),
        "out": ("o",),
        "down": ("down",),
        "norm": ("norm_mlp",),
    }
    layer = {
        f"layer.{name}.weight": torch.cat([weights[f"{part}.weight"] for part in parts])
        for name, parts in joined.items()
    }
    outside = {f"{name}.weight": weights[f"{name}.weight"] for name in OUTSIDE_LAYER}
    return {
        **layer,
        **outside,
        "unembed": weights["unembed.weight"],
        "offsets": vocabulary - torch.arange(len(vocabulary)),
    }


def checkpoint_of(folder: Path, config: dict[str, Any], embedding: torch.Tensor, layers: int) -> Eagle3Checkpoint:
    """The checkpoint that `config` describes, for a target of so many `layers` and `embedding [V, H_t]`.

    Raises `ValueError` for another algorithm, for what `Eagle3` does not compute, and for sizes that do not fit the target.
    """
    speculators = "speculators_model_type" in config
    if speculators and config["speculators_model_type"] != "eagle3":
        raise ValueError(
            f"{folder} is a speculators drafter of the type {config['speculators_model_type']!r}. Only eagle3 is read."
        )
    layer = config.get("transformer_layer_config") if speculators else config
    if not isinstance(layer, dict):
        raise ValueError(f"{folder}/config.json lacks transformer_layer_config. Fetch its files anew.")
    refuse_other_layers(folder, config, layer)
    flags = flags_of(folder, config)
    if speculators and config.get("norm_before_residual") is None:
        raise ValueError(
            f"{folder}/config.json does not say norm_before_residual, and engines differ in what its absence means. "
            "Write true or false into it, as the drafter was trained."
        )
    vocab, target_hidden = embedding.shape
    hidden = layer["hidden_size"]
    said = layer["vocab_size"], config.get("target_hidden_size") or layer.get("target_hidden_size") or hidden
    if said != (vocab, target_hidden):
        raise ValueError(
            f"The drafter in {folder} was trained for a target of {said[0]} tokens and hidden size {said[1]}, this one "
            f"has {vocab} and {target_hidden}. Use the drafter that was trained for this target."
        )
    llama, rotary = rotary_of(folder, layer, LlamaConfig)
    sizes = Eagle3Sizes(
        hidden=hidden,
        target_hidden=target_hidden,
        heads=llama.num_attention_heads,
        kv_heads=llama.num_key_value_heads,
        head_dim=llama.head_dim,
        mlp=llama.intermediate_size,
        vocab=vocab,
        own_vocab=config.get("draft_vocab_size") or vocab,
        eps=llama.rms_norm_eps,
        layers=layers_read(folder, config, layers),
        inverse=rotary.inv_freq,
        attention_scaling=rotary.attention_scaling,
        sliding=sliding_of(folder, layer),
        normed_residual=flags["norm_before_residual"],
        head_norms=layer.get("model_type") == "qwen3",
        normed_input=flags["norm_before_fc"],
        normed_taps=flags["fc_norm"],
        normed_output=flags["norm_output"],
    )
    theta = llama.rope_parameters["rope_theta"] if rotary.rope_type == "default" else None
    own = own_config(sizes, theta, tapped_layers(layers), guesses_of(config))
    return Eagle3Checkpoint(sizes, SPECULATORS if speculators else SAFEAILAB, own)


def own_config(sizes: Eagle3Sizes, theta: float | None, taps: tuple[int, ...], depth: int) -> NetConfig | None:
    """The sizes of the `Eagle` net that computes what `sizes` say, None where none does.

    `theta` is the base of plain rotary frequencies, None where they are others; `taps` are the layers that trained drafters read.
    """
    width = sizes.heads * sizes.head_dim
    config = NetConfig(
        "eagle", sizes.hidden, sizes.heads, sizes.mlp, 1, depth, sizes.vocab, theta or 0.0, sizes.own_vocab
    )
    as_ours = Eagle3Sizes(
        hidden=width,
        target_hidden=width,
        heads=sizes.heads,
        kv_heads=sizes.heads,
        head_dim=sizes.head_dim,
        mlp=sizes.mlp,
        vocab=sizes.vocab,
        own_vocab=sizes.own_vocab,
        eps=RMSNorm(1).eps,
        layers=taps,
        inverse=sizes.inverse,
        sliding=Eagle.window,
        normed_taps=True,
    )
    return config if theta is not None and sizes == as_ours else None


def guesses_of(config: dict[str, Any]) -> int:
    """How many tokens ahead the drafter was trained to guess, as speculators_config says; 1 where it does not."""
    methods = (config.get("speculators_config") or {}).get("proposal_methods") or [{}]
    return int(methods[0].get("speculative_tokens") or 1)


def flags_of(folder: Path, config: dict[str, Any]) -> dict[str, bool]:
    """The settings of `FLAGS`, False where they are absent. Raises `ValueError` for what is neither true nor false.

    They stand in the config or in its `eagle_config`.
    """
    inner = config.get("eagle_config")
    found = {name: config.get(name, inner.get(name) if isinstance(inner, dict) else None) for name in FLAGS}
    for name, value in found.items():
        if value not in (None, True, False):
            raise ValueError(f"{folder}/config.json must say {name} as true or false, got {value!r}.")
    if found["norm_before_fc"] and found["fc_norm"]:
        raise ValueError(
            f"{folder}/config.json sets norm_before_fc and fc_norm, of which a drafter has one at most. Set the one that "
            "its tensors belong to: input_norm.weight or fc_norm.0.weight."
        )
    return {name: bool(value) for name, value in found.items()}


def refuse_other_layers(folder: Path, config: dict[str, Any], layer: dict[str, Any]) -> None:
    """Raises `ValueError` unless the config describes one Llama or Qwen3 layer."""
    for name in NUMBERS:
        if type(layer.get(name)) is not int or layer[name] < 1:
            raise ValueError(f"{folder}/config.json must give {name} as a whole number, got {layer.get(name)!r}.")
    own = config.get("draft_vocab_size")
    if own is not None and (type(own) is not int or not 1 <= own <= layer["vocab_size"]):
        raise ValueError(
            f"{folder}/config.json must give draft_vocab_size between 1 and {layer['vocab_size']}, got {own!r}."
        )
    kind, count, gate = layer.get("model_type", "llama"), layer.get("num_hidden_layers", 1), layer.get("hidden_act")
    if kind not in ("llama", "qwen3"):
        raise ValueError(f"{folder} has a layer of the type {kind!r}. Only llama and qwen3 are computed.")
    if count != 1:
        raise ValueError(f"{folder} has {count} layers. An EAGLE-3 drafter has one.")
    if gate not in (None, "silu"):
        raise ValueError(f"{folder} has an MLP with {gate!r}. Only silu is computed.")


def layers_read(folder: Path, config: dict[str, Any], layers: int) -> tuple[int, ...]:
    """The target's layers that are read, each by the number of layers before it. Raises `ValueError` when it lacks one."""
    inner = config.get("eagle_config")
    if (isinstance(inner, dict) and inner.get(LAYER_IDS)) or config.get("target_layer_ids"):
        where = "target_layer_ids" if config.get("target_layer_ids") else "eagle_config"
        raise ValueError(
            f"{folder}/config.json names layers in {where}, which engines count differently. Name them as "
            f"{LAYER_IDS} beside it, each by the number of layers before it."
        )
    ids = config.get(LAYER_IDS)
    if ids is None:
        ids = [2, layers // 2, layers - 3]
        if not 2 < ids[1] < ids[2]:
            raise ValueError(
                f"{folder} reads the layers 2, half and all but 3 of a target of at least 7, and this one has {layers}. "
                "Use the drafter that was trained for this target."
            )
    whole = isinstance(ids, list) and bool(ids) and all(type(each) is int for each in ids)
    if not whole or ids != sorted(set(ids)) or not 1 <= ids[0] <= ids[-1] < layers:
        raise ValueError(
            f"{LAYER_IDS} in {folder} must ascend between 1 and {layers - 1} for this target, got {ids}. "
            "Each is the number of layers before the place that is read."
        )
    return tuple(ids)


def sliding_of(folder: Path, layer: dict[str, Any]) -> int:
    """The number of positions that a token attends to, 0 for all. Raises `ValueError` for another type of attention."""
    kind = (layer.get("layer_types") or ["full_attention"])[0]
    if kind == "full_attention":
        return 0
    if kind != "sliding_attention" or not layer.get("sliding_window"):
        raise ValueError(
            f"{folder} has {kind} with the window {layer.get('sliding_window')}. Only full attention and attention with "
            "a window are computed."
        )
    return int(layer["sliding_window"])
