"""Model pairs: which draft guesses for which target, and how both come into memory. Knows files; knows no tree.

Invariant: what comes out of here can verify a tree exactly: full attention under the caller's mask, explicit positions,
one token -> id map for target and draft. Anything else is refused with a sentence, if possible before weights are read.
"""

import inspect
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from huggingface_hub import errors as hub
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from engine.bigram import BigramTable
from engine.calibration import Calibration
from engine.lean import eight_bits_pay, head_dim_of
from engine.nets import Net, load_nets
from engine.runner import Runner

EMBEDDED = Path(__file__).resolve().parent.parent / "assets" / "models"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FOUR_BIT_MULTIPLE = 64  # bitsandbytes' 4-bit kernels on a CPU crash on other sizes
# These rotary embeddings turn every position by the longest one in a forward, and a tree's nodes move that.
UNSTEADY_ROPE = {"dynamic", "longrope"}


@dataclass(frozen=True)
class Checkpoint:
    """One model's files: a folder when `revision` is None, else a Hub repository at that commit."""

    path: str
    revision: str | None = None
    gated: bool = False

    @property
    def source(self) -> dict:
        """How every `from_pretrained` finds it. A folder never asks the network; nobody's code is ever run."""
        found = {"local_files_only": True} if self.revision is None else {"revision": self.revision}
        return {"pretrained_model_name_or_path": self.path, "trust_remote_code": False, **found}


@dataclass(frozen=True)
class Pair:
    """A target and the draft that guesses for it. Paths are folders, or Hub repositories pinned by their `*_revision`. `drafters` is a
    folder of drafters trained for the target, `calibration` a file of what was measured about the pair.

    A `gated` pair has a repository that asks for an accepted licence and a token.
    Raises `ValueError` for a revision that is no full commit: a branch may change, and for pickled weights on a branch
    transformers would fetch a converted copy from elsewhere.
    """

    name: str
    title: str
    target: str
    draft: str | None = None
    target_revision: str | None = None
    draft_revision: str | None = None
    bigram: str | None = None
    drafters: str | None = None
    calibration: str | None = None
    gated: bool = False

    def __post_init__(self):
        for path, revision in ((self.target, self.target_revision), (self.draft, self.draft_revision)):
            if revision is not None and not re.fullmatch("[0-9a-f]{40}", revision):
                raise ValueError(f"The revision of {path} must be a full 40-digit commit, got {revision!r}.")

    @property
    def target_checkpoint(self) -> Checkpoint:
        return Checkpoint(self.target, self.target_revision, self.gated)

    @property
    def draft_checkpoint(self) -> Checkpoint | None:
        return None if self.draft is None else Checkpoint(self.draft, self.draft_revision, self.gated)


PAIRS = {
    pair.name: pair
    for pair in (
        Pair(
            name="embedded",
            title="embedded pair",
            target=str(EMBEDDED / "target"),
            draft=str(EMBEDDED / "draft"),
            bigram=str(EMBEDDED / "bigram.safetensors"),
            drafters=str(EMBEDDED / "drafters"),
            calibration=str(EMBEDDED / "calibration.json"),
        ),
        Pair(
            name="qwen2.5-7b",
            title="Qwen2.5 0.5B → 7B Instruct",
            target="Qwen/Qwen2.5-7B-Instruct",
            target_revision="a09a35458c702b33eeacc393d103063234e8bc28",
            draft="Qwen/Qwen2.5-0.5B-Instruct",
            draft_revision="7ae557604adf67be50417f59c2c2f167def9a775",
        ),
        Pair(
            name="smollm2-1.7b",
            title="SmolLM2 135M → 1.7B",
            target="HuggingFaceTB/SmolLM2-1.7B",
            target_revision="effd688a12921b4cc83e3312b6feb579f70f9c71",
            draft="HuggingFaceTB/SmolLM2-135M",
            draft_revision="93efa2f097d58c2a74874c7e644dbc9b0cee75a2",
        ),
        Pair(
            name="llama-3.1-8b",
            title="Llama 3.2 1B → 3.1 8B",
            target="meta-llama/Llama-3.1-8B",
            target_revision="d04e592bb4f6aa9cfee91e2e20afa771667e1d4b",
            draft="meta-llama/Llama-3.2-1B",
            draft_revision="4e20de362430cd3b72f300e6b0f18e50e7166e08",
            gated=True,
        ),
        Pair(  # the usual draft of Llama 2, JackFram/llama-68m, is published as a pickle only
            name="llama-2-7b",
            title="TinyLlama 1.1B → Llama 2 7B",
            target="meta-llama/Llama-2-7b-hf",
            target_revision="01c7f73d771dfac7d292323805ebc428287df4f9",
            draft="TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T",
            draft_revision="036fa4651240b9a1487f709833b9e4b96b4c1574",
            gated=True,
        ),
    )
}


