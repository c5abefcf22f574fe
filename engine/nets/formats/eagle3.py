"""EAGLE-3 checkpoints in the form of SafeAILab (`midlayer.*`) and in that of speculators and vLLM (`layers.0.*`), as `Eagle` nets.

P-EAGLE of speculators (`peagle`) is such a net with a mask token and one learned feature, which stand for what is not read yet.
Both count a layer to read by the number of layers before it. Where a config does not name them, they are 2, half of all, and all but 3.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from transformers import LlamaConfig

from engine.forward.llama_layer import EPS
from engine.forward.session import default_feature_layers
from engine.nets.eagle import WINDOW, Eagle, EagleForm
from engine.nets.formats import checked
from engine.nets.layer import NetConfig

SPECULATORS, SAFEAILAB = "layers.0.", "midlayer."  # how each calls its one layer
MOST_LAYERS = 64
NUMBERS = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")  # that a config must have
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")  # each true or false
TYPES = ("eagle3", "peagle")  # of speculators
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
# What is read beside the layers, and in eagle_config; whether an embedding was trained shows in the tensors
READ = frozenset({*FLAGS, LAYER_IDS, "draft_vocab_size", "eagle_config", "embed_requires_grad", "target_layer_ids"})
READ_WITHIN = frozenset({*FLAGS, LAYER_IDS})
COMPUTED = MappingProxyType({"use_aux_hidden_state": True})  # the one value that is computed: several layers are read
# The weights of `Eagle`, and the published ones that each is made of, one below the other
FIRST = {"norm_token.weight": ("input_layernorm.weight",), "norm_feature.weight": ("hidden_norm.weight",)}
IN_LAYER = {
    "layer.norm.weight": ("post_attention_layernorm.weight",),
    "layer.qkv.weight": ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
    "layer.out.weight": ("self_attn.o_proj.weight",),
    "layer.norm_q.weight": ("self_attn.q_norm.weight",),
    "layer.norm_k.weight": ("self_attn.k_norm.weight",),
    "layer.gate_up.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "layer.down.weight": ("mlp.down_proj.weight",),
}
OUTSIDE = {
    "fuse.weight": ("fc.weight",),
    "norm_out.weight": ("norm.weight",),
    "unembed": ("lm_head.weight",),
    "norm_input.weight": ("input_norm.weight",),
    "mask_hidden": ("mask_hidden",),
}


def published_names_of(prefix: str, normed_tap_count: int, layer_count: int = 1) -> dict[str, tuple[str, ...]]:
    """The published names of what every weight of `Eagle` is made of, by the weight's own name."""
    layer = {own: tuple(prefix + name for name in names) for own, names in (FIRST | IN_LAYER).items()}
    for number in range(1, layer_count):
        where, ahead = f"next_layers.{number - 1}.", f"layers.{number}."
        layer |= {own.replace("layer.", where, 1): tuple(map(ahead.__add__, names)) for own, names in IN_LAYER.items()}
        layer[f"{where}norm_in.weight"] = (f"{ahead}input_layernorm.weight",)
    return layer | OUTSIDE | {f"norm_taps.{tap}.weight": (f"fc_norm.{tap}.weight",) for tap in range(normed_tap_count)}


