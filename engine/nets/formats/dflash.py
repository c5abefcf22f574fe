"""DFlash checkpoints in the form of z-lab (`dflash_config`) and in that of speculators (`speculators_model_type`), as `DFlash` nets.

z-lab names a layer to read by its own number, so that its output is read; speculators counts the layers before the place. Its last
layer's output comes before the final norm, as in vLLM.

Both forms share the target's embedding and head, so their nets are as wide as the target. A net with a width of its own is trained here
alone. Its config is z-lab's with `target_hidden_size`, and its files hold embedding and head, or else it shares the target's made
narrower. vLLM 0.32 runs it from files that hold both, as `exported` writes them in speculators' form. So is a net that guesses some
of the target's tokens: z-lab's config then has speculators' `draft_vocab_size`, and the files its `d2t`, by which it reads rows of the
target's own head.
"""

from collections.abc import Callable, Set
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config

from engine.nets.dflash import BlockLayerMask, DFlash, DFlashSizes
from engine.nets.formats import checked
from engine.nets.layer import share_narrowed_target_tables

KNOWN = {"mask_token_id", "target_layer_ids", "block_size", "num_target_layers"}  # in dflash_config
OUTSIDE = {  # beside z-lab's layers
    *("block_size", "num_target_layers", "dflash_config", "target_hidden_size", "draft_vocab_size"),
}
OF_SPECULATORS = {
    *("transformer_layer_config", "draft_vocab_size", "block_size", "mask_token_id", "num_target_layers"),
    *("aux_hidden_state_layer_ids", "target_hidden_size", "sample_from_anchor"),
    "sliding_window_non_causal",  # is about layers with a window, which are refused
}
# Later ones keep the first one's keys and compute other networks
ARCHITECTURES = {"DFlashDraftModel", "DFlashSpeculator"}
FULL, SLIDING = "full_attention", "sliding_attention"  # the types of layers
# The one value of each that is computed where a form does not read it: a block sees all of itself, and rotates halves of heads
COMPUTED: dict[str, Any] = {
    "causal": False,
    "is_causal": False,
    "rope_is_neox_style": True,
    "attention_sink_bias": False,
}


def is_form_of(config: dict[str, Any]) -> bool:
    return "dflash_config" in config or config.get("speculators_model_type") == "dflash"


def embedding_and_head_shapes(sizes: DFlashSizes) -> dict[str, tuple[int, ...]]:
    """The shapes of an embedding and a head that a checkpoint may bring."""
    return {"embed_tokens.weight": (sizes.vocab, sizes.hidden), "lm_head.weight": (sizes.own_vocab, sizes.hidden)}


def load_checked_block_net(
    net_class: type[DFlash],
    sizes: DFlashSizes,
    optional_shapes: dict[str, tuple[int, ...]],
    config: dict[str, Any],
    folder: Path,
    embedding: torch.Tensor,
    head: torch.Tensor,
) -> DFlash:
    """`optional_shapes` are the shapes of tensors that a checkpoint may have beside the net's own, by name."""
    found, names = checked.load_all_tensors(folder), net_class.file_name_by_weight
    with torch.device("meta"):  # shapes alone
        blank = torch.empty(sizes.vocab, sizes.hidden)
        empty = net_class(sizes, blank, blank[: sizes.own_vocab], torch.arange(sizes.own_vocab), config)
        shares = bool(sizes.target_hidden) and not found.keys() & {names[name] for name in net_class.used_table_names}
        if shares:
            share_narrowed_target_tables(empty, blank, blank)
        parameters = empty.state_dict()
    wanted = {names.get(name, name): tuple(each.shape) for name, each in parameters.items()}
    if sizes.own_vocab < sizes.vocab:
        wanted |= {"d2t": (sizes.own_vocab,)}
        if "speculators_model_type" in config:
            wanted |= {"lm_head.weight": optional_shapes["lm_head.weight"]}
    checked.refuse_missing_unknown_or_misshaped_tensors(folder, found, wanted, optional_shapes)
    own_embedding = found.get("embed_tokens.weight", embedding).to(embedding.device)
    vocabulary = checked.validated_target_ids_of_draft_tokens(folder, found, sizes.own_vocab, sizes.vocab)
    rows = head[vocabulary.to(head.device)] if sizes.own_vocab < sizes.vocab else head
    own_head = found.get("lm_head.weight", rows).to(embedding.device)
    net = net_class(sizes, own_embedding, own_head, vocabulary, config)
    if shares:
        share_narrowed_target_tables(net, embedding, head)
    net.load_state_dict({name: found[names.get(name, name)].float() for name in parameters})
    return net.prepare_for_drafting(embedding.device)


