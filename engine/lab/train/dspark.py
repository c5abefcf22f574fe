"""Training of DSpark (DeepSeek): DFlash's recipe with blocks that guess from the anchor on, and a bias by the text's own last token.

The published recipe weighs cross-entropy by 0.1 and the distance of the distributions by 0.9. Here it is DFlash's soft cross-entropy.
The confidence head is left out, because trees are cut by their scores.
"""

import torch
from transformers import PreTrainedModel

from engine.lab.train import dflash
from engine.lab.train.dflash import (
    BATCH,
    DEPTH,
    LAYERS,
    LR,
    compute_slot_logits_and_places,
    compute_training_loss,
    measure_accuracy_by_depth,
)
from engine.nets import NetConfig, formats
from engine.nets.dflash import DFlash
from engine.nets.dspark import DSpark

RANK, RANK_OF_LARGE = (
    64,
    32,
)  # columns of the Markov head's matrices; fewer where they have a row for each of very many tokens

__all__ = [
    "BATCH",
    "DEPTH",
    "LAYERS",
    "LR",
    "build_untrained_net",
    "compute_slot_logits_and_places",
    "compute_training_loss",
    "measure_accuracy_by_depth",
]


def build_untrained_net(
    target: PreTrainedModel, config: NetConfig, target_token_sample: torch.Tensor | None = None
) -> DFlash:
    """An untrained net for this target, in DeepSpec's form. Its bias is zero, so that it may go on from a DFlash net."""
    said, block = dflash.published_layer_and_block_config(target, config)
    said |= {
        "architectures": [formats.dspark.ARCHITECTURE],
        "block_size": config.depth,
        "num_anchors": dflash.ANCHORS,
        "markov_rank": RANK_OF_LARGE if config.own_vocab else RANK,
        "markov_head_type": "vanilla",
        "enable_confidence_head": False,
    }
    return dflash.build_untrained_net_of_file_format(
        formats.dspark, DSpark, target, config, said | block, target_token_sample
    )
