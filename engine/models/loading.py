"""Loading: how a pair comes into memory.

Invariant: what comes out of here can verify a tree exactly. It has full attention under the caller's mask, explicit positions, and
one token -> id map for target and draft. Anything else is refused with a sentence, if possible before weights are read.
"""

import re
import shutil
import threading
import weakref
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from engine.forward.devices import KINDS, is_device_kind_available
from engine.forward.llama_eight_bit import should_draft_in_eight_bits
from engine.forward.nf4.layers import install_nf4_few_rows_kernel
from engine.forward.runner import Runner
from engine.kernels.sharing import count_usable_cores_capped
from engine.models import memory, progress, refusals
from engine.models.bigram import BigramTable
from engine.models.gguf import reading as gguf_reading
from engine.models.gguf.files import has_gguf_suffix
from engine.models.pairs import (
    EMBEDDED,
    SPREADS,
    Checkpoint,
    LoadedPair,
    Pair,
    find_listed_pair,
    short_name_of,
    validate_choice,
)
from engine.models.progress import LoadingStopped, ProgressCallback
from engine.models.quantising import (
    KEPT,
    bitsandbytes_config_of,
    cast_rest_or_dequantise,
    choose_quantisation,
    quantisations_on,
    replace_with_rounded_linear,
    round_floats_to_half_kept_as_float32,
    stored_quantisation_of,
    uses_rounded_linear,
)
from engine.models.spreading import describe_spread, refuse_unfit_spread, spread_loading_arguments
from engine.nets import open_lazy_nets
from engine.nets.formats import composite
from engine.record.calibration import Calibration

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TRAINED_ON = ("cuda", "cpu")  # kinds of devices that training knows, and what else measures single operations


_lock = threading.Lock()
_loaded: dict[tuple, LoadedPair] = {}


def load(
    pair: str | Pair = "embedded",
    device: str | None = None,
    dtype: str | None = None,
    quantisation: str | None = None,
    spread: str = "none",
    report_progress: ProgressCallback | None = None,
) -> LoadedPair:
    """The pair, or the listed one of that name, loaded once. The same arguments give the same object, from any thread.

    `device` None takes a CUDA GPU when there is one, else Apple's, else the CPU; `dtype` None is fp32 on a CPU and bf16 on a GPU.
    The rest is as in `load_pair_anew`.
    """
    chosen = find_listed_pair(pair) if isinstance(pair, str) else pair
    place = validate_or_choose_device(device)
    precision = validate_or_choose_dtype(dtype, place)
    key = (chosen, place, precision, quantisation, spread)
    if key not in _loaded:  # asked before and behind the lock, so that a loaded pair never waits for another's download
        with _lock:
            if key not in _loaded:
                _loaded[key] = load_pair_anew(chosen, str(place), precision, quantisation, spread, report_progress)
    return _loaded[key]


