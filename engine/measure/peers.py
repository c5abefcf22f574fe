"""Peers: the ways in which `transformers` itself speeds up `generate()`, on the pair's own model objects, beside a bench's lanes.

Every way is a function `(pair, prompt_ids, max_tokens, temperature) -> new tokens`. `top_k` is off, so that all sample from the lanes'
distribution. They stop where the lanes stop. Above temperature 0 they draw from torch's global generator: two runs differ.
"""

import statistics
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from tqdm import tqdm
from transformers import DynamicCache, PreTrainedModel
from transformers.modeling_layers import MtpModel

from engine.measure.other_engines import PeerGenerateFunctions
from engine.measure.table import Column, format_table, format_text_identity, optional_field_formatter
from engine.measure.verdict import compute_speedups_by_prompt
from engine.measure.ways import (
    GenerateFunction,
    WrittenText,
    describe_divergence,
    list_first_differences_from_plain,
    run_and_time_generate_function,
    tau_reported_by_server,
)
from engine.models.pairs import LoadedPair
from engine.nets.assistant import GemmaAssistant
from engine.nets.mtp import Mtp
from engine.race import BASELINE
from engine.record.trace import Trace
from engine.record.trace_statistics import pooled_tau

PLAIN, ASSISTED, LOOKUP, MTP = "generate()", "generate() assisted", "generate() lookup", "generate() MTP"
LOOKUP_TOKENS = 10
GUESSES = 3  # a round, by an assistant of Gemma 4


def generate_with_transformers(
    pair: LoadedPair, prompt_ids: list[int], max_tokens: int, temperature: float, **generate_arguments: object
) -> list[int]:
    """The tokens that `generate()` writes after the prompt, one by one without `generate_arguments`: at most `max_tokens`, and none
    beyond the window.
    """
    model = pair.target.model
    ids = torch.tensor([prompt_ids], device=model.device)
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
    stop = {"eos_token_id": sorted(pair.stop_ids)} if pair.stop_ids else {}
    room = min(max_tokens, pair.context - len(prompt_ids))
    with torch.inference_mode():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=room, **stop, **sampling, **generate_arguments
        )
    return out[0, len(prompt_ids) :].tolist()


def generate_assisted(
    pair: LoadedPair, prompt_ids: list[int], max_tokens: int, temperature: float, guesses: int = 0
) -> list[int]:
    """`generate(assistant_model=...)` with the pair's draft model, which stops below its default confidence.

    It drafts so many `guesses` a round by a constant schedule; 0 leaves all defaults, 20 at most while it is confident.
    """
    constant = {"num_assistant_tokens": guesses, "num_assistant_tokens_schedule": "constant"}
    draft = pair.draft.model
    with override_generation_config(draft, **(constant if guesses else {})):
        return generate_with_transformers(pair, prompt_ids, max_tokens, temperature, assistant_model=draft)


def generate_by_lookup(pair: LoadedPair, prompt_ids: list[int], max_tokens: int, temperature: float) -> list[int]:
    """`generate(prompt_lookup_num_tokens=...)`: guesses are what followed the same n-gram earlier in the text."""
    return generate_with_transformers(pair, prompt_ids, max_tokens, temperature, prompt_lookup_num_tokens=LOOKUP_TOKENS)


def generate_by_mtp_or_gemma_assistant(
    pair: LoadedPair, prompt_ids: list[int], max_tokens: int, temperature: float, **generate_arguments: object
) -> list[int]:
    """`generate(use_mtp=True)` with the target's own MTP layers, one guess a round for every layer, or with Gemma 4's assistant.

    Layers that are loaded are lent. `generate()` would read them in every call, by the name of a repository without its commit.
    """
    net: Mtp | GemmaAssistant = pair.net("mtp")
    if isinstance(net, GemmaAssistant):
        with override_generation_config(net.model, num_assistant_tokens=GUESSES):
            return generate_with_transformers(
                pair, prompt_ids, max_tokens, temperature, assistant_model=net.model, **generate_arguments
            )
    with patch_mtp_loading_to_return(net.model):
        return generate_with_transformers(pair, prompt_ids, max_tokens, temperature, use_mtp=True, **generate_arguments)


