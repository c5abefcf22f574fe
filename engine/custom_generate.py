"""`model.generate(..., custom_generate=treerace)`: generate() of transformers with a system of this engine behind it.

generate() prepares lengths, logits processors and stopping criteria; the decode loop writes the text. Whatever cannot be honoured is
refused by name.
"""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria
from transformers.generation.streamers import BaseStreamer

from engine.decode import decode
from engine.forward.devices import noise_device_or_none_for_cpu
from engine.forward.llama_eight_bit import should_draft_in_eight_bits
from engine.forward.runner import Runner
from engine.models.constraint import compile_constraint
from engine.models.loading import DTYPES, hardware_name
from engine.models.pairs import LoadedPair, Pair
from engine.models.refusals import (
    attention_implementation_of,
    explain_why_unable_to_draft,
    explain_why_unable_to_verify_trees,
)
from engine.race import SHAPE, validate_setting
from engine.sampling import Sampling
from engine.systems import System, resolve_system_name
from engine.tree import LARGEST_TREE

WARPERS = {TemperatureLogitsWarper: "temperature", TopKLogitsWarper: "top_k", TopPLogitsWarper: "top_p"}
# "past_key_values" is "cache" from transformers 5.24 on; "cache_params" is of models that have nothing but states
CACHES = ("cache", "past_key_values", "cache_params")
READ = {"attention_mask", "position_ids", "use_cache", "logits_to_keep", *CACHES}  # what generate() adds itself
# Options of generate() that may have any value. It has made lengths and stops into criteria, and the warpers' values into processors.
HONOURED = {"max_length", "max_new_tokens", "max_time", "eos_token_id", "do_sample", *WARPERS.values()}
NO_TOKEN = {  # how keys and values are kept, ids that one text of tokens never needs, and what versions wrote the options
    *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "compile_config", "disable_compile"),
    *("prefill_chunk_size", "pad_token_id", "bos_token_id", "decoder_start_token_id", "transformers_version"),
}
OF_OTHERS = {  # what only beams or an assistant read, and both are refused by other names
    *("early_stopping", "length_penalty", "num_assistant_tokens", "num_assistant_tokens_schedule"),
    *("assistant_confidence_threshold", "assistant_lookbehind", "target_lookbehind", "max_matching_ngram_size"),
}
OF_SAMPLING = {"min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"}  # which greedy text never reads
ONE_IS_OFF = {  # of all other options 0, False and None are
    *("num_beams", "num_beam_groups", "num_return_sequences", "repetition_penalty", "encoder_repetition_penalty"),
    *("typical_p", "guidance_scale"),
}
RIGHT = {  # the last one is what forwards here give a model
    "sdpa": ("sdpa", "folded_sdpa"),
    "eager": ("eager",),
}
SUMMED = 8192  # bytes of a weight that have one checksum
KEPT = "_treerace"  # where a model keeps its pairs, so that they end with it
ATTENDED = "_treerace_attention"  # where it keeps how it attends within a call