def validate_config_and_make_loader(
    folder: Path, config: dict[str, Any], embedding: torch.Tensor, target_layer_count: int
) -> Callable[..., DFlash]:
    speculators, optional = "speculators_model_type" in config, {}
    refuse_other_networks_and_unread_settings(
        folder, config, harmless=frozenset() if speculators else frozenset({"is_causal"})
    )
    sizes = validated_sizes_of(folder, config, embedding, target_layer_count, allows_windows=not speculators)
    if speculators:
        optional = embedding_and_head_shapes(sizes) | {"d2t": (sizes.own_vocab,), "t2d": (sizes.vocab,)}
    return partial(load_checked_block_net, DFlash, sizes, optional, config)


def refuse_other_networks_and_unread_settings(
    folder: Path,
    config: dict[str, Any],
    architectures: Set[str] = frozenset(ARCHITECTURES),
    harmless: Set[str] = frozenset(),
) -> None:
    """Raises `ValueError` for a network of other `architectures`, and for a setting that nothing here reads, of `harmless` neither."""
    if others := sorted({*(config.get("architectures") or ())} - architectures):
        raise ValueError(
            f"{folder} is a {others[0]}, whose network is another one. Only {' and '.join(sorted(architectures))} are computed."
        )
    speculators = "speculators_model_type" in config
    layer, inner = config.get("transformer_layer_config"), config.get("dflash_config")
    parts = [(config, "config.json", harmless | (OF_SPECULATORS if speculators else OUTSIDE | checked.OF_LAYER))]
    parts += [(layer, "transformer_layer_config", checked.OF_LAYER)] if speculators and isinstance(layer, dict) else []
    parts += [(inner, "dflash_config", KNOWN)] if not speculators and isinstance(inner, dict) else []
    for found, where, read in parts:
        checked.refuse_unread_settings(folder, found, read, where, COMPUTED)


def validated_sizes_of(
    folder: Path, config: dict[str, Any], embedding: torch.Tensor, target_layer_count: int, allows_windows: bool = False
) -> DFlashSizes:
    """What `config` says, for a target of so many `target_layer_count` and `embedding [V, H]`; with `allows_windows`, its layers may
    have some.

    Raises `ValueError` for another net, for what `DFlash` does not compute, and for sizes that do not fit the target.
    """
    speculators = "speculators_model_type" in config
    layer = config.get("transformer_layer_config") if speculators else config
    own = config if speculators else config.get("dflash_config")
    if not isinstance(layer, dict) or not isinstance(own, dict):
        lacks = "transformer_layer_config" if speculators else "dflash_config"
        raise ValueError(f"{folder}/config.json lacks {lacks}. Fetch its files anew.")
    refuse_other_than_qwen3_layers(folder, layer)
    masks = validated_layer_masks(folder, layer, own) if allows_windows else ()
    if not allows_windows:
        refuse_windows(folder, layer)
    vocab, hidden = embedding.shape
    said = config.get("target_hidden_size")
    checked.refuse_other_target(folder, (layer["vocab_size"], said or layer["hidden_size"]), (vocab, hidden))
    block = checked.validated_whole_number(folder, own | config, "block_size", 2)
    mask = checked.validated_whole_number(folder, own, "mask_token_id", 0, vocab - 1)
    own_vocab = checked.draft_vocabulary_size_of(folder, config, "draft_vocab_size", vocab)
    qwen, rotary = checked.layer_config_and_rotary(folder, layer, Qwen3Config)
    return DFlashSizes(
        hidden=layer["hidden_size"],
        heads=qwen.num_attention_heads,
        kv_heads=qwen.num_key_value_heads,
        head_dim=qwen.head_dim,
        mlp=qwen.intermediate_size,
        layers=qwen.num_hidden_layers,
        vocab=vocab,
        own_vocab=own_vocab,
        eps=qwen.rms_norm_eps,
        reads_features=validated_target_layers_read(folder, config, own, target_layer_count),
        block_size=block,
        mask_token_id=mask,
        rotary=rotary,
        attention_bias=bool(layer.get("attention_bias")),
        anchor_slot_predicts=bool(config.get("sample_from_anchor")),
        target_hidden=hidden if layer["hidden_size"] != hidden else 0,
        layer_masks=masks,
    )


