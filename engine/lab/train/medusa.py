"""Training of Medusa heads on the frozen target's final hidden states (MEDUSA-1): cross-entropy per head, weight 0.8^k."""

from collections.abc import Iterable

import torch
from transformers import PreTrainedModel

from engine.lab.train.features import (
    DrafterVocabularyLabelMapper,
    TrainingBatch,
    accuracy_by_depth,
    most_frequent_tokens,
    soft_cross_entropy,
)
from engine.lab.train.width import principal_directions_of
from engine.nets import NetConfig
from engine.nets.medusa import Medusa

DEPTH, LAYERS, DECAY = 4, 0, 0.8
LR, BATCH = 1e-3, 8


def build_untrained_net(target: PreTrainedModel, config: NetConfig, target_token_sample: torch.Tensor) -> Medusa:
    """Untrained heads, which repeat the target's guess for the root; heads with a width of their own do so nearly.

    Where `config` names a vocabulary of their own, the most frequent tokens of `target_token_sample`, a sample of the target's text,
    make it.
    """
    embedding, head = target.get_input_embeddings().weight, target.get_output_embeddings().weight.detach()
    if not config.target_hidden:
        net = Medusa(config, embedding, head)
        if config.own_vocab:
            net.vocabulary.copy_(most_frequent_tokens(target_token_sample, config.own_vocab, config.vocab))
        return net
    kept = principal_directions_of(head.float(), config.hidden)
    net = Medusa(config, embedding, head.float() @ kept)
    assert net.narrow is not None  # it has a width of its own
    net.narrow.weight.data.copy_(kept.T)
    return net


def head_logits_and_label_places(net: Medusa, batch: TrainingBatch, head_index: int) -> tuple[torch.Tensor, slice]:
    """Head k's logits `[B, T - head_index - 1, own_vocab or V]`, and the places of labels.

    From place t it guesses t + k + 2, the label at t + k + 1.
    """
    count = batch.ids.shape[1] - head_index - 1
    return net(batch.features[:, :count, -1], head_index), slice(head_index + 1, None)


def compute_training_loss(net: Medusa, batch: TrainingBatch, step_seed: int) -> torch.Tensor:
    total, labels = (
        torch.zeros((), device=batch.ids.device),
        DrafterVocabularyLabelMapper(guessable_token_ids_of(net), net.config.vocab),
    )
    for k in range(net.config.depth):
        logits, places = head_logits_and_label_places(net, batch, k)
        own, p, mass = labels(batch.tokens[:, places], batch.p[:, places])
        total = total + DECAY**k * (soft_cross_entropy(logits, own, p) * mass).mean()
    return total


def guessable_token_ids_of(net: Medusa) -> torch.Tensor:
    """The target's ids `[own_vocab or V]` that the heads guess."""
    return net.vocabulary if net.config.own_vocab else torch.arange(net.config.vocab, device=net.head.device)


@torch.inference_mode()
def measure_accuracy_by_depth(net: Medusa, batches: Iterable[TrainingBatch]) -> dict[str, float]:
    """`accuracy_by_depth`, a head each."""
    right: list[list[torch.Tensor]] = [[] for _ in range(net.config.depth)]
    for batch in batches:
        for k, found in enumerate(right):
            logits, places = head_logits_and_label_places(net, batch, k)
            best = guessable_token_ids_of(net)[logits.topk(3, dim=-1).indices]
            found.append(best == batch.tokens[:, places, :1])
    return accuracy_by_depth(map(torch.cat, right))