@dataclass(frozen=True, eq=False)
class LoadedPair:
    """A pair in memory. `dtype` is the target's, a name in `DTYPES` or "nf4"; `context` is the smaller context window.

    `learned` holds the drafters trained for this target, by name. With padded logits `target.vocab` and `draft.vocab` may differ;
    every id of the tokenizer is below both.
    """

    pair: Pair
    tokenizer: PreTrainedTokenizerBase
    target: Runner
    draft: Runner | None
    bigram: BigramTable | None
    hardware: str
    dtype: str
    context: int
    stop_ids: frozenset[int]
    learned: Mapping[str, Net] = field(default_factory=dict)
    calibration: Calibration | None = None

    @property
    def title(self) -> str:
        return self.pair.title

    def net(self, name: str) -> Net:
        """The learned drafter of that name. Raises `ValueError` when none was trained for this pair's target."""
        if name not in self.learned:
            raise ValueError(
                f"The pair {self.title} has no trained {name} drafter. Train one with `python -m engine.train {name} "
                f"--pair {self.pair.name}`, or choose the system tree or lookup."
            )
        return self.learned[name]


_lock = threading.Lock()
_loaded: dict[tuple, LoadedPair] = {}


def load(
    name: str = "embedded", device: str | None = None, dtype: str | None = None, four_bit: bool = False
) -> LoadedPair:
    """The named pair, loaded once: the same arguments give the same object, from any thread.

    `device` None takes the GPU when there is one; `dtype` None is fp32 on a CPU and bf16 on a GPU.
    Raises `ValueError` with a sentence for whatever cannot be loaded.
    """
    if name not in PAIRS:
        raise ValueError(f"Unknown pair {name!r}. Available: {', '.join(PAIRS)}.")
    place = checked_device(device)
    precision = checked_dtype(dtype, place)
    key = (name, place, precision, four_bit)
    if key not in _loaded:  # asked twice, so that nobody waits for another pair's download
        with _lock:
            if key not in _loaded:
                _loaded[key] = load_pair(PAIRS[name], str(place), precision, four_bit)
    return _loaded[key]


def load_pair(pair: Pair, device: str | None = None, dtype: str | None = None, four_bit: bool = False) -> LoadedPair:
    """Load a pair anew. `four_bit` keeps the target's weights as NF4 and computes in `dtype`; the draft stays plain.

    Raises `ValueError` with a sentence for whatever cannot be loaded.
    """
    place = checked_device(device)
    precision = checked_dtype(dtype, place)
    target, draft = pair.target_checkpoint, pair.draft_checkpoint
    tokenizer, config = load_tokenizer_and_config(target)
    if draft is not None:
        draft_tokenizer, _ = load_tokenizer_and_config(draft)
        refuse_other_vocabulary(draft, target, draft_tokenizer, tokenizer)
    if four_bit:
        refuse_sizes_beyond_four_bit(target, config)
    bigram = None if pair.bigram is None else BigramTable.load(pair.bigram)
    if bigram is not None and bigram.vocab != config.vocab_size:
        raise ValueError(
            f"The bigram table {pair.bigram} covers {bigram.vocab} tokens, {target.path} has {config.vocab_size}. "
            "Make them together with `python -m engine.train pair`."
        )
    model = load_model(target, place, DTYPES[precision], four_bit)
    drafting = None
    if draft is not None:
        guessing = load_model(draft, place, DTYPES[precision])
        drafting = Runner(guessing, eight_bit=eight_bits_pay(guessing))
    verifying = Runner(model)
    return LoadedPair(
        pair=pair,
        tokenizer=tokenizer,
        target=verifying,
        draft=drafting,
        bigram=bigram,
        hardware=hardware_name(place),
        dtype="nf4" if four_bit else precision,
        context=verifying.context if drafting is None else min(verifying.context, drafting.context),
        stop_ids=stop_ids(model, tokenizer),
        learned={} if pair.drafters is None else load_nets(Path(pair.drafters), model),
        calibration=Calibration.load(pair.calibration)
        if pair.calibration and Path(pair.calibration).exists()
        else None,
    )


