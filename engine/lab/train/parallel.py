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

from engine.lab.train.features import TrainingBatch, accuracy_and_chain_length, soft_cross_entropy_of_states
from engine.lab.train.width import initial_embedding_head_and_norm
from engine.nets import NetConfig
from engine.nets.parallel import Parallel

DEPTH, LAYERS = 6, 2
DECAY = 0.8  # weight of a depth relative to the one before it
LR, BATCH = 4e-3, 8
ANCHORS = 64  # anchors of a row whose slots a step trains


def build_untrained_net(target: PreTrainedModel, config: NetConfig, sample: torch.Tensor | None = None) -> Parallel:
    embedding, head, norm = initial_embedding_head_and_norm(target, config)
    net = Parallel(config, embedding, head)
    net.final_norm.copy_(norm)
    return net


@lru_cache(maxsize=2)
def build_training_mask(length: int, depth: int) -> torch.Tensor:
    """bool `[length * depth] * 2`: who may attend to whom among `length` stream entries and all their slots.

    The stream comes first, in order; behind it the anchors' slots, the last anchor's first. What an anchor sees depends only on its
    distance to others. So the mask of a shorter stream and its last anchors is always one square of this mask.
    """
    anchor = torch.cat([torch.arange(length), torch.arange(length - 1, -1, -1).repeat_interleave(depth - 1)])
    slot = torch.cat([torch.zeros(length, dtype=torch.long), torch.arange(1, depth).repeat(length)])
    sees_stream = (slot[None] == 0) & (anchor[None] <= anchor[:, None])
    return sees_stream | (slot[None] > 0) & (anchor[None] == anchor[:, None]) & (slot[None] <= slot[:, None])


def slice_training_mask(stream: int, anchors: int, depth: int, longest: int) -> torch.Tensor:
    """The mask of `stream` entries and the slots of the last `anchors` of them: a view of `build_training_mask(longest, depth)`."""
    inside = slice(longest - stream, longest + anchors * (depth - 1))
    return build_training_mask(longest, depth)[inside, inside]


def compute_stream_and_slot_states(
    net: Parallel, batch: TrainingBatch, start: int, end: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """States of the stream `[B, end, H]` and of the slots of anchors `start .. end-1` `[B, end - start, depth - 1, H]`.

    Anchor a is the stream's entry a: the token at place a + 1 with the features of place a.
    """
    depth, device, anchors = net.config.depth, batch.ids.device, end - start
    stream = net.embed_stream_entries(batch.ids[:, 1 : end + 1], batch.features[:, :end])
    slots = net.slot_entry().expand(len(stream), anchors * (depth - 1), -1)
    places = torch.arange(end - 1, start - 1, -1, device=device)[:, None] + torch.arange(1, depth, device=device)
    positions = 1 + torch.cat([torch.arange(end, device=device), places.flatten()])
    mask = slice_training_mask(end, anchors, depth, batch.ids.shape[1] - depth).to(device)
    out = net(torch.cat([stream, slots], 1), positions, mask)
    return out[:, :end], out[:, end:].unflatten(1, (anchors, depth - 1)).flip(1)


def segment_loss(net: Parallel, batch: TrainingBatch, start: int, end: int, first: int, last: int, stream_from: int):
    """Of the loss `[]` of anchors `first .. last-1` the part of `start .. end-1`, and of the stream's entries from `stream_from` on."""
    depth, rows = net.config.depth, len(batch.ids)
    weights = DECAY ** torch.arange(depth, device=batch.ids.device)
    stream, slots = compute_stream_and_slot_states(net, batch, start, end)
    shallow = slice(stream_from + 1, end + 1)
    entropy = partial(soft_cross_entropy_of_states, net.logits, net.config.vocab)
    loss = entropy(stream[:, stream_from:], batch.tokens[:, shallow], batch.p[:, shallow]).sum()
    loss = loss * weights[0] / (rows * last)
    # Slot d of anchor a speaks about place a + d + 1
    places = torch.arange(start, end)[:, None] + torch.arange(2, depth + 1)
    each = entropy(slots, batch.tokens[:, places], batch.p[:, places])
    return (loss + (each.sum((0, 1)) * weights[1:]).sum() / (rows * (last - first))) / weights.sum()


def loss(net: Parallel, batch: TrainingBatch, step: int, segments: int = 1, anchors: int = ANCHORS) -> torch.Tensor:
    """Mean soft cross-entropy `[]` of a step: depth 1 at every stream entry, deeper ones at the window's anchors.

    With more than one segment this calls `backward` for all but the last, so that only one segment's activations live at a time. The
    caller's own `backward` on the result adds the last one's.
    """
    longest = batch.ids.shape[1] - net.config.depth
    anchors = min(anchors, longest)
    first = int(np.random.default_rng([8, step]).integers(longest - anchors + 1))
    last = first + anchors
    bounds = np.linspace(first, last, min(segments, last - first) + 1).round().astype(int).tolist()
    total = torch.zeros((), device=batch.ids.device)
    for start, end in pairwise(bounds):
        part = segment_loss(net, batch, start, end, first, last, 0 if start == first else start)
        if end < last:
            part.backward()
            part = part.detach()
        total = total + part
    return total


@torch.no_grad()
def validate(net: Parallel, batches: Iterable[TrainingBatch], stretch: int = 50) -> dict[str, float]:
    """`accuracy_and_chain_length` all depths along the text."""
    found = []
    for batch in batches:
        longest, depth = batch.ids.shape[1] - net.config.depth, net.config.depth
        for start in range(0, longest, stretch):
            end = min(longest, start + stretch)
            stream, slots = compute_stream_and_slot_states(net, batch, start, end)
            top = net.logits(torch.cat([stream[:, start:, None], slots], 2)).topk(3, dim=-1).indices
            places = torch.arange(start, end)[:, None] + torch.arange(1, depth + 1)
            right = top == batch.tokens[:, places, :1]
            found.append(right.flatten(0, 1))
    return accuracy_and_chain_length(torch.cat(found))
