"""Training of the EAGLE drafter on its own rollout: step s goes on from the outputs of step s - 1 (EAGLE-3's training-time test)."""

from collections.abc import Iterable

import torch
from transformers import PreTrainedModel

from engine.lab.train.features import OwnLabels, TrainingBatch, by_depth, frequent, soft_cross_entropy
from engine.lab.train.width import start_for
from engine.nets import NetConfig
from engine.nets.eagle import Eagle

DEPTH, LAYERS = 5, 1
DECAY = 0.8
LR, BATCH = 3e-3, 6


def build(target: PreTrainedModel, config: NetConfig, ids: torch.Tensor) -> Eagle:
    """An untrained net. `ids` is a sample of the target's text; its most frequent tokens make the drafter's vocabulary."""
    embedding, head, _ = start_for(target, config)
    net = Eagle(config, embedding, head)
    net.choose_vocabulary(frequent(ids, config.own_vocab, config.vocab))
    return net


def loss(net: Eagle, batch: TrainingBatch, step: int) -> torch.Tensor:
    own, p, mass = OwnLabels(net.vocabulary, net.config.vocab)(batch.tokens[:, 1:], batch.p[:, 1:])
    total = torch.zeros((), device=batch.ids.device)
    for s, out in enumerate(net.rollout(batch.ids, batch.features, net.config.depth)):
        each = soft_cross_entropy(net.logits(out[:, s:]), own[:, s:], p[:, s:]) * mass[:, s:]
        total = total + DECAY**s * each.mean()
    return total


@torch.inference_mode()
def validate(net: Eagle, batches: Iterable[TrainingBatch]) -> dict[str, float]:
    """`by_depth`; depth s + 1 is s levels into a rollout along the text."""
    right: list[list[torch.Tensor]] = [[] for _ in range(net.config.depth)]
    for batch in batches:
        for s, out in enumerate(net.rollout(batch.ids, batch.features, net.config.depth)):
            best = net.vocabulary[net.logits(out[:, s:]).topk(3, dim=-1).indices]
            right[s].append(best == batch.tokens[:, 1 + s :, :1])
    return by_depth(map(torch.cat, right))
