"""Quantising: a target's weights in 8 or 4 bits. Knows configurations and layers; reads no file.

A quantised target is a model of its own, and lossless means its own text. How exact the logits behind a tree's node are:

- "8-bit" on a CPU is `engine.forward.rounded_linear`: rows and matrices are rotated and rounded in groups of 64 inputs. A row is
  rounded on its own, and products are sums of whole numbers. The compiled forward computes the very same for the families that it
  knows: exact, bit for bit, as in 16 and 32 bits. A checkpoint that bitsandbytes wrote is widened layer by layer and rounded so.
- "8-bit" on a GPU is bitsandbytes' LLM.int8 without its columns of outliers. With them, a large number in one row changes how all
  rows are rounded, so a node's logits would follow its siblings.
- "nf4" is bitsandbytes' too, and widens weights as they are read. Which kernel multiplies them depends on the machine, and on a GPU
  on the number of rows.
- Attention, the embedding and the head stay in the type that the target computes in. Outside of the compiled forward their last bits
  may follow the number of rows, and rounding to 8 bits, or to the bfloat16 of a CPU's 4-bit kernel, widens such a difference. So
  near-ties may fall differently in a tree.

Source: Dettmers et al. 2022, LLM.int8(), section 3; Dettmers et al. 2023, QLoRA, section 3 (NF4).
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from transformers import BitsAndBytesConfig, PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from engine.forward.rounded_linear import EightBitLinear
from engine.forward.sizes import head_dim_of, kv_heads_of, mlp_width_of
from engine.models.pairs import QUANTISATIONS, Checkpoint, validate_choice

# It says with every forward that activations are rounded by way of float16, and at its start which kernels it lacks.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)

NF4_MULTIPLE = 64  # bitsandbytes' 4-bit kernels on a CPU crash on other sizes
KEPT = {"8-bit": torch.int8, "nf4": torch.uint8}  # the type of the weights in memory


def bitsandbytes_config_of(quantisation: str, dtype: torch.dtype) -> BitsAndBytesConfig:
    """What transformers is told, for "8-bit" or "nf4". The target computes in `dtype`."""
    if quantisation == "8-bit":
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def stored_quantisation_of(config: PreTrainedConfig) -> str:
    """How a checkpoint's own weights are kept: "8-bit", as bitsandbytes writes them, or "none"."""
    told = getattr(config, "quantization_config", None) or {}
    return "8-bit" if told.get("quant_method") == "bitsandbytes" and told.get("load_in_8bit") else "none"


def choose_quantisation(
    checkpoint: Checkpoint, config: PreTrainedConfig, requested: str | None, device: torch.device
) -> str:
    """What is asked for, or what the checkpoint's own weights are kept in.

    Raises `ValueError` for what they cannot become, what the device cannot keep, and sizes that 4 bits cannot have.
    """
    own = stored_quantisation_of(config)
    found = own if requested is None else validate_choice(QUANTISATIONS, requested, "quantisation")
    if own != "none" and found not in (own, "none"):
        raise ValueError(
            f"{checkpoint.path} holds weights in {own}: load it with the quantisation {own} or none, got {requested}."
        )
    if found not in quantisations_on(device):
        raise ValueError(
            f"bitsandbytes does not keep weights in {found} on {device.type}, "
            f"as {checkpoint.path} would need. Take plain weights and --quantisation none, or --device cpu."
        )
    if found == "nf4" and (odd := describe_size_unfit_for_nf4(config)):
        raise ValueError(
            f"4-bit weights need sizes in multiples of {NF4_MULTIPLE}; {checkpoint.path} has a {odd}. "
            "Load it with the quantisation 8-bit or none."
        )
    return found


def cast_rest_or_dequantise(model: PreTrainedModel, quantisation: str, dtype: torch.dtype) -> PreTrainedModel:
    """A model whose checkpoint keeps it in 8 bits, with the rest of its weights in `dtype`; all of them for the quantisation "none"."""
    if quantisation == "none":
        model.dequantize()
    for weights in model.parameters():  # buffers stay in float32, as in every model: angles of positions need it
        if weights.is_floating_point():
            weights.data = weights.data.to(dtype)
    model.config.dtype = dtype
    return model


