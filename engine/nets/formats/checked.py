"""Checked: tensors of a drafter that others trained, checked by name and by shape. Knows files; knows no net.

Engines that skip a name that they do not know serve random weights in its place. Here every name must be known and none may be missing.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.forward.llama import STEADY_ROPE
from engine.forward.llama_layer import Rotary

C = TypeVar("C", LlamaConfig, Qwen3Config)
PICKLED = (".bin", ".pt", ".pth")
# Settings of a config that change no number of a drafter: who wrote it, how it was trained, and which tokens have which task
HARMLESS = {
    *(
        "_name_or_path",
        "architectures",
        "auto_map",
        "dtype",
        "model_type",
        "name_or_path",
        "torch_dtype",
        "transformers_version",
    ),
    *("bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings", "use_cache", "max_position_embeddings"),
    *("attention_dropout", "initializer_range", "max_window_layers", "pretraining_tp"),
    *("chunk_size_feed_forward", "id2label", "is_encoder_decoder", "label2id", "output_attentions"),
    *("output_hidden_states", "problem_type", "return_dict"),
    *("speculators_config", "speculators_model_type", "speculators_version"),
}
# What a config must say of its layers
SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "num_hidden_layers",
    "vocab_size",
)
# Of a layer, what `layer_config_and_rotary` and the formats read
OF_LAYER = {
    *SIZES,
    *(
        "rms_norm_eps",
        "hidden_act",
        "attention_bias",
        "mlp_bias",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
    ),
    *("layer_types", "sliding_window", "use_sliding_window"),
}


def load_all_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors in the folder's safetensors files, by name. Raises `ValueError` when there are none or a name stands twice."""
    files = sorted(folder.glob("*.safetensors"))
    if not files and (pickled := sorted(path.name for path in folder.iterdir() if path.suffix in PICKLED)):
        raise ValueError(
            f"{folder} holds pickled weights ({pickled[0]}), which can run code. Only safetensors are loaded. "
            f"Convert them with `python -m engine convert {folder} NEW_FOLDER`."
        )
    if not files:
        raise ValueError(f"{folder} holds no safetensors file. Fetch the drafter's weights.")
    found: dict[str, torch.Tensor] = {}
    for path in files:
        with open_safetensors(path) as stored:
            for name in stored.keys():  # noqa: SIM118, it is no dictionary
                if name in found:
                    raise ValueError(f"{folder} holds the tensor {name} in two files. Keep one of them.")
                found[name] = stored.get_tensor(name)
    return found


@contextmanager
def open_safetensors(path: Path) -> Iterator[Any]:
    """A file of safetensors. Raises `ValueError` for one that cannot be read."""
    try:
        with safe_open(path, framework="pt") as stored:
            yield stored
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}. Fetch it anew.") from error