def restore_attention_after_call(generate: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same function, which leaves its models attending as their owner set them.

    Forwards may set another way, and graphs rely on it. So the next call begins with it.
    """

    @wraps(generate)
    def called(model: PreTrainedModel, *given: Any, draft: PreTrainedModel | None = None, **named: Any) -> torch.Tensor:
        models = [each for each in (model, draft) if each is not None]
        before = [each.config._attn_implementation for each in models]
        try:
            for each, own in zip(models, before, strict=True):
                if own in RIGHT["sdpa"] and ATTENDED in each.__dict__:
                    each.set_attn_implementation(each.__dict__[ATTENDED])
            return generate(model, *given, draft=draft, **named)
        finally:
            for each, own in zip(models, before, strict=True):
                if each.config._attn_implementation != own:
                    each.__dict__[ATTENDED] = each.config._attn_implementation
                    each.set_attn_implementation(own)

    return called


@restore_attention_after_call
def treerace(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    system: str = "",
    draft: PreTrainedModel | None = None,
    draft_tokenizer: Tokenizer | None = None,
    depth: int | None = None,
    width: int | None = None,
    nodes: int | None = None,
    seed: int = 0,
    stream_to: BaseStreamer | None = None,
    constraint: str = "",
    constraint_tokenizer: Tokenizer | None = None,
    **model_kwargs: Any,
) -> torch.Tensor:
    """`[1, L]` int64: `input_ids [1, L_0]` and what `model` writes behind them, as generate() answers.

    `system` is a name or a mix of `engine.systems`; without one it is "tree" with a `draft`, else "lookup". Depth, width and nodes are
    the tree's. A draft shares the target's tokens; where the two pad their logits to different sizes, `draft_tokenizer` shows it.
    Sampling draws by `seed` and position: the same seed gives the same text with every system that keeps the tokens.

    The first call copies the weights into its own layout, and a later one does so again where any has changed. To see that, every call
    reads all of them once, which takes about as long as one token does. Gradients are switched off.

    `constraint` is "json:" with a JSON schema, "regex:" with a regular expression or "lark:" with a Lark grammar that the new text must
    match. It needs the model's tokenizer as `constraint_tokenizer`, and a stop token.

    generate() hands no `streamer` and no `tokenizer` to a callable. So the streamer for the tokens is named `stream_to`. A text that
    ends at a string takes a `StopStringCriteria` among the `stopping_criteria`: transformers refuses `stop_strings` beside a callable.
    Raises `ValueError` with a sentence for whatever cannot be honoured. Source: the custom generation functions of transformers 5.
    """
    if reason := explain_why_unable_to_verify_trees(model.config):
        raise ValueError(f"{type(model).__name__} cannot be raced: {reason}.")
    refuse_unsupported(input_ids, generation_config, model_kwargs)
    sampling = build_sampling_from_config(model, logits_processor, generation_config, seed)
    ends = [each.eos_token_id.tolist() for each in stopping_criteria if isinstance(each, EosTokenCriteria)]
    stops = frozenset(token for each in ends for token in each)
    others = [each for each in stopping_criteria if not isinstance(each, EosTokenCriteria | MaxLengthCriteria)]
    ended = StoppingCriteriaList(others)  # what else may end a text, which is asked after every token
    pair = find_or_wrap_cached_pair(model, draft, draft_tokenizer)
    if constraint:
        if constraint_tokenizer is None:
            raise ValueError("A constraint is about text: give the model's tokenizer as constraint_tokenizer.")
        bound = compile_constraint(constraint_tokenizer, pair.target.vocab, stops, constraint)
        sampling = replace(sampling, constraint=bound)
    chosen = resolve_system_name(system or ("tree" if draft is not None else "lookup"))
    shape = {
        name: int(validate_setting(name, getattr(chosen, name) if value is None else value))
        for name, value in zip(SHAPE, (depth, width, nodes), strict=True)
    }
    text, streamers = input_ids.cpu(), [] if stream_to is None else [stream_to]
    for streamer in streamers:
        streamer.put(text)
    most = generation_config.max_length - text.shape[1]
    with closing(generate_tokens(pair, chosen, shape, sampling, text[0].tolist(), most, stops)) as written:
        for token in written:
            text = torch.cat((text, torch.tensor([[token]])), 1)
            for streamer in streamers:
                streamer.put(text[0, -1:])
            if others and bool(ended(text, None).all()):
                break
    for streamer in streamers:
        streamer.end()
    return text.to(input_ids.device)


def generate_tokens(
    pair: LoadedPair,
    system: System,
    shape: dict[str, int],
    sampling: Sampling,
    prompt_tokens: list[int],
    max_new_tokens: int,
    stop_ids: frozenset[int],
) -> Generator[int, None, None]:
    """Up to `max_new_tokens` tokens behind the prompt. Closing the generator frees the caches. Raises `ValueError` for too long a
    prompt.
    """
    if len(prompt_tokens) >= pair.context:
        raise ValueError(
            f"The prompt has {len(prompt_tokens):,} tokens. The context holds {pair.context:,}, answer included."
        )
    capacity = min(pair.context, len(prompt_tokens) + max_new_tokens) + LARGEST_TREE
    rounds = system.open_rounds(pair, capacity, shape, sampling)
    steps, end = decode(rounds, prompt_tokens, max_new_tokens, stop_ids, pair.context), ""
    while not end:
        with pair.target.without_torch_threads():
            done = next(steps)
        end = done.end
        yield from done.burst


def refuse_unsupported(input_ids: torch.Tensor, config: GenerationConfig, model_kwargs: dict[str, Any]) -> None:
    """Raises `ValueError` for what this engine does not do."""
    harmless = HONOURED | NO_TOKEN | OF_OTHERS | (set() if config.do_sample else OF_SAMPLING)
    asked = [
        name
        for name, value in config.to_dict().items()
        if name not in harmless and not name.startswith("_") and value and not (name in ONE_IS_OFF and value == 1)
    ]
    mask = model_kwargs.get("attention_mask")
    past = next((model_kwargs[name] for name in CACHES if model_kwargs.get(name) is not None), None)
    if mask is not None and not bool(mask.all()):
        asked.append("attention_mask with padding")
    if past is not None and (past.has_previous_state() if any(past.is_linear) else past.get_seq_length()):
        asked.append("past_key_values with tokens in it")
    asked += [name for name, value in model_kwargs.items() if name not in READ and value is not None]
    if asked:
        wrong = ", ".join(asked)
        raise ValueError(f"treerace cannot honour {wrong}. Leave that out, or call generate() without treerace.")
    if len(input_ids) != 1:
        raise ValueError(f"treerace writes one text at a time, and this batch has {len(input_ids)}. Call it for each.")


def build_sampling_from_config(
    model: PreTrainedModel, logits_processors: list, config: GenerationConfig, seed: int
) -> Sampling:
    """Temperature, top-k and top-p as generate() has prepared them. Raises `ValueError` for any other processor."""
    honoured: dict[str, Any] = {"temperature": 1.0} if config.do_sample else {}
    for each in logits_processors:
        name = WARPERS.get(type(each)) if config.do_sample else None
        if name is None:
            raise ValueError(
                f"treerace honours temperature, top_k and top_p, and cannot honour {type(each).__name__}. "
                "Leave out the option that asks for it."
            )
        honoured[name] = getattr(each, name)
    return Sampling(**honoured, seed=seed, device=noise_device_or_none_for_cpu(model.device))


def find_or_wrap_cached_pair(
    model: PreTrainedModel, draft: PreTrainedModel | None, draft_tokenizer: Tokenizer | None
) -> LoadedPair:
    """The two models as a pair, made once for the same weights. Raises `ValueError` for models that cannot be raced."""
    weights = [each for one in (model, draft) if one is not None for each in one.parameters()]
    state, kept = [compute_weight_checksums(each) for each in weights], model.__dict__.get(KEPT)
    if kept is None or len(kept[0]) != len(state) or not all(map(torch.equal, kept[0], state)):
        kept = model.__dict__[KEPT] = state, wrap_models_as_pair(model, draft, draft_tokenizer)
    return kept[1]


def compute_weight_checksums(weight: torch.Tensor) -> torch.Tensor:
    """A sum for every `SUMMED` bytes of a weight's memory, int64. Whole numbers add up alike in any order.

    Pointers and versions of tensors tell nothing of `weight.data += delta`, by which adapters are merged.
    """
    memory = weight.detach().flatten().view(torch.uint8)
    whole = len(memory) - len(memory) % SUMMED
    last = F.pad(memory[whole:], (0, SUMMED - len(memory) + whole))
    parts = (memory[:whole] if memory.storage_offset() % 8 == 0 else memory[:whole].clone(), last)
    return torch.cat([part.view(torch.int64).view(-1, SUMMED // 8).sum(1) for part in parts])


def wrap_models_as_pair(
    model: PreTrainedModel, draft: PreTrainedModel | None, draft_tokenizer: Tokenizer | None
) -> LoadedPair:
    if draft is not None and (reason := explain_why_unable_to_draft(draft.config)):
        raise ValueError(f"{type(draft).__name__} cannot draft: {reason}.")
    for each in (model, draft):
        if (
            each is not None
            and each.config._attn_implementation not in RIGHT[attention := attention_implementation_of(each.config)]
        ):
            raise ValueError(
                f'Load {type(each).__name__} with attn_implementation="{attention}", which takes a tree\'s mask and is right for it.'
            )
    if draft is not None and draft.config.vocab_size != model.config.vocab_size:
        differ = f"Draft and target have {draft.config.vocab_size:,} and {model.config.vocab_size:,} logits"
        if draft_tokenizer is None:
            raise ValueError(f"{differ}. Give draft_tokenizer, which shows what is padding.")
        if max(draft_tokenizer.get_vocab().values()) >= min(draft.config.vocab_size, model.config.vocab_size):
            raise ValueError(f"{differ}, and the tokenizer has more tokens than that. Choose another draft.")
    target = Runner(model)
    drafting = None if draft is None else Runner(draft, eight_bit=should_draft_in_eight_bits(draft))
    return LoadedPair(
        pair=Pair(name="given", title="given pair", target="", draft=None if draft is None else ""),
        tokenizer=draft_tokenizer,  # no text is read here
        target=target,
        draft=drafting,
        bigram=None,
        hardware=hardware_name(target.device),
        dtype=next((name for name, dtype in DTYPES.items() if dtype == target.dtype), str(target.dtype)),
        context=target.context if drafting is None else min(target.context, drafting.context),
        stop_ids=frozenset(),  # generate() names them
    )
