"""Memory: what a pair needs, counted from its configurations before a weight is read, and what is free. Loads nothing."""

import math
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.quantizers.auto import AutoHfQuantizer

from engine.forward.devices import free_bytes
from engine.forward.llama import FAMILIES
from engine.forward.recurrent.cache import empty_text_states, node_state_bytes, text_state_bytes
from engine.forward.recurrent.kinds import count_layers_with_own_kv, keeps_state
from engine.forward.rounded_linear import EightBitLinear, has_eight_bit_head
from engine.forward.runner_gpu import round_up_static_capacity
from engine.forward.session_gpu import PROMPTS, SIZES
from engine.forward.sizes import head_dim_of, kv_heads_of, max_context_of
from engine.models.pairs import Pair
from engine.models.quantising import (
    bitsandbytes_config_of,
    describe_size_unfit_for_nf4,
    parameter_bytes_of,
    quantisations_on,
    replace_with_rounded_linear,
    stored_quantisation_of,
    uses_rounded_linear,
)

GIB = 2**30
LANES, ROWS = 2, 512  # a race as the page opens with it: a prompt, 200 new tokens, and room for a tree
NODES = 12  # of such a race's tree
NET_BYTES = 4  # of a learned drafter's weight in memory
HALVES = (torch.float16, torch.bfloat16)
COPIED = (torch.float32, torch.bfloat16)  # types of plain matrices that forwards on a CPU lay out anew


def build_meta_device_model(
    config: PreTrainedConfig, dtype: torch.dtype, quantisation: str, with_rounded_linear: bool = False
) -> PreTrainedModel:
    """The model without memory for its weights. Its layers are those that bitsandbytes would make, or `with_rounded_linear` ones."""
    plain = deepcopy(config)
    if hasattr(plain, "quantization_config"):
        del plain.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(plain, dtype=dtype, attn_implementation="eager")
        if with_rounded_linear:
            return replace_with_rounded_linear(model)
        if quantisation != "none":
            quantiser = AutoHfQuantizer.from_config(bitsandbytes_config_of(quantisation, dtype), pre_quantized=False)
            quantiser.preprocess_model(model=model, dtype=dtype, device_map={"": "meta"})
    return model


def weight_bytes_by_name(model: PreTrainedModel) -> dict[str, int]:
    """Bytes of every parameter and buffer by its name. Tied weights count once."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    for path, module in model.named_modules():
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                found[f"{path}.{name}".lstrip(".")] = parameter_bytes_of(module, name, tensor)
    return found


def count_needed_bytes_by_use(
    config: PreTrainedConfig, device: torch.device, dtype: torch.dtype, quantisation: str = "none"
) -> Counter[str]:
    """Bytes that a model of this configuration needs on the device, by what takes them.

    `copies` are the layouts that forwards on a CPU make of matrices, and `rows` the caches of a race. `states` are those of its
    texts and of every node of a tree, and `graphs` the logits that its CUDA graphs hold. `loading` is what more lies there before
    layers are rounded than afterwards. Idle caches and graphs do not count: they get a share of what is left
    (`engine.forward.cuda_graphs.max_idle_cache_bytes`).
    """
    rounded, copies = uses_rounded_linear(quantisation, device), 0
    model = build_meta_device_model(config, dtype, quantisation, rounded)
    compiled = type(model) in FAMILIES and dtype == torch.float32
    if device.type == "cpu" and (compiled if rounded else quantisation == "none" and dtype in COPIED):
        # The compiled forward keeps the type of the checkpoint (`engine.kernels.stored`), the others that of the model.
        size = 2 if compiled and config.dtype in HALVES else dtype.itemsize
        matrices = [each for each in model.modules() if isinstance(each, torch.nn.Linear | EightBitLinear)]
        if compiled and has_eight_bit_head(model):  # then no matrix is left that is not in eight bits
            size = 1
        copies = sum(each.weight.numel() * (1 if isinstance(each, EightBitLinear) else size) for each in matrices)
    tokens, graphs, states = min(ROWS, max_context_of(config)), 0, 0
    if keeps_state(config):
        plain = model if quantisation == "none" else build_meta_device_model(config, dtype, "none")
        states = LANES * (text_state_bytes(zeros := empty_text_states(plain)) + NODES * node_state_bytes(zeros))
    elif device.type == "cuda":
        logits = (sum(SIZES) + len(PROMPTS)) * config.vocab_size * dtype.itemsize
        tokens, graphs = round_up_static_capacity(tokens), LANES * logits
    heads, layers = kv_heads_of(config) or 0, count_layers_with_own_kv(config)
    row = 2 * layers * heads * head_dim_of(config) * dtype.itemsize if layers else 0
    weights = sum(weight_bytes_by_name(model).values())
    found = Counter(weights=weights, copies=copies, rows=LANES * tokens * row, graphs=graphs, states=states)
    if rounded and stored_quantisation_of(config) == "none":
        read = sum(
            weight_bytes_by_name(build_meta_device_model(config, loading_dtype_of(config, dtype), "none")).values()
        )
        found["loading"] = max(0, read - found.total())
    return found


def loading_dtype_of(config: PreTrainedConfig, dtype: torch.dtype) -> torch.dtype:
    """The type of a target's weights until its layers are rounded: that of its checkpoint, where it is half of float32."""
    return config.dtype if dtype == torch.float32 and config.dtype in HALVES else dtype


def count_learned_drafter_bytes(drafters_folder: str | None) -> int:
    """Bytes that the learned drafters in a folder need, by their files' headers. The target's matrices are shared."""
    found = 0
    files = (
        [*Path(drafters_folder).glob("model.safetensors"), *Path(drafters_folder).glob("*/model.safetensors")]
        if drafters_folder
        else []
    )
    for file in files:
        # What is no such file is refused when it is loaded.
        with suppress(SafetensorError), safe_open(file, "pt") as tensors:
            found += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return NET_BYTES * found


def count_needed_bytes_or_refuse(
    pair: Pair,
    target_config: PreTrainedConfig,
    draft_config: PreTrainedConfig | None,
    device: torch.device,
    dtype: torch.dtype,
    quantisation: str,
) -> int:
    """The bytes that the pair needs. Raises `ValueError`, with what would fit, when that is more memory than is free on the device."""
    drafting = 0 if draft_config is None else count_needed_bytes_by_use(draft_config, device, dtype).total()
    nets = count_learned_drafter_bytes(pair.drafters_folder)

    def count_needed_bytes(quantisation: str) -> int:
        return count_needed_bytes_by_use(target_config, device, dtype, quantisation).total() + drafting + nets

    wanted, left = count_needed_bytes(quantisation), free_bytes(device)
    if wanted <= left:
        return wanted
    others = [
        each
        for each in quantisations_on(device)
        if each != quantisation and not (each == "nf4" and describe_size_unfit_for_nf4(target_config))
    ]
    fitting = {each: need for each in others if (need := count_needed_bytes(each)) <= left}
    alone = wanted - drafting
    if fitting:
        ways = [f"--quantisation {each} would need {need / GIB:.1f} GiB" for each, need in fitting.items()]
        advice = f"{' and '.join(ways)}."
    elif draft_config is not None and alone <= left:
        advice = f"The target without a draft model would need {alone / GIB:.1f} GiB."
    else:
        advice = "Nothing of it fits: choose a smaller pair or a larger device."
    kept = "" if quantisation == "none" else f" as {quantisation}"
    raise ValueError(
        f"{pair.title} needs {wanted / GIB:.1f} GiB of memory{kept}, and {left / GIB:.1f} GiB are free here. {advice}"
    )