def load_pair_anew(
    pair: Pair,
    device: str | None = None,
    dtype: str | None = None,
    quantisation: str | None = None,
    spread: str = "none",
    report_progress: ProgressCallback | None = None,
) -> LoadedPair:
    """Load a pair anew.

    `quantisation`, one of `QUANTISATIONS`, says how the target's weights are kept; None leaves them as its checkpoint keeps them. It
    computes in `dtype`, and the draft stays plain.
    `spread`, one of `SPREADS`, puts the target on several devices. Learned drafters read a whole target's weights and are left out.
    `report_progress` hears of each model's bytes as they come. What it raises ends the loading, and nothing that was loaded is kept.
    Raises `ValueError` with a sentence for whatever cannot be loaded.
    """
    place = validate_or_choose_device(device)
    precision = validate_or_choose_dtype(dtype, place)
    tokenizer, quantisation, footprint = check_files_memory_and_choose_quantisation(
        pair, str(place), precision, quantisation, spread
    )
    bigram = None if pair.bigram_path is None else BigramTable.load(pair.bigram_path)
    if bigram is not None and bigram.vocab != (
        vocab := load_text_config_of_checkpoint(pair.target_checkpoint).vocab_size
    ):
        raise ValueError(
            f"The bigram table {pair.bigram_path} covers {bigram.vocab} tokens, {pair.target} has {vocab}. "
            "Make them together with `python -m engine train pair`."
        )
    model = load_model(pair.target_checkpoint, place, DTYPES[precision], quantisation, spread, report_progress)
    drafting = None
    if pair.draft_checkpoint is not None:
        guessing = load_model(pair.draft_checkpoint, place, DTYPES[precision], report_progress=report_progress)
        drafting = Runner(guessing, eight_bit=should_draft_in_eight_bits(guessing))
    if quantisation == "nf4" and place.type == "cuda":
        install_nf4_few_rows_kernel(model)
    verifying, measured = Runner(model), pair.calibration_path
    drafters = Path(pair.drafters_folder) if pair.drafters_folder else None
    return LoadedPair(
        pair=pair,
        tokenizer=tokenizer,
        target=verifying,
        draft=drafting,
        bigram=bigram,
        hardware=hardware_name(place) + describe_spread(model),
        dtype=precision if quantisation == "none" else quantisation,
        context=verifying.context if drafting is None else min(verifying.context, drafting.context),
        stop_ids=collect_stop_ids(model, tokenizer),
        learned={}
        if verifying.spread
        else open_lazy_nets(drafters, model, mtp_from_pretrained_arguments_of(pair.target_checkpoint)),
        calibration=Calibration.load(measured) if measured and Path(measured).exists() else Calibration(),
        needed_bytes=footprint,
    )


def check_files_memory_and_choose_quantisation(
    pair: Pair,
    device: str | None = None,
    dtype: str | None = None,
    quantisation: str | None = None,
    spread: str = "none",
) -> tuple[PreTrainedTokenizerBase, str, int]:
    """The target's tokenizer, how its weights will be kept, see `load_pair_anew`, and the bytes that the pair needs. No weight is read.

    Raises `ValueError` for everything that a pair can be refused for by its small files and by the memory that is free. Memory is not
    counted for a target that is spread, 0 then: what does not fit goes to a disk.
    """
    footprint = 0
    place = validate_or_choose_device(device)
    precision = DTYPES[validate_or_choose_dtype(dtype, place)]
    target, draft, drafting = pair.target_checkpoint, pair.draft_checkpoint, None
    tokenizer, config = load_and_check_tokenizer_and_config(target)
    if quantisation is None and pair.name in EMBEDDED and place.type != "cpu":
        quantisation = "none"  # so small a target has nothing to gain from eight bits there
    if quantisation is None and place.type == "cpu":
        quantisation = pair.cpu_quantisation
    quantisation = choose_quantisation(target, config, quantisation, place)
    if draft is not None:
        draft_tokenizer, drafting = load_and_check_tokenizer_and_config(draft)
        if problem := refusals.explain_why_unable_to_draft(drafting):
            raise ValueError(
                f"{draft.path} ({drafting.model_type}) cannot draft: {problem}. Choose a draft model with attention alone."
            )
        refusals.refuse_other_vocabulary(draft, target, draft_tokenizer, tokenizer)
    if validate_choice(SPREADS, spread, "spread") == "none":
        footprint = memory.count_needed_bytes_or_refuse(pair, config, drafting, place, precision, quantisation)
    else:
        refuse_unfit_spread(spread, target, config, place)
    return tokenizer, quantisation, footprint