def round_floats_to_half_kept_as_float32(model: PreTrainedModel) -> None:
    """Round what is not kept in 8 bits, the embedding and the head above all, to 16, as checkpoints store them.

    A GGUF file's own blocks have more digits. A head in 32 bits would take twice the time to read, for digits that the rest lacks.
    """
    for weights in model.parameters():
        if weights.dtype == torch.float32:
            weights.data = weights.data.half().float()


def uses_rounded_linear(quantisation: str, device: torch.device, spread: str = "none") -> bool:
    """Whether such a target's layers are rounded by `replace_with_rounded_linear`, and not kept by bitsandbytes."""
    return quantisation == "8-bit" and device.type == "cpu" and spread == "none"


def replace_with_rounded_linear(model: PreTrainedModel) -> PreTrainedModel:
    """The model with `EightBitLinear` for each linear layer but the head, one by one. Those of bitsandbytes are widened first."""
    replace_linear_layers_except_head(model, lambda layer: EightBitLinear(float_matrix_of(layer)))
    if getattr(model, "hf_quantizer", None) is not None:
        model.hf_quantizer.remove_quantization_config(model)
    return model.requires_grad_(False).eval()


def replace_linear_layers_except_head(model: PreTrainedModel, build_layer: Callable[[Any], torch.nn.Module]) -> None:
    """Puts what is `build_layer` of each of the model's linear layers, but for the head, in its place. Biases stay."""
    head = model.get_output_embeddings()
    parents = [
        module for module in model.modules() if next(module.children(), None) is not None
    ]  # holds no layer in memory
    for module in parents:
        for name, linear in list(module.named_children()):
            if linear is not head and (type(linear) in (torch.nn.Linear, Conv1D) or is_bitsandbytes_eight_bit(linear)):
                layer = build_layer(linear)
                layer.bias = linear.bias
                setattr(module, name, layer)


def is_bitsandbytes_eight_bit(layer: torch.nn.Module) -> bool:
    """Whether bitsandbytes keeps this layer in 8 bits."""
    return type(layer).__name__ == "Linear8bitLt"


def float_matrix_of(layer: torch.nn.Module) -> torch.Tensor:
    """The float matrix `[out, in]` of a linear layer."""
    if is_bitsandbytes_eight_bit(layer):
        from bitsandbytes import functional  # seconds that a plain model need not wait

        scales = layer.weight.SCB if layer.state.SCB is None else layer.state.SCB
        return functional.int8_vectorwise_dequant(layer.weight.data, scales)
    return layer.weight.T if type(layer) is Conv1D else layer.weight


def quantisations_on(device: torch.device) -> tuple[str, ...]:
    """How weights can be kept there. bitsandbytes 0.50 has no 8-bit kernels for Apple's GPU, and may fetch 4-bit ones by network."""
    return ("none",) if device.type == "mps" else QUANTISATIONS


def describe_size_unfit_for_nf4(config: PreTrainedConfig) -> str:
    """The first size of the model that 4-bit weights cannot have, in words; "" when all fit."""
    head_dim = head_dim_of(config)
    sizes = {
        "hidden size": config.hidden_size,
        "MLP size": mlp_width_of(config),
        "query size": head_dim * getattr(config, "num_attention_heads", 0),
        "key/value size": head_dim * (kv_heads_of(config) or 0),
    }
    return next((f"{what} of {size}" for what, size in sizes.items() if size % NF4_MULTIPLE), "")


def parameter_bytes_of(module: torch.nn.Module, parameter_name: str, weight: torch.Tensor) -> int:
    """Bytes of a module's parameter, with bitsandbytes' float32 scales: one a row `[in]` in 8 bits, one a block of 64 in 4 bits."""
    kind = type(module).__name__
    if parameter_name != "weight" or kind not in ("Linear8bitLt", "Linear4bit"):
        return weight.numel() * weight.element_size()
    linear: Any = module
    count = linear.in_features * linear.out_features
    return count + 4 * linear.out_features if kind == "Linear8bitLt" else count // 2 + 4 * -(-count // NF4_MULTIPLE)
