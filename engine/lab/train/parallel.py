"""Training of the parallel-tree drafter: soft cross-entropy at every depth, in segments whose gradients add up.

Slots multiply a row's length by the depth. A step therefore trains the slots of one window of anchors only, drawn by the step's number.
It may cut that window into segments. Each segment carries the slots of its own anchors and recomputes the stream before them. All
depths of an anchor stay in one segment, so the segments' gradients add up to exactly the whole window's.
"""

from collections.abc import Iterable
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
import torch
from transformers import PreTrainedModel

from engine.lab.train.features import TrainingBatch, accuracy_and_chain_length, chunked_soft_cross_entropy
from engine.lab.train.width import initial_embedding_head_and_norm
from engine.nets import NetConfig
from engine.nets.parallel import Parallel

DEPTH, LAYERS = 6, 2
DECAY = 0.8  # weight of a depth relative to the one before it
LR, BATCH = 4e-3, 8
ANCHORS = 64  # anchors of a row whose slots a step trains


def build_untrained_net(
    target: PreTrainedModel, config: NetConfig, target_token_sample: torch.Tensor | None = None
) -> Parallel:
    embedding, head, norm = initial_embedding_head_and_norm(target, config)
    net = Parallel(config, embedding, head)
    net.final_norm.copy_(norm)
    return net


@lru_cache(maxsize=2)
def build_training_mask(stream_length: int, depth: int) -> torch.Tensor:
    """bool `[stream_length * depth] * 2`: who may attend to whom among `stream_length` stream entries and all their slots.

    The stream comes first, in order; behind it the anchors' slots, the last anchor's first. What an anchor sees depends only on its
    distance to others. So the mask of a shorter stream and its last anchors is always one square of this mask.
    """
    anchor = torch.cat(
        [torch.arange(stream_length), torch.arange(stream_length - 1, -1, -1).repeat_interleave(depth - 1)]
    )
    slot = torch.cat([torch.zeros(stream_length, dtype=torch.long), torch.arange(1, depth).repeat(stream_length)])
    sees_stream = (slot[None] == 0) & (anchor[None] <= anchor[:, None])
    return sees_stream | (slot[None] > 0) & (anchor[None] == anchor[:, None]) & (slot[None] <= slot[:, None])


def slice_training_mask(stream_length: int, anchor_count: int, depth: int, longest_stream: int) -> torch.Tensor:
    """The mask of `stream_length` entries and the slots of the last `anchor_count` of them: a view of
    `build_training_mask(longest_stream, depth)`.
    """
    inside = slice(longest_stream - stream_length, longest_stream + anchor_count * (depth - 1))
    return build_training_mask(longest_stream, depth)[inside, inside]


def compute_stream_and_slot_states(
    net: Parallel, batch: TrainingBatch, first_anchor: int, end_anchor: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """States of the stream `[B, end_anchor, H]` and of the slots of anchors `first_anchor .. end-1` `[B, end_anchor - first_anchor,
    depth - 1, H]`.

    Anchor a is the stream's entry a: the token at place a + 1 with the features of place a.
    """
    depth, device, anchors = net.config.depth, batch.ids.device, end_anchor - first_anchor
    stream = net.embed_stream_entries(batch.ids[:, 1 : end_anchor + 1], batch.features[:, :end_anchor])
    slots = net.slot_entry().expand(len(stream), anchors * (depth - 1), -1)
    places = torch.arange(end_anchor - 1, first_anchor - 1, -1, device=device)[:, None] + torch.arange(
        1, depth, device=device
    )
    positions = 1 + torch.cat([torch.arange(end_anchor, device=device), places.flatten()])
    mask = slice_training_mask(end_anchor, anchors, depth, batch.ids.shape[1] - depth).to(device)
    out = net(torch.cat([stream, slots], 1), positions, mask)
    return out[:, :end_anchor], out[:, end_anchor:].unflatten(1, (anchors, depth - 1)).flip(1)


def segment_loss(
    net: Parallel,
    batch: TrainingBatch,
    segment_start: int,
    segment_end: int,
    window_start: int,
    window_end: int,
    stream_start: int,
) -> torch.Tensor:
    """Of the loss `[]` of anchors `window_start .. last-1` the part of `segment_start .. end-1`, and of the stream's entries from
    `stream_start` on.
    """
    depth, rows = net.config.depth, len(batch.ids)
    weights = DECAY ** torch.arange(depth, device=batch.ids.device)
    stream, slots = compute_stream_and_slot_states(net, batch, segment_start, segment_end)
    shallow = slice(stream_start + 1, segment_end + 1)
    entropy = partial(chunked_soft_cross_entropy, net.logits, net.config.vocab)
    loss = entropy(stream[:, stream_start:], batch.tokens[:, shallow], batch.p[:, shallow]).sum()
    loss = loss * weights[0] / (rows * window_end)
    # Slot d of anchor a speaks about place a + d + 1
    places = torch.arange(segment_start, segment_end)[:, None] + torch.arange(2, depth + 1)
    each = entropy(slots, batch.tokens[:, places], batch.p[:, places])
    return (loss + (each.sum((0, 1)) * weights[1:]).sum() / (rows * (window_end - window_start))) / weights.sum()


def compute_training_loss(
    net: Parallel, batch: TrainingBatch, step_seed: int, backward_segments: int = 1, anchor_count: int = ANCHORS
) -> torch.Tensor:
    """Mean soft cross-entropy `[]` of a step: depth 1 at every stream entry, deeper ones at the window's anchors.

    With more than one segment this calls `backward` for all but the last, so that only one segment's activations live at a time. The
    caller's own `backward` on the result adds the last one's.
    """
    longest = batch.ids.shape[1] - net.config.depth
    anchor_count = min(anchor_count, longest)
    first = int(np.random.default_rng([8, step_seed]).integers(longest - anchor_count + 1))
    last = first + anchor_count
    bounds = np.linspace(first, last, min(backward_segments, last - first) + 1).round().astype(int).tolist()
    total = torch.zeros((), device=batch.ids.device)
    for start, end in pairwise(bounds):
        part = segment_loss(net, batch, start, end, first, last, 0 if start == first else start)
        if end < last:
            part.backward()
            part = part.detach()
        total = total + part
    return total


@torch.no_grad()
def measure_accuracy_by_depth(
    net: Parallel, batches: Iterable[TrainingBatch], anchors_per_forward: int = 50
) -> dict[str, float]:
    """`accuracy_and_chain_length` all depths along the text."""
    found = []
    for batch in batches:
        longest, depth = batch.ids.shape[1] - net.config.depth, net.config.depth
        for start in range(0, longest, anchors_per_forward):
            end = min(longest, start + anchors_per_forward)
            stream, slots = compute_stream_and_slot_states(net, batch, start, end)
            top = net.logits(torch.cat([stream[:, start:, None], slots], 2)).topk(3, dim=-1).indices
            places = torch.arange(start, end)[:, None] + torch.arange(1, depth + 1)
            right = top == batch.tokens[:, places, :1]
            found.append(right.flatten(0, 1))
    return accuracy_and_chain_length(torch.cat(found))