@contextmanager
def patch_mtp_loading_to_return(layers: MtpModel) -> Iterator[None]:
    """Whatever asks transformers for a target's MTP layers meanwhile gets these, and nothing is read."""
    read = MtpModel.__dict__["from_pretrained"]
    MtpModel.from_pretrained = staticmethod(lambda *of, **how: layers)
    try:
        yield
    finally:
        MtpModel.from_pretrained = read


@contextmanager
def override_generation_config(model: PreTrainedModel, **settings: object) -> Iterator[None]:
    """Gives the model a copy of its generation config with these settings, and afterwards its own back, untouched by `generate()`."""
    own = model.generation_config
    model.generation_config = deepcopy(own)
    model.generation_config.update(**settings)
    try:
        yield
    finally:
        model.generation_config = own


def list_generate_functions(pair: LoadedPair) -> dict[str, GenerateFunction]:
    """All ways of calling `generate()` that the pair allows, by name."""
    return list_generate_functions_and_omissions(pair).function_by_name


def list_plain_and_mtp_generate_functions(pair: LoadedPair) -> dict[str, GenerateFunction]:
    """`generate()` as it is, and with the target's own MTP layers where it has some."""
    return {name: way for name, way in list_generate_functions(pair).items() if name in (PLAIN, MTP)}


def list_generate_functions_and_omissions(pair: LoadedPair) -> PeerGenerateFunctions:
    """The ways of `list_generate_functions`, and a sentence for every other one that the pair has what it takes for.

    Where the vocabularies differ in size, `transformers` takes the tokenizers to be different: it translates between them and prunes
    the draft's head. That is another method, and is left out. An assistant of Gemma 4 is shown only rows that layers share.
    """
    found = PeerGenerateFunctions({PLAIN: generate_with_transformers})
    draft, layers = pair.draft, "mtp" in pair.learned
    if not can_transformers_crop_cache(pair):
        names = [name for name, there in ((ASSISTED, draft), (MTP, layers), (LOOKUP, True)) if there]
        what = f"{', '.join(names)} {'are' if names[1:] else 'is'} left out"
        target = type(pair.target.model).__name__
        found.notes.append(f"{what}: transformers cannot take a guess back from the states of a {target}.")
        return found
    if draft and draft.vocab == pair.target.vocab:
        found.function_by_name[ASSISTED] = generate_assisted
        found.add_variants_by_guess_count(ASSISTED, generate_assisted)
    elif draft:
        sizes = f"{draft.vocab:,} logits of the draft and {pair.target.vocab:,} of the target"
        found.notes.append(f"{ASSISTED} is left out: with {sizes} transformers would translate between tokenizers.")
    if layers and getattr(pair.target.config, "num_kv_shared_layers", None) != 0:
        found.function_by_name[MTP] = generate_by_mtp_or_gemma_assistant
    elif layers:
        found.notes.append(
            f"{MTP} is left out: transformers shows an assistant the rows that the target's layers share, and none do."
        )
    found.function_by_name[LOOKUP] = generate_by_lookup
    return found


def can_transformers_crop_cache(pair: LoadedPair) -> bool:
    """Whether the target's cache in transformers can be cut back to where guesses were right.

    Models whose class calls itself stateful are refused there. Others keep inputs of convolutions, which can be cut, or states, which
    cannot; the cache itself tells.
    """
    model = pair.target.model
    if model._is_stateful or not pair.target.recurrent:
        return not model._is_stateful
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(torch.tensor([[0]], device=model.device), past_key_values=cache, use_cache=True)
    return cache.is_croppable


def merge_transformers_generate_with(pair: LoadedPair, other_peers: PeerGenerateFunctions) -> PeerGenerateFunctions:
    """All peers: every way of calling `generate()`, and then `other_peers`."""
    own = list_generate_functions_and_omissions(pair)
    return PeerGenerateFunctions(
        own.function_by_name | other_peers.function_by_name,
        own.variant_names_by_group | other_peers.variant_names_by_group,
        own.notes + other_peers.notes,
    )


