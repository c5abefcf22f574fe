"""Medusa heads in the official form (`0.0.linear.weight`, `0.1.weight`) and in that of vLLM (`blocks.0.layers.0.weight`).

A config may give another number of heads than there are, so heads are counted by their names.
"""

import re
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from engine.nets.formats.checked import (
    draft_vocabulary_size_of,
    load_all_tensors,
    refuse_missing_unknown_or_misshaped_tensors,
    refuse_other_target,
    refuse_unread_settings,
    validated_integer_tensor,
    validated_whole_number,
)
from engine.nets.layer import NetConfig
from engine.nets.medusa import Medusa

MOST_BLOCKS = 64  # in a head
# What is read of a config, by a name of one of the forms. Heads and biases are counted by their tensors
READ = frozenset(
    {
        *("vocab_size", "hidden_size", "medusa_num_layers", "num_hidden_layers", "truncated_vocab_size"),
        *("original_lm_head", "logit_scale", "medusa_num_heads", "num_heads", "medusa_fc_bias"),
        *("base_model_name_or_path", "version"),  # of the official form; they change nothing
        *("max_paths", "topk", "num_lookahead_tokens"),  # of vLLM's trees
    }
)
OFFICIAL = ("{head}.{block}.linear.{part}", "{head}.{blocks}.weight")
VLLM = ("blocks.{head}.layers.{block}.{part}", "lm_heads.{head}.weight")


def published_names_of(
    head_count: int, blocks_per_head: int, name_patterns: tuple[str, str], repeats_first_block: bool = False
) -> dict[str, str]:
    """The published names of the weights of `Medusa`, by their own. With `repeats_first_block`, every block of a head is its first."""
    inner, outer = name_patterns
    names = {
        f"blocks.{k * blocks_per_head + j}.{part}": inner.format(
            head=k, block=0 if repeats_first_block else j, part=part
        )
        for k, j, part in product(range(head_count), range(blocks_per_head), ("weight", "bias"))
    }
    return names | {f"unembeds.{k}": outer.format(head=k, blocks=blocks_per_head) for k in range(head_count)}


def is_form_of(config: dict[str, Any]) -> bool:
    return "medusa_num_heads" in config or ("kind" not in config and config.get("model_type") == "medusa")


def load_medusa_heads(
    blocks_per_head: int, own_vocab: int, folder: Path, embedding: torch.Tensor, head: torch.Tensor
) -> Medusa:
    """Each head has so many `blocks_per_head` and guesses `own_vocab` of the target's tokens.

    The official code makes one block and repeats it, so that a file may hold only the first of a head's blocks.
    """
    found, (vocab, hidden) = load_all_tensors(folder), embedding.shape
    vllm = any(name.startswith(("blocks.", "lm_heads.")) for name in found)
    pattern = r"(?:blocks|lm_heads)\.(\d+)\." if vllm else r"(\d+)\."
    heads = 1 + max((int(at[1]) for name in found if (at := re.match(pattern, name))), default=-1)
    if not 1 <= heads <= len(found):
        raise ValueError(f"{folder} holds no Medusa heads among its tensors {', '.join(sorted(found)[:3])}.")
    repeated = not vllm and not any(re.match(r"\d+\.[1-9]\d*\.linear\.", name) for name in found)
    names = published_names_of(heads, blocks_per_head, VLLM if vllm else OFFICIAL, repeated)
    wanted: dict[str, tuple[int, ...]] = {}
    biases: dict[str, tuple[int, ...]] = {}
    for ours, theirs in names.items():
        if ours.startswith("unembeds."):  # over the whole vocabulary too, from which token_map then picks
            wanted[theirs] = (vocab if len(found.get(theirs, ())) == vocab else own_vocab, hidden)
        elif ours.endswith("bias"):
            (biases if vllm else wanted)[theirs] = (hidden,)
        else:
            wanted[theirs] = (hidden, hidden)
    if own_vocab < vocab:
        wanted["token_map"] = (own_vocab,)
    refuse_missing_unknown_or_misshaped_tensors(folder, found, wanted, biases)
    vocabulary = validated_target_ids_of_draft_tokens(folder, found, own_vocab, vocab)
    if blocks_per_head == 1 and own_vocab == vocab:  # as those that are trained here
        net = Medusa(NetConfig("medusa", hidden, 1, 0, 0, heads, vocab), embedding, head)
    else:
        config = NetConfig("medusa", hidden, 1, 0, blocks_per_head, heads, vocab, own_vocab=own_vocab)
        net = Medusa(config, embedding, head, vocabulary)
    weights = {}
    for ours, theirs in names.items():
        weight = found.get(theirs, torch.zeros(hidden))
        whole = ours.startswith("unembeds.") and len(weight) > own_vocab
        weights[ours] = (weight[vocabulary] if whole else weight).float()
    net.load_state_dict(weights)
    return net.prepare_for_drafting(embedding.device)


def validated_target_ids_of_draft_tokens(
    folder: Path, tensors: dict[str, torch.Tensor], draft_vocab: int, vocab: int
) -> torch.Tensor:
    """The target's ids int64 `[own]`. Raises `ValueError` for a token_map that does not hold as many ids of the target."""
    if draft_vocab == vocab:
        return torch.arange(vocab)
    ids = validated_integer_tensor(folder, tensors, "token_map")
    if ids.min() < 0 or ids.max() >= vocab or len(ids.unique()) < len(ids):
        raise ValueError(
            f"{folder} has a token_map of {len(ids.unique())} different ids from {int(ids.min())} to {int(ids.max())}. "
            f"It must hold {draft_vocab} different ids below {vocab}."
        )
    return ids


def validate_config_and_make_loader(
    folder: Path, config: dict[str, Any], embedding: torch.Tensor, target_layer_count: int
) -> Callable[..., Medusa]:
    """How many `target_layer_count` the target has does not matter."""
    vocab, hidden = embedding.shape
    said = config.get("vocab_size") or vocab, config.get("hidden_size") or hidden
    refuse_other_target(folder, said, (vocab, hidden))
    name = "medusa_num_layers" if "medusa_num_layers" in config else "num_hidden_layers"
    blocks = validated_whole_number(folder, {name: 1, **config}, name, 1, MOST_BLOCKS)
    own_vocab = draft_vocabulary_size_of(folder, config, "truncated_vocab_size", vocab)
    if config.get("original_lm_head"):
        raise ValueError(f"{folder} uses original_lm_head. Only heads with projections of their own are computed.")
    if config.get("logit_scale") not in (None, 1):
        raise ValueError(
            f"{folder} scales its logits by {config['logit_scale']!r} (logit_scale), which is not computed."
        )
    refuse_unread_settings(folder, config, READ)
    return partial(load_medusa_heads, blocks, own_vocab)