def required_tensor_shapes(config: NetConfig, form: EagleForm, prefix: str) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that a checkpoint must have, by its published name."""
    with torch.device("meta"):  # shapes alone
        blank = torch.empty(config.vocab, config.hidden)
        weights = Eagle(config, blank, blank, form).state_dict()
    inward = [count * form.head_dim for count in (config.heads, form.kv_heads, form.kv_heads)]
    found: dict[str, tuple[int, ...]] = {}
    for name, parts in published_names_of(prefix, len(form.reads_features), config.layers).items():
        if name in weights:
            sizes = inward if name.endswith("qkv.weight") else len(weights[name]) // len(parts)
            found |= {part: tuple(each.shape) for part, each in zip(parts, weights[name].split(sizes), strict=True)}
    return found


def is_form_of(config: dict[str, Any]) -> bool:
    architectures = config.get("architectures")
    named = isinstance(architectures, list) and any("eagle3" in str(each).lower() for each in architectures)
    return named or "speculators_model_type" in config or "draft_vocab_size" in config


def load_eagle3_net(
    config: NetConfig,
    form: EagleForm,
    prefix: str,
    has_trained_here_form: bool,
    folder: Path,
    embedding: torch.Tensor,
    head: torch.Tensor,
) -> Eagle:
    """`prefix` is what the names of the layer's tensors begin with. `has_trained_here_form` says whether the `form` is that of nets
    trained here.

    Such a net has no form, so that its loops are compiled, where that computes the same: the norms of single layers have no weights,
    and the embedding is the target's, or as narrow as the net.
    """
    found, wanted = checked.load_all_tensors(folder), required_tensor_shapes(config, form, prefix)
    vocab, own_vocab = config.vocab, config.own_vocab
    optional = {"embed_tokens.weight": (vocab, config.hidden), "t2d": (vocab,), "d2t": (own_vocab,)}
    narrow = config.hidden != form.target_hidden
    if own_vocab < vocab:
        wanted["d2t"] = optional["d2t"]
    if narrow:
        wanted["embed_tokens.weight"] = optional["embed_tokens.weight"]
    checked.refuse_missing_unknown_or_misshaped_tensors(folder, found, wanted, optional)
    vocabulary = checked.validated_target_ids_of_draft_tokens(folder, found, own_vocab, vocab)
    own = found["embed_tokens.weight"].to(embedding.device) if "embed_tokens.weight" in found else embedding
    weights = {
        name: torch.cat([found[part].float() for part in parts])
        for name, parts in published_names_of(prefix, len(form.reads_features), config.layers).items()
        if parts[0] in found
    }
    weights["offsets"] = vocabulary - torch.arange(len(vocabulary))
    taps = [name for name in weights if name.startswith("norm_taps.")]
    shared = own.shape == embedding.shape and torch.equal(own, embedding.to(own.dtype))  # in the file's type
    ours = has_trained_here_form and (narrow or shared)
    if ours and all(bool((weights[name] == 1).all()) for name in taps):
        weights = {name: each for name, each in weights.items() if name not in taps}
        if narrow:
            config, weights["embedding"] = replace(config, target_hidden=form.target_hidden), own.float()
        net = Eagle.with_unread_weights(config, embedding, head)
    else:
        net = Eagle(config, own, head, form)
    net.load_state_dict(weights)
    return net.prepare_for_drafting(embedding.device)


def validate_config_and_make_loader(
    folder: Path, config: dict[str, Any], embedding: torch.Tensor, target_layer_count: int
) -> Callable[..., Eagle]:
    speculators = "speculators_model_type" in config
    if speculators and config["speculators_model_type"] not in TYPES:
        raise ValueError(
            f"{folder} is a speculators drafter of the type {config['speculators_model_type']!r}. Those of the types "
            f"{', '.join(TYPES)}, dflash and dspark are read."
        )
    layer = config.get("transformer_layer_config") if speculators else config
    if not isinstance(layer, dict):
        raise ValueError(f"{folder}/config.json lacks transformer_layer_config. Fetch its files anew.")
    refuse_unsupported_layers(folder, layer, speculators)
    refuse_unread_settings(folder, config)
    flags = boolean_settings_of(folder, config)
    if speculators and config.get("norm_before_residual") is None:
        raise ValueError(
            f"{folder}/config.json does not say norm_before_residual, and engines differ in what its absence means. "
            "Write true or false into it, as the drafter was trained."
        )
    vocab, target_hidden = embedding.shape
    hidden = layer["hidden_size"]
    said = config.get("target_hidden_size") or layer.get("target_hidden_size") or hidden
    checked.refuse_other_target(folder, (layer["vocab_size"], said), (vocab, target_hidden))
    llama, rotary = checked.layer_config_and_rotary(folder, layer, LlamaConfig)
    form = EagleForm(
        target_hidden=target_hidden,
        kv_heads=llama.num_key_value_heads,
        head_dim=llama.head_dim,
        eps=llama.rms_norm_eps,
        reads_features=validated_target_layers_read(folder, config, target_layer_count),
        rotary=rotary,
        sliding_window=sliding_window_of(folder, layer),
        normed_residual=flags["norm_before_residual"],
        has_head_norms=layer.get("model_type") == "qwen3",
        normed_input=flags["norm_before_fc"],
        normed_features=flags["fc_norm"],
        normed_output=flags["norm_output"],
        mask_token_id=peagle_mask_token_of(folder, config, vocab),
    )
    heads, own_vocab = (
        llama.num_attention_heads,
        checked.draft_vocabulary_size_of(folder, config, "draft_vocab_size", vocab),
    )
    theta = llama.rope_parameters["rope_theta"] if llama.rope_parameters["rope_type"] == "default" else 0.0
    count = llama.num_hidden_layers if speculators else 1
    sizes = NetConfig(
        "eagle", hidden, heads, llama.intermediate_size, count, trained_depth_of(config), vocab, theta, own_vocab
    )
    taps = default_feature_layers(target_layer_count)
    ours = EagleForm(
        target_hidden, heads, hidden // heads, EPS, taps, rotary, sliding_window=WINDOW, normed_features=True
    )
    trained = theta > 0 and hidden % heads == 0 and count == 1 and form == ours
    return partial(load_eagle3_net, sizes, form, SPECULATORS if speculators else SAFEAILAB, trained)


def refuse_unread_settings(folder: Path, config: dict[str, Any]) -> None:
    """Raises `ValueError` for a setting of the config that nothing here reads."""
    of_layer, inner = {*checked.OF_LAYER, "target_hidden_size"}, config.get("eagle_config")
    if "speculators_model_type" in config:
        checked.refuse_unread_settings(folder, config["transformer_layer_config"], of_layer, "transformer_layer_config")
        of_layer = {"transformer_layer_config", "target_hidden_size"}
        if config["speculators_model_type"] == "peagle":
            of_layer.add("mask_token_id")
    checked.refuse_unread_settings(folder, config, READ | of_layer, computed=COMPUTED)
    if isinstance(inner, dict):
        checked.refuse_unread_settings(folder, inner, READ_WITHIN, "eagle_config", COMPUTED)


def trained_depth_of(config: dict[str, Any]) -> int:
    """How many tokens ahead the drafter was trained to guess, as speculators_config says; 1 where it does not."""
    methods = (config.get("speculators_config") or {}).get("proposal_methods") or [{}]
    return int(methods[0].get("speculative_tokens") or 1)


def peagle_mask_token_of(folder: Path, config: dict[str, Any], vocab: int) -> int | None:
    """The id of P-EAGLE's mask token, None for EAGLE-3. Raises `ValueError` for no such id, and where it guesses one token."""
    if config.get("speculators_model_type") != "peagle":
        return None
    mask = checked.validated_whole_number(folder, config, "mask_token_id", 0, vocab - 1)
    if trained_depth_of(config) < 2:
        raise ValueError(
            f"{folder}/config.json must say in speculators_config how many speculative_tokens, at least 2, the drafter guesses at once."
        )
    return mask