def refuse_other_than_qwen3_layers(folder: Path, layer_config: dict[str, Any]) -> None:
    """Raises `ValueError` unless the config describes Qwen3 layers."""
    checked.refuse_missing_sizes(folder, layer_config, checked.SIZES)
    kind, gate = layer_config.get("model_type", "qwen3"), layer_config.get("hidden_act", "silu")
    if kind != "qwen3" or gate != "silu":
        raise ValueError(f"{folder} has layers of the type {kind!r} with {gate!r}. Only qwen3 with silu is computed.")
    checked.refuse_undecided_window(folder, layer_config)


def refuse_windows(folder: Path, layer_config: dict[str, Any]) -> None:
    """Raises `ValueError` unless all layers have full attention."""
    for each in layer_config.get("layer_types") or ():
        if each != FULL:
            raise ValueError(
                f"{folder} has layers with {each}, and engines differ in what a window hides from a block in this form. Only "
                "full attention is computed."
            )


def validated_layer_masks(
    folder: Path, config: dict[str, Any], dflash_config: dict[str, Any]
) -> tuple[BlockLayerMask, ...]:
    """A mask for each layer as z-lab's `dflash/model.py` makes it, () where all layers see all. `dflash_config` is the `dflash_config`.

    `is_causal` is said for all layers. Where it is unsaid, those with a window are causal and the others are not. Raises `ValueError`
    for other types of layers, and for a window that is no number or is turned off.
    """
    kinds, causal, window = config.get("layer_types") or [], config.get("is_causal"), config.get("sliding_window")
    if others := sorted({*kinds} - {FULL, SLIDING}):
        raise ValueError(f"{folder} has layers with {others[0]}. Only {FULL} and {SLIDING} are computed.")
    if causal not in (None, True, False):
        raise ValueError(f"{folder}/config.json must give is_causal as true or false, got {causal!r}.")
    kinds = kinds or [FULL] * config["num_hidden_layers"]
    if SLIDING in kinds:
        if type(window) is not int or window < 1 or config.get("use_sliding_window") is False:
            raise ValueError(
                f"{folder} has layers with {SLIDING}, sliding_window {window!r} and use_sliding_window "
                f"{config.get('use_sliding_window')!r}. Such layers need a whole number from 1 on, and a window that is in use."
            )
        if causal is None and dflash_config.get("causal") is not None:
            raise ValueError(
                f"{folder} sets causal to {dflash_config['causal']!r} in dflash_config, and engines differ in whether it is for layers "
                "with a window. Say is_causal in config.json, as the drafter was trained."
            )
    windows = {FULL: 0, SLIDING: window if isinstance(window, int) else 0}
    masks = tuple(BlockLayerMask(windows[each], each == SLIDING if causal is None else causal) for each in kinds)
    return masks if any(each != BlockLayerMask() for each in masks) else ()


def validated_target_layers_read(
    folder: Path, config: dict[str, Any], dflash_config: dict[str, Any], target_layer_count: int
) -> tuple[int, ...]:
    """The target's layers that are read, each by the number of layers before the place. Raises `ValueError` when it lacks one."""
    speculators = dflash_config is config
    key = "aux_hidden_state_layer_ids" if speculators else "target_layer_ids"
    trained = config.get("num_target_layers", dflash_config.get("num_target_layers"))
    if trained not in (None, target_layer_count):
        raise ValueError(
            f"The drafter in {folder} was trained for a target of {trained} layers, this one has {target_layer_count}. Use the drafter "
            "that was trained for this target."
        )
    ids, behind = dflash_config.get(key), 0 if speculators else 1
    if ids is None and not speculators:  # spread between the second layer and the last but three
        count = config["num_hidden_layers"]
        ids = (
            [round(1 + each * (target_layer_count - 4) / (count - 1)) for each in range(count)]
            if count > 1
            else [target_layer_count // 2]
        )
    last = target_layer_count if speculators else target_layer_count - 1 - behind
    without = " The last layer's output is not among them, because engines differ in whether it is normed in this form."
    ids = checked.validated_ascending_layers(folder, key, ids, 1 - behind, last, "" if speculators else without)
    return tuple(each + behind for each in ids)
