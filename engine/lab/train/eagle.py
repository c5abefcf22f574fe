"""Training of the EAGLE drafter on its own rollout: step s goes on from the outputs of step s - 1 (EAGLE-3's training-time test)."""

from collections.abc import Iterable

import torch
from transformers import PreTrainedModel

from engine.lab.train.features import TrainingBatch, by_depth, soft_cross_entropy
from engine.lab.train.width import start_for
from engine.nets import NetConfig
from engine.nets.eagle import Eagle

DEPTH, LAYERS = 4, 1
DECAY = 0.8
LR, BATCH = 3e-3, 6
OWN_SHARE = 0.75  # of the target's vocabulary, at most OWN_MOST tokens; 99.5 % of what the embedded target writes
OWN_MOST = 32_000


def build(target: PreTrainedModel, config: NetConfig, ids: torch.Tensor) -> Eagle:
    """An untrained net. `ids` is a sample of the target's text; its most frequent tokens make the drafter's vocabulary."""
    embedding, head, _ = start_for(target, config)
    net = Eagle(config, embedding, head)
    counts = torch.bincount(ids.flatten().long().cpu(), minlength=config.vocab)
    net.choose_vocabulary(counts.argsort(descending=True, stable=True)[: config.own_vocab])
    return net


def own_size(vocab: int) -> int:
    return min(OWN_MOST, int(vocab * OWN_SHARE))


def restricted(net: Eagle, batch: TrainingBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The target's next tokens behind places 1.. in the drafter's ids, their probabilities in its vocabulary, and the mass there."""
    own_id = torch.full((net.config.vocab,), -1, device=batch.ids.device)
    own_id[net.vocabulary] = torch.arange(net.config.own_vocab, device=batch.ids.device)
    own = own_id[batch.tokens[:, 1:]]
    p = batch.p[:, 1:] * (own >= 0)
    mass = p.sum(-1, keepdim=True)
    return own.clamp(min=0), p / mass.clamp(min=1e-6), mass[..., 0]


def loss(net: Eagle, batch: TrainingBatch, step: int) -> torch.Tensor:
    own, p, mass = restricted(net, batch)
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
