"""Training of the EAGLE drafter on its own rollout: step s goes on from the outputs of step s - 1 (EAGLE-3's training-time test)."""

from collections.abc import Iterable

import numpy as np
import torch
from transformers import PreTrainedModel

from engine.lab.train.features import (
    DrafterVocabularyLabelMapper,
    TrainingBatch,
    accuracy_by_depth,
    most_frequent_tokens,
    soft_cross_entropy,
)
from engine.lab.train.width import initial_embedding_head_and_norm
from engine.nets import NetConfig
from engine.nets.eagle import Eagle

DEPTH, LAYERS = 5, 1
DECAY = 0.8
LR, BATCH = 3e-3, 6
ANCHORS = (
    80  # places of a row behind which a step drafts deeper: others' rollouts tell much the same, and cost as much each
)


def build_untrained_net(target: PreTrainedModel, config: NetConfig, target_token_sample: torch.Tensor) -> Eagle:
    """An untrained net. `target_token_sample` is a sample of the target's text; its most frequent tokens make the drafter's
    vocabulary.
    """
    embedding, head, _ = initial_embedding_head_and_norm(target, config)
    net = Eagle(config, embedding, head)
    net.set_draft_vocabulary_and_head_rows(most_frequent_tokens(target_token_sample, config.own_vocab, config.vocab))
    return net


def compute_training_loss(
    net: Eagle, batch: TrainingBatch, step_seed: int, anchor_count: int = ANCHORS
) -> torch.Tensor:
    """Summed soft cross-entropy `[]`: the first step's at every place, deeper ones' behind the anchors of this step."""
    own, p, mass = DrafterVocabularyLabelMapper(net.vocabulary, net.config.vocab)(batch.tokens[:, 1:], batch.p[:, 1:])
    total = torch.zeros((), device=batch.ids.device)
    longest = batch.ids.shape[1] - net.config.depth
    drawn = np.random.default_rng([13, step_seed]).choice(longest, min(anchor_count, longest), replace=False)
    behind = torch.from_numpy(np.sort(drawn))
    for s, out in enumerate(net.training_rollout_outputs(batch.ids, batch.features, net.config.depth, behind)):
        at = behind + s if s else slice(None)
        each = soft_cross_entropy(net.logits(out), own[:, at], p[:, at]) * mass[:, at]
        total = total + DECAY**s * each.mean()
    return total


@torch.inference_mode()
def measure_accuracy_by_depth(net: Eagle, batches: Iterable[TrainingBatch]) -> dict[str, float]:
    """`accuracy_by_depth`; depth s + 1 is s levels into a rollout along the text."""
    right: list[list[torch.Tensor]] = [[] for _ in range(net.config.depth)]
    for batch in batches:
        for s, out in enumerate(net.training_rollout_outputs(batch.ids, batch.features, net.config.depth)):
            best = net.vocabulary[net.logits(out).topk(3, dim=-1).indices]
            right[s].append(best == batch.tokens[:, 1 + s :, :1])
    return accuracy_by_depth(map(torch.cat, right))