def checked_device(device: str | None) -> torch.device:
    """The device to load on. Raises `ValueError` for one that is not there."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", str(device)):
        raise ValueError(f"The device must be cpu, cuda or cuda:N, got {str(device)!r}.")
    place = torch.device(device)
    if place.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"There is no CUDA GPU here, got device={str(device)!r}. Use device='cpu'.")
        place = torch.device("cuda", place.index or 0)
        if place.index >= torch.cuda.device_count():
            raise ValueError(f"There are {torch.cuda.device_count()} CUDA GPUs here, counted from 0; got {device!r}.")
    return place


def checked_dtype(dtype: str | None, device: torch.device) -> str:
    """A name in `DTYPES`. Raises `ValueError` for an unknown one."""
    if dtype is None:
        return "fp32" if device.type == "cpu" else "bf16"
    if dtype not in DTYPES:
        raise ValueError(f"Unknown dtype {dtype!r}. Available: {', '.join(DTYPES)}; nf4 is four_bit=True.")
    return dtype


def hardware_name(device: torch.device) -> str:
    """What a person calls the machine: "2 CPU cores", or the GPU's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} CPU core{'' if cores == 1 else 's'}"


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends a text, by the generation config, the tokenizer or the model config."""
    found: set[int] = set()
    for ends in (model.generation_config.eos_token_id, tokenizer.eos_token_id, model.config.eos_token_id):
        found.update(ends if isinstance(ends, (list, tuple)) else () if ends is None else (ends,))
    return frozenset(found)


def load_tokenizer_and_config(checkpoint: Checkpoint) -> tuple[PreTrainedTokenizerBase, PreTrainedConfig]:
    """The cheap files of a checkpoint, with every refusal that they allow."""
    if checkpoint.revision is None:
        refuse_missing_weights(checkpoint)
    with in_plain_words(checkpoint):
        config = AutoConfig.from_pretrained(**checkpoint.source)
    problem = obstacle(config)
    if problem:
        raise ValueError(
            f"{checkpoint.path} ({config.model_type}) cannot be raced: {problem}. "
            "Llama, Qwen2, Qwen3 and Mistral models without a sliding window work."
        )
    with in_plain_words(checkpoint):
        tokenizer = AutoTokenizer.from_pretrained(**checkpoint.source)
    highest = max(tokenizer.get_vocab().values())
    if highest >= config.vocab_size:
        raise ValueError(
            f"The tokenizer of {checkpoint.path} has ids up to {highest}, its model only {config.vocab_size} logits. "
            "Use the tokenizer that the model was trained with."
        )
    return tokenizer, config


def load_model(
    checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, four_bit: bool = False
) -> PreTrainedModel:
    """Weights from safetensors, under sdpa attention. Raises `ValueError` when any weight is missing."""
    quantised = {}
    if four_bit:
        nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
        quantised = {"quantization_config": nf4, "device_map": {"": device}}
    with in_plain_words(checkpoint):
        model, report = AutoModelForCausalLM.from_pretrained(
            **checkpoint.source,
            **quantised,
            dtype=dtype,
            use_safetensors=True,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
        if not four_bit:
            model = model.to(device)
    if report["missing_keys"]:  # transformers would go on with random numbers in their place
        missing = sorted(report["missing_keys"])
        raise ValueError(f"{checkpoint.path} lacks {len(missing)} of its model's weights, for example {missing[0]}.")
    return model.eval()


def obstacle(config: PreTrainedConfig) -> str | None:
    """Why a model of this configuration cannot verify a tree, or None when it can."""
    kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    others = sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention"})
    window = getattr(config, "sliding_window", None)
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    quantised = getattr(config, "quantization_config", None)
    if kind is None:
        return "it is no causal language model"
    if kind._is_stateful:
        return "it keeps a recurrent state, which cannot be rolled back to a branch"
    if others:
        return f"it has layers of type {', '.join(others)}, and a tree mask needs full attention everywhere"
    if window is not None and window < config.max_position_embeddings:
        return f"it attends over a sliding window of {window} tokens, and a tree mask needs full attention"
    if getattr(config, "num_key_value_heads", None) is None or hasattr(config, "kv_lora_rank"):
        return "its cache does not hold plain keys and values by head"
    if "position_ids" not in inspect.signature(kind.forward).parameters:
        return "it takes no position ids, and a node's position is its depth"
    if rope in UNSTEADY_ROPE:
        return f"its {rope} rotary embedding changes with the length of the text"
    if not kind._supports_sdpa:
        return "it does not offer sdpa attention, which takes the tree's mask"
    if quantised is not None:
        return "its weights are already quantised; give the plain ones and ask for four_bit"
    return None


def refuse_missing_weights(checkpoint: Checkpoint) -> None:
    folder = Path(checkpoint.path)
    if any(folder.glob("*.safetensors")) and (folder / "config.json").is_file():
        return
    if any(folder.glob("*.bin")):
        raise ValueError(
            f"{folder} holds pickled weights (.bin), which can run code. Only safetensors are loaded: "
            "write them with `save_pretrained`."
        )
    if folder.is_relative_to(EMBEDDED):
        raise ValueError(f"No model weights at {folder}. Make the embedded pair with `python -m engine.train pair`.")
    raise ValueError(
        f"No model weights at {folder}: this must be a folder with config.json and safetensors. "
        "A Hub repository needs its commit as the pair's revision."
    )


def refuse_other_vocabulary(
    draft: Checkpoint, target: Checkpoint, draft_tokenizer: PreTrainedTokenizerBase, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Equal sizes prove nothing: every token must have the same id in both."""
    guessed, wanted = draft_tokenizer.get_vocab(), tokenizer.get_vocab()
    differing = sorted(each for each in guessed.keys() | wanted.keys() if guessed.get(each) != wanted.get(each))
    if differing:
        example = differing[0]
        here, there = wanted.get(example, "absent"), guessed.get(example, "absent")
        raise ValueError(
            f"{draft.path} cannot draft for {target.path}: {len(differing)} tokens have other ids. For example, "
            f"{example!r} is {here} in the target, {there} in the draft. Choose a draft with the target's tokenizer."
        )