def boolean_settings_of(folder: Path, config: dict[str, Any]) -> dict[str, bool]:
    """The settings of `FLAGS` in the config or its `eagle_config`, or False. Raises `ValueError` for neither true nor false."""
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


def refuse_unsupported_layers(folder: Path, layer_config: dict[str, Any], in_speculators_form: bool) -> None:
    """Raises `ValueError` unless the config describes one Llama or Qwen3 layer, or several in the form of `in_speculators_form`."""
    checked.refuse_missing_sizes(folder, layer_config, NUMBERS)
    kind, count, gate = (
        layer_config.get("model_type", "llama"),
        layer_config.get("num_hidden_layers", 1),
        layer_config.get("hidden_act"),
    )
    if kind not in ("llama", "qwen3"):
        raise ValueError(f"{folder} has a layer of the type {kind!r}. Only llama and qwen3 are computed.")
    if count != 1 and not in_speculators_form:
        raise ValueError(f"{folder} has {count} layers. An EAGLE-3 drafter of SafeAILab has one.")
    checked.validated_whole_number(folder, {"num_hidden_layers": count}, "num_hidden_layers", 1, MOST_LAYERS)
    if gate not in (None, "silu"):
        raise ValueError(f"{folder} has an MLP with {gate!r}. Only silu is computed.")


def validated_target_layers_read(folder: Path, config: dict[str, Any], target_layer_count: int) -> tuple[int, ...]:
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
        ids = [2, target_layer_count // 2, target_layer_count - 3]
        if not 2 < ids[1] < ids[2]:
            raise ValueError(
                f"{folder} reads the layers 2, half and all but 3 of a target of at least 7, and this one has {target_layer_count}. "
                "Use the drafter that was trained for this target."
            )
    why = " Each is the number of layers before the place that is read."
    return tuple(checked.validated_ascending_layers(folder, LAYER_IDS, ids, 1, target_layer_count, why))


def sliding_window_of(folder: Path, layer_config: dict[str, Any]) -> int:
    """The number of positions that a token attends to, 0 for all. Raises `ValueError` for another type of attention."""
    checked.refuse_undecided_window(folder, layer_config)
    kinds = set(layer_config.get("layer_types") or ["full_attention"])
    if len(kinds) > 1:
        raise ValueError(f"{folder} mixes {' and '.join(sorted(kinds))}. Only layers of one type are computed.")
    [kind] = kinds
    if kind == "full_attention":
        return 0
    if kind != "sliding_attention" or not layer_config.get("sliding_window"):
        raise ValueError(
            f"{folder} has {kind} with the window {layer_config.get('sliding_window')}. Only full attention and attention with "
            "a window are computed."
        )
    return int(layer_config["sliding_window"])