def validate_or_choose_device(device: str | None, allowed_kinds: tuple[str, ...] = KINDS) -> torch.device:
    """The device to work on, of these `allowed_kinds`; None takes the first that is there. Raises `ValueError` for one that is not."""
    if device is None:
        device = next(kind for kind in allowed_kinds if is_device_kind_available(kind))
    known = re.fullmatch(r"cpu|cuda(:\d+)?|mps(:0)?", str(device))
    if not known or (place := torch.device(device)).type not in allowed_kinds:
        named = ("cuda:N", *reversed(allowed_kinds))
        raise ValueError(f"The device must be {', '.join(named[1:])} or {named[0]}, got {str(device)!r}.")
    if place.type == "mps" and not is_device_kind_available("mps"):
        raise ValueError(
            f"There is no Apple GPU here that PyTorch can use, got device={str(device)!r}. Use device='cpu'."
        )
    if place.type == "mps":
        return torch.device("mps", 0)
    if place.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"There is no CUDA GPU here, got device={str(device)!r}. Use device='cpu'.")
        place = torch.device("cuda", place.index or 0)
        if place.index >= torch.cuda.device_count():
            raise ValueError(f"There are {torch.cuda.device_count()} CUDA GPUs here, counted from 0; got {device!r}.")
    return place


def validate_or_choose_dtype(dtype: str | None, device: torch.device) -> str:
    """A name in `DTYPES`. Raises `ValueError` for an unknown one."""
    if dtype is None:
        return "fp32" if device.type == "cpu" else "bf16"
    if dtype not in DTYPES:
        raise ValueError(f"Unknown dtype {dtype!r}. Available: {', '.join(DTYPES)}; 8-bit and nf4 are quantisations.")
    return dtype


def hardware_name(device: torch.device) -> str:
    """What a person calls what computes: "2 CPU cores", those that the engine may use, or the GPU's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"{torch.backends.mps.get_name()} GPU"
    return f"{count_usable_cores_capped()} CPU core{'' if count_usable_cores_capped() == 1 else 's'}"


def collect_stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends a text, as the generation config, the tokenizer and the model config name them."""
    found: set[int] = set()
    for ends in (model.generation_config.eos_token_id, tokenizer.eos_token_id, model.config.eos_token_id):
        found.update(ends if isinstance(ends, (list, tuple)) else () if ends is None else (ends,))
    return frozenset(found)


def load_and_check_tokenizer_and_config(checkpoint: Checkpoint) -> tuple[PreTrainedTokenizerBase, PreTrainedConfig]:
    """The small files of a checkpoint. Raises `ValueError` for everything that can be refused by them alone."""
    if checkpoint.revision is None:
        refusals.refuse_missing_or_pickled_weights(checkpoint)
    config = load_text_config_of_checkpoint(checkpoint)
    if problem := refusals.explain_why_unable_to_verify_trees(config):
        raise ValueError(
            f"{checkpoint.path} ({config.model_type}) cannot be raced: {problem}. {refusals.FAMILIES} models work, and of those with "
            f"states {refusals.STATE_FAMILIES}."
        )
    with refusals.reword_errors(checkpoint):
        tokenizer = AutoTokenizer.from_pretrained(**from_pretrained_arguments_of(checkpoint))
    if not tokenizer.is_fast:
        raise ValueError(
            f"The tokenizer of {checkpoint.path} ({type(tokenizer).__name__}) runs in Python only, and text streams from a fast one: "
            "save it with a tokenizer.json."
        )
    highest = max(tokenizer.get_vocab().values())
    if highest >= config.vocab_size:
        raise ValueError(
            f"The tokenizer of {checkpoint.path} has ids up to {highest}, its model only {config.vocab_size} logits. "
            "Use the tokenizer that the model was trained with."
        )
    return tokenizer, config


def load_text_config_of_checkpoint(checkpoint: Checkpoint) -> PreTrainedConfig:
    """The configuration of the model that is raced: of a composite checkpoint that was tried here, that of its text model."""
    with refusals.reword_errors(checkpoint):
        config = AutoConfig.from_pretrained(**from_pretrained_arguments_of(checkpoint))
        return composite.text_config_of_composite(config)


