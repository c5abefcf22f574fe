"""Training of DFlash (z-lab): soft cross-entropy at every slot of blocks behind random anchors, early slots weighing more.

A step draws the places of its anchors once for all its rows. An anchor's block sees the target's hidden states of the places before it,
and all of itself. The net is written in z-lab's form, so that other engines read it too, where it is as wide as its target.
"""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from engine.forward.llama_layer import attend_with_optional_cache, rotate_heads
from engine.forward.session import default_feature_layers
from engine.lab.train.features import (
    DrafterVocabularyLabelMapper,
    TrainingBatch,
    accuracy_and_chain_length,
    most_frequent_tokens,
    soft_cross_entropy,
)
from engine.lab.train.width import initial_embedding_head_and_norm
from engine.nets import NetConfig, formats
from engine.nets.dflash import DFlash

DEPTH, LAYERS = 7, 2
GAMMA = 4.0  # slot k weighs exp(-(k - 1) / GAMMA), as published for blocks of eight
LR, BATCH = 4e-3, 8
ANCHORS = 32  # blocks a row in a step


def published_layer_and_block_config(
    target: PreTrainedModel, config: NetConfig
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a published config says of the layers, and of the block: the layers that it reads, and the end of a text as its mask."""
    layers, end = target.config.num_hidden_layers, target.config.eos_token_id
    said = {"model_type": "qwen3", **config.to_transformers_names(), "rms_norm_eps": 1e-6, "num_target_layers": layers}
    if config.target_hidden:
        said["target_hidden_size"] = config.target_hidden
    if config.own_vocab:
        said["draft_vocab_size"] = config.own_vocab
    block = {
        "mask_token_id": end[0] if isinstance(end, list) else end or 0,
        "target_layer_ids": [
            layer - 1 for layer in sorted(set(default_feature_layers(layers)))
        ],  # by a layer's own number
    }
    return said, block


def build_untrained_net_of_file_format(
    file_format: ModuleType,
    net_class: type[DFlash],
    target: PreTrainedModel,
    config: NetConfig,
    published_config: dict[str, Any],
    target_token_sample: torch.Tensor | None,
) -> DFlash:
    """The net of a `net_class` whose config is in this `file_format` of published files, with the target's final norm to start from.

    Where `config` names a vocabulary of its own, the most frequent tokens of `target_token_sample`, a sample of the target's text,
    make it.
    """
    embedding, head, norm = initial_embedding_head_and_norm(target, config)
    wide = target.get_input_embeddings().weight
    sizes = file_format.validated_sizes_of(Path("the recipe"), published_config, wide, target.config.num_hidden_layers)
    vocabulary = torch.arange(config.vocab)
    if config.own_vocab and target_token_sample is not None:
        vocabulary = most_frequent_tokens(target_token_sample, config.own_vocab, config.vocab)
        head = head[vocabulary.to(head.device)]
    net = net_class(sizes, embedding, head, vocabulary, published_config)
    net.norm.weight.data.copy_(norm)
    return net


def build_untrained_net(
    target: PreTrainedModel, config: NetConfig, target_token_sample: torch.Tensor | None = None
) -> DFlash:
    """An untrained net for this target, in z-lab's form."""
    said, block = published_layer_and_block_config(target, config)
    said |= {"architectures": ["DFlashDraftModel"], "block_size": config.depth + 1, "dflash_config": block}
    return build_untrained_net_of_file_format(formats.dflash, DFlash, target, config, said, target_token_sample)


def compute_slot_states(net: DFlash, batch: TrainingBatch, anchor_places: torch.Tensor) -> torch.Tensor:
    """States `[B, A, depth, H]` of the slots behind the tokens at the places `anchor_places [A]`."""
    sizes, device, rows = net.sizes, batch.ids.device, len(batch.ids)
    end = int(anchor_places.max())
    tapped = default_feature_layers(net.published["num_target_layers"])
    hidden = batch.unscaled_hidden_states()[:, :end, [tapped.index(layer) for layer in sizes.reads_features]]
    context = net.hidden_norm(net.fc(hidden.flatten(2)))
    places = anchor_places[:, None] + torch.arange(sizes.block_size, device=device)
    positions = torch.cat([torch.arange(end, device=device), places.flatten()])
    block = torch.arange(len(anchor_places), device=device).repeat_interleave(sizes.block_size)
    before = torch.arange(end, device=device) < anchor_places[block][:, None]
    mask = torch.cat([before, block[:, None] == block], 1)

    rotary, turned = net.rotary(positions), net.rotary(positions[end:])
    tokens = torch.full((rows, len(anchor_places), sizes.block_size), sizes.mask_token_id, device=device)
    tokens[:, :, 0] = batch.ids[:, anchor_places]
    x = net.embed_tokens(tokens.flatten(1))
    for layer in net.layers:
        entering = layer.norm_in(x)
        both = torch.cat([context, entering], 1)
        queries = rotate_heads(layer.project_normed_heads_by_letter("q", entering), turned).transpose(1, 2)
        keys, values = layer.project_and_rotate_kv(both, rotary)
        x = layer.add_attention_and_mlp(x, attend_with_optional_cache(queries, keys, values, mask))
    return x.view(rows, len(anchor_places), sizes.block_size, -1)[:, :, sizes.skipped_slots :]


def compute_slot_logits_and_places(
    net: DFlash, batch: TrainingBatch, anchor_places: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits `[B, A, depth, own_vocab]` of the slots, and the places `[A, depth]` of the batch whose next tokens they guess.

    The first slot guesses the token behind its anchor. A net that adds a bias by the token before a guess is given the text's own.
    """
    places = anchor_places[:, None] + torch.arange(net.config.depth, device=anchor_places.device)
    return net.apply_lm_head(net.norm(compute_slot_states(net, batch, anchor_places))) + net.logit_bias_after(
        batch.ids[:, places]
    ), places


def compute_training_loss(
    net: DFlash, batch: TrainingBatch, step_seed: int, anchor_count: int = ANCHORS
) -> torch.Tensor:
    """Weighted mean soft cross-entropy `[]` of the slots of a step's blocks."""
    longest = batch.ids.shape[1] - net.sizes.block_size
    drawn = np.random.default_rng([10, step_seed]).choice(longest, min(anchor_count, longest), replace=False) + 1
    at = torch.from_numpy(np.sort(drawn)).to(batch.ids.device)
    logits, places = compute_slot_logits_and_places(net, batch, at)
    own, p, mass = DrafterVocabularyLabelMapper(net.vocabulary, net.sizes.vocab)(
        batch.tokens[:, places], batch.p[:, places]
    )
    each = soft_cross_entropy(logits, own, p) * mass
    weights = (-torch.arange(net.config.depth, device=each.device) / GAMMA).exp()
    return (each.mean((0, 1)) * weights).sum() / weights.sum()


@torch.no_grad()
def measure_accuracy_by_depth(net: DFlash, batches: Iterable[TrainingBatch]) -> dict[str, float]:
    """`accuracy_and_chain_length` the slots along the text, behind every sixth token."""
    found = []
    for batch in batches:
        at = torch.arange(1, batch.ids.shape[1] - net.sizes.block_size, 6, device=batch.ids.device)
        logits, places = compute_slot_logits_and_places(net, batch, at)
        best = net.vocabulary[logits.topk(3, dim=-1).indices]
        found.append((best == batch.tokens[:, places, :1]).flatten(0, 1))
    return accuracy_and_chain_length(torch.cat(found))