def refuse_sizes_beyond_four_bit(checkpoint: Checkpoint, config: PreTrainedConfig) -> None:
    head_dim = head_dim_of(config)
    sizes = {
        "hidden size": config.hidden_size,
        "MLP size": config.intermediate_size,
        "query size": head_dim * config.num_attention_heads,
        "key/value size": head_dim * config.num_key_value_heads,
    }
    for what, size in sizes.items():
        if size % FOUR_BIT_MULTIPLE:
            raise ValueError(
                f"4-bit weights need sizes in multiples of {FOUR_BIT_MULTIPLE}; {checkpoint.path} has a {what} "
                f"of {size}. Load it without four_bit."
            )


@contextmanager
def in_plain_words(checkpoint: Checkpoint) -> Iterator[None]:
    """Whatever goes wrong while files are read leaves as a `ValueError` that says what to do."""
    try:
        yield
    except Exception as error:
        raise ValueError(explanation(checkpoint, error)) from error


def explanation(checkpoint: Checkpoint, error: Exception) -> str:
    """One sentence for an error of transformers, the Hub, the disk or the allocator."""
    path, kinds, cause = checkpoint.path, [], error
    while cause is not None:
        kinds.append(cause)
        cause = cause.__cause__ or cause.__context__
    said = " ".join(str(error).split())

    def among(*types: type) -> bool:
        return any(isinstance(each, types) for each in kinds)

    if among(torch.OutOfMemoryError, MemoryError) or "allocate memory" in said:
        return f"Out of memory while loading {path}. Use four_bit, a smaller pair or a larger device."
    if among(hub.GatedRepoError):
        page = f"https://huggingface.co/{path}"
        return f"{path} is gated: accept its licence at {page} and set HF_TOKEN to a token of that account."
    if among(hub.RepositoryNotFoundError, hub.RevisionNotFoundError):
        return f"The Hugging Face Hub shows no {path} at revision {checkpoint.revision}; a private one needs HF_TOKEN."
    if among(ImportError) or "pip install" in said:
        return f"{path} needs packages that are not installed ({said}). Run `pip install -r requirements.txt`."
    if "trust_remote_code" in said:
        return f"{path} needs Python code from its own repository, and that is never run here. Choose another model."
    if checkpoint.revision is not None and isinstance(error, OSError) and error.errno is None:
        gate = " This pair is gated: it also needs an accepted licence and HF_TOKEN." if checkpoint.gated else ""
        return (
            f"The files of {path} (config, tokenizer, safetensors weights) could not be fetched from the Hugging Face "
            f"Hub and are not in its local cache. Check the network, or use the embedded pair, which needs none.{gate}"
        )
    return f"{path} does not load: {said[:300]}"