def from_pretrained_arguments_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Arguments by which `from_pretrained` finds the configuration and the tokenizer."""
    found = checkpoint.load_arguments
    if has_gguf_suffix(checkpoint.path):
        folder = gguf_reading.convert_config_and_tokenizer_into_cache(checkpoint.path)
        found["pretrained_model_name_or_path"] = str(folder)
    return found


def mtp_from_pretrained_arguments_of(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Arguments by which a target's own MTP layers are found; None for GGUF, whose names of them transformers does not read."""
    return None if has_gguf_suffix(checkpoint.path) else checkpoint.load_arguments


def load_model(
    checkpoint: Checkpoint,
    device: torch.device,
    dtype: torch.dtype,
    quantisation: str = "none",
    spread: str = "none",
    report_progress: ProgressCallback | None = None,
) -> PreTrainedModel:
    """Weights of safetensors or GGUF. Raises `ValueError` when one is missing, and whatever `report_progress` raises."""
    config = load_text_config_of_checkpoint(checkpoint)
    from_gguf = has_gguf_suffix(checkpoint.path)
    more: dict = {
        "config": config,
        "use_safetensors": True,
        "key_mapping": composite.NAMES,
        **checkpoint.load_arguments,
    }
    kind: Any = AutoModelForCausalLM
    if from_gguf:
        with refusals.reword_errors(checkpoint):
            weights = gguf_reading.lazy_weights_of(checkpoint.path)
            more = {"pretrained_model_name_or_path": None, "config": config, "state_dict": weights}
        kind = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    own, rounded = stored_quantisation_of(config), uses_rounded_linear(quantisation, device, spread)
    as_read = own if rounded else quantisation
    if own != "none":
        config.quantization_config["llm_int8_threshold"] = 0.0
        more |= {"device_map": {"": device if own in quantisations_on(device) else "cpu"}}  # where it can be widened
    elif quantisation != "none" and not rounded:
        more |= {"quantization_config": bitsandbytes_config_of(quantisation, dtype), "device_map": {"": device}}
    if spread != "none":
        meta_model = memory.build_meta_device_model(config, dtype, quantisation)
        more |= spread_loading_arguments(spread, checkpoint, config, meta_model)
    if report_progress and checkpoint.revision is not None:
        more["tqdm_class"] = progress.build_hub_fetch_bar_class(report_progress, short_name_of(checkpoint.path))
    read_in = memory.loading_dtype_of(config, dtype) if rounded else dtype
    attention = refusals.attention_implementation_of(config)
    reported = memory.build_meta_device_model(config, read_in, as_read) if report_progress else None
    sizes = {} if reported is None else memory.weight_bytes_by_name(reported)
    try:
        reporting = progress.report_weight_loading_progress(report_progress, short_name_of(checkpoint.path), sizes)
        with refusals.reword_errors(checkpoint), reporting:
            model, report = kind.from_pretrained(
                **more, dtype=read_in, attn_implementation=attention, output_loading_info=True
            )
            if rounded:
                model = cast_rest_or_dequantise(replace_with_rounded_linear(model), quantisation, dtype)
                if from_gguf:
                    round_floats_to_half_kept_as_float32(model)
            elif own != "none":
                model = cast_rest_or_dequantise(model, quantisation, dtype)
                model = model.to(device) if quantisation == "none" else model
            elif quantisation == spread == "none":
                model = model.to(device)
            elif folder := more.get("offload_folder"):
                weakref.finalize(model, shutil.rmtree, folder, ignore_errors=True)
    except LoadingStopped as stopped:
        raise stopped.reason from None
    if report["missing_keys"]:  # transformers fills them with random numbers and goes on
        missing = sorted(report["missing_keys"])
        raise ValueError(f"{checkpoint.path} lacks {len(missing)} of its model's weights, for example {missing[0]}.")
    if quantisation != "none" and all(each.dtype != KEPT[quantisation] for each in model.parameters()):
        raise ValueError(
            f"{checkpoint.path} ({model.config.model_type}) has no layers that can be kept in {quantisation}: "
            "load it with the quantisation none."
        )
    if from_gguf:
        model.name_or_path = model.config.name_or_path = short_name_of(checkpoint.path)
    return model.eval()