def refuse_missing_unknown_or_misshaped_tensors(
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
    required: Mapping[str, tuple[int, ...]],
    optional: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Raises `ValueError` unless `tensors` has all of `required` and beside it only `optional`, each in its shape."""
    known = {**required, **(optional or {})}
    for name in sorted(tensors.keys() - known.keys()):
        has = ", ".join(sorted(known))
        raise ValueError(f"{folder} holds the tensor {name}, which this format does not have. It has {has}.")
    for name in sorted(required.keys() - tensors.keys()):
        raise ValueError(f"{folder} lacks the tensor {name}. Fetch its files anew.")
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != known[name]:
            raise ValueError(
                f"{folder} holds {name} in the shape {list(tensor.shape)}, and its config and the target need "
                f"{list(known[name])}. Use the drafter that was trained for this target."
            )


def refuse_other_target(folder: Path, trained_for: tuple[int, int], target: tuple[int, ...]) -> None:
    """Raises `ValueError` unless a drafter was trained for as many tokens and as large a hidden size as the target has."""
    if trained_for != target:
        raise ValueError(
            f"The drafter in {folder} was trained for a target of {trained_for[0]} tokens and hidden size {trained_for[1]}, this one "
            f"has {target[0]} and {target[1]}. Use the drafter that was trained for this target."
        )


def validated_whole_number(
    folder: Path, config: Mapping[str, Any], name: str, least: int = 1, most: int | None = None
) -> int:
    """What the config gives under the name. Raises `ValueError` unless it is a whole number from `least` to `most`, None for no end."""
    value = config.get(name)
    if type(value) is not int or value < least or (most is not None and value > most):
        wanted = f"as a whole number from {least} on" if most is None else f"between {least} and {most}"
        raise ValueError(f"{folder}/config.json must give {name} {wanted}, got {value!r}.")
    return value


def refuse_missing_sizes(folder: Path, config: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raises `ValueError` unless the config gives each of these sizes."""
    for name in names:
        validated_whole_number(folder, config, name)


def validated_ascending_layers(
    folder: Path, key: str, ids: Any, least: int, most: int, error_suffix: str = ""
) -> list[int]:
    """The `ids` of a target's layers, which stand under `key`. Raises `ValueError`, with `error_suffix` behind it, unless they
    ascend so.
    """
    whole = isinstance(ids, list) and bool(ids) and all(type(each) is int for each in ids)
    if not whole or ids != sorted(set(ids)) or not least <= ids[0] <= ids[-1] <= most:
        raise ValueError(
            f"{key} in {folder} must ascend between {least} and {most} for this target, got {ids}.{error_suffix}"
        )
    return ids


def refuse_unread_settings(
    folder: Path,
    config: Mapping[str, Any],
    known_settings: Iterable[str],
    file_name: str = "config.json",
    computed: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Raises `ValueError` for a setting that nothing here reads, unless it is of `HARMLESS`: a drafter would guess badly in silence.

    `computed` holds settings of which one value is what is computed here.
    """
    for name in sorted(config.keys() - {*known_settings} - HARMLESS):
        if config[name] is not None and not (name in computed and config[name] == computed[name]):
            raise ValueError(
                f"{folder} sets {name} to {config[name]!r} in {file_name}, which is not computed here. "
                "Where it changes nothing in the network, delete it there."
            )


def refuse_undecided_window(folder: Path, layer_config: Mapping[str, Any]) -> None:
    """Raises `ValueError` for a window of which the config does not say which layers have it: engines differ in what that means."""
    if (
        layer_config.get("sliding_window")
        and not layer_config.get("layer_types")
        and layer_config.get("use_sliding_window") is not False
    ):
        raise ValueError(
            f"{folder} sets sliding_window to {layer_config['sliding_window']!r} and no layer_types, so nothing says which layers it "
            "is for. Name the type of every layer in layer_types, as the drafter was trained."
        )


def draft_vocabulary_size_of(folder: Path, config: Mapping[str, Any], setting_name: str, vocab: int) -> int:
    """How many tokens the drafter guesses, all of `vocab` where its config does not say. Raises `ValueError` for no such number."""
    return vocab if config.get(setting_name) is None else validated_whole_number(folder, config, setting_name, 1, vocab)


def validated_integer_tensor(folder: Path, tensors: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    """The tensor of that name as int64. Raises `ValueError` where it holds other numbers."""
    if tensors[name].is_floating_point() or tensors[name].dtype == torch.bool:
        raise ValueError(f"{folder} holds {name} as {tensors[name].dtype}. It must hold whole numbers.")
    return tensors[name].long()


def validated_target_ids_of_draft_tokens(
    folder: Path, tensors: Mapping[str, torch.Tensor], draft_vocab: int, vocab: int
) -> torch.Tensor:
    """The target's ids int64 `[own]` of the drafter's tokens: token i is the target's `i + d2t[i]`, and without d2t its i.

    Raises `ValueError` when ids leave the target's vocabulary, repeat, or are not those that `t2d` marks.
    """
    ids = torch.arange(draft_vocab)
    if "d2t" in tensors:
        ids = ids + validated_integer_tensor(folder, tensors, "d2t")
    if ids.min() < 0 or ids.max() >= vocab:
        raise ValueError(
            f"{folder} maps its tokens to the ids {int(ids.min())} to {int(ids.max())} by d2t, and the target has "
            f"{vocab}. d2t must hold offsets: the target's id minus the drafter's."
        )
    if len(ids.unique()) < len(ids):
        raise ValueError(
            f"{folder} maps {len(ids)} tokens to {len(ids.unique())} ids by d2t, so that some stand for the same one. "
            "d2t must hold offsets: the target's id minus the drafter's."
        )
    if "t2d" in tensors:
        marked = tensors["t2d"].bool().nonzero().flatten()
        if not torch.equal(marked, ids.sort().values):
            raise ValueError(
                f"{folder} holds a t2d that marks {len(marked)} ids, which are not the {len(ids)} ids of d2t. "
                "Fetch its files anew."
            )
    return ids


def layer_config_and_rotary(folder: Path, layer_settings: dict[str, Any], config_type: type[C]) -> tuple[C, Rotary]:
    """The config of a `config_type` of layer and its rotary embedding. Raises `ValueError` for one that cannot be computed."""
    try:
        config = config_type.from_dict({key: value for key, value in layer_settings.items() if key != "model_type"})
        rope = config.rope_parameters["rope_type"]
        if rope not in STEADY_ROPE:
            raise ValueError(f"its rotary embedding is {rope!r}, and only {', '.join(STEADY_ROPE)} are computed")
        return config, Rotary.from_transformers(LlamaRotaryEmbedding(config))
    except (KeyError, TypeError, ValueError, StrictDataclassError) as error:
        said_why = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{folder}/config.json describes no layer that can be computed: {said_why}.") from error