def most_common_linear_class_name(model: PreTrainedModel) -> str:
    """The class of most of the model's linear layers, such as "Linear" or "Linear4bit"; "patched" when their forward was replaced."""
    kinds = Counter(
        f"patched {type(module).__name__}" if "forward" in vars(module) else type(module).__name__
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) or "linear" in type(module).__name__.lower()
    )
    return kinds.most_common(1)[0][0] if kinds else "no linear"


def measure_tau_by_forward_hook(
    pair: LoadedPair,
    generate: GenerateFunction,
    prompts_token_ids: list[list[int]],
    max_tokens: int,
    temperature: float,
) -> float | None:
    """Tokens per target forward over the prompts, that of the prompt included, counted by a hook: never time this pass.

    None when the draft is the target itself, because a hook cannot tell their forwards apart.
    """
    model = pair.target.model
    if pair.draft is not None and pair.draft.model is model:
        return None
    forwards: list[None] = []
    hook = model.register_forward_hook(lambda *_: forwards.append(None))
    try:
        written = sum(
            len(run_and_time_generate_function(pair, generate, prompt, max_tokens, temperature).tokens)
            for prompt in prompts_token_ids
        )
    finally:
        hook.remove()
    return written / len(forwards)


def compute_peer_tau_and_text_equality(
    peer_name: str, plain_traces: list[Trace], written_texts: list[WrittenText], temperature: float
) -> dict:
    """What a way's texts say beside plain decoding's. Sampled texts are not compared."""
    return {
        "tau": tau_reported_by_server(written_texts),
        "identical": None if temperature else not list_first_differences_from_plain(plain_traces, written_texts),
        "parted": "" if temperature else describe_divergence(peer_name, plain_traces, written_texts),
    }


def measure_tau_and_build_peer_rows(
    pair: LoadedPair,
    figures: dict,
    traces_by_system: dict[str, list[Trace]],
    written_texts_by_peer: dict[str, list[WrittenText]],
) -> dict:
    """The rows of systems and of ways, by prompt. `figures` are the bench's. A pass of its own, never timed, finds a way's tau."""
    calls, base, temperature = list_generate_functions(pair), traces_by_system[BASELINE], figures["temperature"]
    prompts = [trace.prompt_tokens for trace in base]
    per_token = {
        name: [each.seconds_per_token for each in mine]
        for name, mine in (traces_by_system | written_texts_by_peer).items()
    }
    layers, rows = most_common_linear_class_name(pair.target.model), []
    identical = {row["name"]: row["identical"] for row in figures["systems"]}
    for name in tqdm([*traces_by_system, *written_texts_by_peer], desc="tau"):
        if name in traces_by_system:
            about = {"tau": pooled_tau(traces_by_system[name]), "identical": identical.get(name, True), "parted": ""}
        else:
            about = compute_peer_tau_and_text_equality(name, base, written_texts_by_peer[name], temperature)
        if name in calls:
            about["tau"] = measure_tau_by_forward_hook(pair, calls[name], prompts, figures["tokens"], temperature)
        row = {
            "name": name if name not in calls or layers == "Linear" else f"{name} on {layers}",
            "tokens_per_s": 1 / statistics.median(per_token[name]),
            "vs_baseline": statistics.median(compute_speedups_by_prompt(per_token[BASELINE], per_token[name])),
            "vs_generate": statistics.median(compute_speedups_by_prompt(per_token[PLAIN], per_token[name])),
        }
        rows.append(row | about)
    return {"peers": rows, "peers_on": f"{type(pair.target.model).__name__} with {layers} layers"}


PEERS: list[Column] = [
    ("", "{name}"),
    ("tokens/s", "{tokens_per_s:.0f}"),
    ("vs baseline", "{vs_baseline:.2f}x"),
    ("vs generate()", "{vs_generate:.2f}x"),
    ("tau", optional_field_formatter("tau", ".2f")),
    ("identical", format_text_identity),
]


def format_peers(figures: dict) -> str:
    """The comparison for people."""
    parted = [row["parted"] for row in figures["peers"] if row["parted"]]
    lines = [*format_table(PEERS, figures["peers"]), f"generate() ran on {figures['peers_on']}."]
    return "\n".join([*lines, *figures["others"], *parted])
