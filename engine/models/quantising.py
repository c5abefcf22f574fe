"""Quantising: a target's weights in 8 or 4 bits, kept by bitsandbytes. Knows configurations and layers; reads no file.

A quantised target is a model of its own, and lossless means its own text. How exact the logits behind a tree's node are:

- "8-bit" is LLM.int8 without its columns of outliers. With them, a large number in one row changes how all rows are rounded, so a
  node's logits would follow its siblings. Without them, a row is rounded on its own and products are sums of whole numbers: on a GPU
  and with AVX-512 no row's product depends on another row, by construction.
- "nf4" widens weights as they are read. Which kernel multiplies them depends on the machine, and on a GPU on the number of rows.
- Attention, the embedding and the head stay in the type that the target computes in. Their last bits may follow the number of rows,
  and rounding to 8 bits, or to the bfloat16 of a CPU's 4-bit kernel, widens such a difference. So near-ties may fall differently in a
  tree. No quantised target is exact by construction as a whole, and none takes the compiled forward.

Source: Dettmers et al. 2022, LLM.int8(), section 3; Dettmers et al. 2023, QLoRA, section 3 (NF4).
"""

import logging
from typing import Any

import torch
from transformers import BitsAndBytesConfig, PreTrainedConfig, PreTrainedModel

from engine.forward.sizes import head_dim_of, kv_heads_of, mlp_of
from engine.models.pairs import Checkpoint

NF4_MULTIPLE = 64  # bitsandbytes' 4-bit kernels on a CPU crash on other sizes
KEPT = {"8-bit": torch.int8, "nf4": torch.uint8}  # the type of the weights in memory


def config_of(quantisation: str, dtype: torch.dtype) -> BitsAndBytesConfig:
    """What transformers is told, for "8-bit" or "nf4". The target computes in `dtype`."""
    if quantisation == "8-bit":
        # It says with every forward that activations are rounded by way of float16.
        logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def refuse_sizes(checkpoint: Checkpoint, config: PreTrainedConfig, quantisation: str) -> None:
    """Raises `ValueError` for sizes that bitsandbytes cannot keep so. It keeps all sizes in 8 bits."""
    if quantisation == "nf4" and (odd := odd_size(config)):
        raise ValueError(
            f"4-bit weights need sizes in multiples of {NF4_MULTIPLE}; {checkpoint.path} has a {odd}. "
            "Load it with the quantisation 8-bit or none."
        )


def odd_size(config: PreTrainedConfig) -> str:
    """The first size that 4-bit weights cannot have, in words; "" when there is none."""
    head_dim = head_dim_of(config)
    sizes = {
        "hidden size": config.hidden_size,
        "MLP size": mlp_of(config),
        "query size": head_dim * config.num_attention_heads,
        "key/value size": head_dim * (kv_heads_of(config) or 0),
    }
    return next((f"{what} of {size}" for what, size in sizes.items() if size % NF4_MULTIPLE), "")


def refuse_plain(checkpoint: Checkpoint, model: PreTrainedModel, quantisation: str) -> None:
    """Raises `ValueError` for a model of which bitsandbytes has quantised nothing."""
    if quantisation != "none" and all(each.dtype != KEPT[quantisation] for each in model.parameters()):
        raise ValueError(
            f"{checkpoint.path} ({model.config.model_type}) has no layers that bitsandbytes keeps in {quantisation}: "
            "load it with the quantisation none."
        )


def bytes_of(module: torch.nn.Module, name: str, weight: torch.Tensor) -> int:
    """Bytes that a module's parameter takes in memory, with the scales that bitsandbytes keeps beside it.

    In 8 bits a row of `[out, in]` has a float32 scale; in 4 bits every block of 64 weights has one.
    """
    kind = type(module).__name__
    if name != "weight" or kind not in ("Linear8bitLt", "Linear4bit"):
        return weight.numel() * weight.element_size()
    linear: Any = module
    count = linear.in_features * linear.out_features
    return count + 4 * linear.out_features if kind == "Linear8bitLt" else count // 2 + 4 * -(-count // NF4_MULTIPLE)
