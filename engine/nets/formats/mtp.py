"""MTP layers in the files of a target, found by name and checked. Knows files and transformers' conversions; knows no session.

transformers leaves them out when it loads the target. Their layouts are DeepSeek-V3's, further `model.layers.*` behind the target's
own, and the `mtp.*` of Mellum, Qwen3-Next and Nemotron-H. A tensor that is missing or unknown is refused by name: with random weights
in its place guesses would never come true, and nothing would say why. So are an embedding and a head of their own, unless
they equal the target's.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_layers import MtpModel
from transformers.modeling_utils import LoadStateDictConfig
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file
from transformers.utils.generic import ContextManagers

from engine.forward.packed_linear import optimise_cpu_linear_and_attention
from engine.forward.rounded_linear import has_rounded_linear
from engine.nets.formats import mtp_told
from engine.nets.formats.checked import open_safetensors
from engine.nets.formats.composite import text_tensor_name
from engine.nets.mtp import Mtp

SHARED = ("embed_tokens.weight", "shared_head.head.weight")  # what checkpoints repeat of the target's


def load_mtp_layers(
    target: PreTrainedModel, file_by_tensor: dict[str, Path], folder: Path, embedding: torch.Tensor, head: torch.Tensor
) -> Mtp:
    """The MTP layers of a target. `file_by_tensor` says by tensor where it stands.

    Raises `ValueError` for a file that cannot be read, for a tensor that is missing or unknown, and for an embedding or a head that is
    not the target's.
    """
    tensors: dict[str, torch.Tensor] = {}  # by their names in the text model
    for path in sorted(set(file_by_tensor.values())):
        with open_safetensors(path) as stored:
            tensors |= {
                text_tensor_name(name): stored.get_tensor(name) for name, file in file_by_tensor.items() if file == path
            }
    for name in [each for each in tensors if each.endswith(SHARED)]:
        tensor, shared = tensors.pop(name), embedding if name.endswith(SHARED[0]) else head
        if tensor.shape != shared.shape or not torch.equal(tensor.to(shared), shared):
            raise ValueError(
                f"{folder} holds {name}, which differs from the target's own. MTP layers are read here with the target's "
                "embedding and head. Fetch the files anew."
            )
    with ContextManagers(MtpModel.get_init_context(target.dtype, False, False, None)):  # no memory for weights yet
        model = mtp_told.build_mtp_model(target)
    settings = LoadStateDictConfig(
        weight_mapping=model.get_weight_conversions(target), device_map={"": target.device}, dtype=target.dtype
    )
    report, _ = convert_and_load_state_dict_in_model(
        model, mtp_told.rename_mtp_tensors_for_transformers(target.config, tensors), settings
    )
    own = {name for name in report.missing_keys if not name.startswith(("embed_tokens.", "shared_head."))}
    problems = [
        *(f"lacks {name}" for name in sorted(own)),
        *(f"lacks a part of {name}, or holds one of another shape" for name in sorted(report.conversion_errors)),
        *(
            f"holds {name} as {[*shape]}, and its config needs {[*wanted]}"
            for name, shape, wanted in sorted(report.mismatched_keys)
        ),
        *(f"holds {name}, which no MTP layer has" for name in sorted(report.unexpected_keys)),
    ]
    if problems:
        more = f" {len(problems) - 1} more of its tensors do not fit." if problems[1:] else ""
        raise ValueError(f"Of its MTP layers {folder} {problems[0]}.{more} Fetch the files anew.")
    model.tie_with_main_model(target)
    optimise_cpu_linear_and_attention(model)
    net = Mtp(model, target.config.num_hidden_layers)
    if others := sorted({*net.kinds} - {"", *(model.rotary_emb.rope_type if model.has_per_layer_rope else ())}):
        raise ValueError(
            f"The MTP layers of {folder} are of type {others[0]}, for which its target has no rotary embedding."
        )
    return net


def find_mtp_layer_loader(target: PreTrainedModel, source: dict[str, Any]) -> Callable[..., Mtp] | None:
    """As that of the formats, for a target that `from_pretrained` found by `source`.

    None where its config names no MTP layers that can be read, where its files hold none, and where it is quantised.
    """
    count = mtp_told.count_declared_mtp_layers(target.config)
    quantised = getattr(target, "hf_quantizer", None) is not None or has_rounded_linear(target)
    if not count or quantised or mtp_told.explain_unread_mtp(target.config):
        return None
    first = target.config.num_hidden_layers
    numbers = "|".join(str(first + layer) for layer in range(count))
    theirs = re.compile(rf"^(model\.)?(layers\.({numbers})|mtp)\.")
    files = {
        name: path for name, path in checkpoint_file_by_tensor(source).items() if theirs.match(text_tensor_name(name))
    }
    return partial(load_mtp_layers, target, files) if files else None


def checkpoint_file_by_tensor(source: dict[str, Any]) -> dict[str, Path]:
    """The file of every tensor of a checkpoint. Raises `ValueError` for one that cannot be read."""
    index = find_or_fetch_checkpoint_file(source, SAFE_WEIGHTS_INDEX_NAME)
    if index is not None:
        files = json.loads(index.read_text("utf-8"))["weight_map"]
        paths = {file: find_or_fetch_checkpoint_file(source, file) for file in set(files.values())}
        return {name: path for name, file in files.items() if (path := paths[file]) is not None}
    weights = find_or_fetch_checkpoint_file(source, SAFE_WEIGHTS_NAME)
    if weights is None:
        return {}
    with open_safetensors(weights) as stored:
        return dict.fromkeys(stored.keys(), weights)


def find_or_fetch_checkpoint_file(source: dict[str, Any], name: str) -> Path | None:
    """One of a checkpoint's files, None where there is none of that name."""
    how = {key: source[key] for key in ("revision", "local_files_only") if key in source}
    found = cached_file(
        source["pretrained_model_name_or_path"], name, _raise_exceptions_for_missing_entries=False, **how
    )
    return None if found is None else Path(found)
