"""Training of SpecBlock: blocks that go on from each other, each position taught only while its path is still right.

A step takes one window of anchors. Every anchor drafts a first block, which is cut at a random place of its own. A second block goes on
from there, and on some steps a third. As in serving, they start from the drafter's own state and the text's own token.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from engine.lab.train.features import TrainingBatch, accuracy_by_depth, soft_cross_entropy
from engine.lab.train.width import initial_embedding_head_and_norm
from engine.nets import NetConfig
from engine.nets.specblock import Past, SpecBlock, buckets_of_true_ranks

DEPTH, LAYERS = 4, 2
BLOCKS, THIRD_EVERY = 3, 3  # serving uses two blocks, so a third is trained on every third step only
DECAY = 0.8  # weight of a position relative to the one before it
LEAST_SHARE = 0.25  # a position's mean counts at least this share of the paths, so that a handful never steers a step
LR, BATCH = 4e-3, 8
ANCHORS = 40  # anchors of a row whose blocks a step trains


def build_untrained_net(
    target: PreTrainedModel, config: NetConfig, target_token_sample: torch.Tensor | None = None
) -> SpecBlock:
    """An untrained net for this target, with the target's final norm and head to start from."""
    embedding, head, norm = initial_embedding_head_and_norm(target, config)
    net = SpecBlock(config, embedding, head)
    net.norm_out.weight.data.copy_(norm)
    return net


@dataclass(frozen=True)
class AnchorBlocks:
    """A block of every anchor: `states [B, A, K, H]`, `token_places [A]`, and whether its path is right, `is_path_right [B, A]`."""

    states: torch.Tensor
    token_places: torch.Tensor
    is_path_right: torch.Tensor


class BlockRollout:
    """One step's blocks: the forward of the stream and first blocks, then one forward for every further block.

    Anchor a is the stream's entry a: the token at place a + 1 with the target's features of place a.
    """

    def __init__(self, net: SpecBlock, batch: TrainingBatch, first_anchor: int, end_anchor: int):
        self.net, self.batch, self.end = net, batch, end_anchor
        self.past: Past = [None] * net.config.layers
        self.depth, device = net.config.depth, batch.ids.device
        self.anchors = torch.arange(first_anchor, end_anchor, device=device)
        count, extra = end_anchor - first_anchor, self.depth - 1
        stream = torch.arange(end_anchor, device=device)
        condition, tokens = net.fuse_features(batch.features[:, :end_anchor]), batch.ids[:, 1 : end_anchor + 1]
        slots = net.layer_inputs(condition[:, first_anchor:], tokens[:, first_anchor:], slice(1, None))
        x = torch.cat([net.layer_inputs(condition, tokens, slice(0, 1)).flatten(1, 2), slots.flatten(1, 2)], 1)
        steps = torch.arange(1, self.depth, device=device)
        first = end_anchor + torch.arange(count, device=device)[:, None] * extra  # entry of every anchor's position 1
        before = torch.cat([stream, torch.cat([self.anchors[:, None], first + steps[:-1] - 1], 1).flatten()])
        positions = torch.cat([stream + 1, (self.anchors[:, None] + 1 + steps).flatten()])
        self.owner = torch.cat(
            [stream.new_full((end_anchor,), -1), self.anchors.repeat_interleave(extra)]
        )  # -1: the stream
        self.on_path = torch.ones(len(x[0]), dtype=torch.bool, device=device)  # whether later blocks may see an entry
        out = net(x, before, positions, self.build_rollout_mask(self.owner, is_first_forward=True), self.past)
        self.stream = out[:, :end_anchor]
        states = torch.cat([out[:, first_anchor:end_anchor, None], out[:, end_anchor:].unflatten(1, (count, extra))], 2)
        self.block = AnchorBlocks(states, self.anchors + 1, torch.ones_like(states[..., 0, 0], dtype=torch.bool))

    def build_rollout_mask(self, anchor_by_entry: torch.Tensor, is_first_forward: bool = False) -> torch.Tensor:
        """bool `[new, old + new]`: what new entries of these owners may see.

        That is the stream up to the anchor, the anchor's own entries on the path so far, and its new ones up to the entry itself.
        """
        last = (
            anchor_by_entry
            if not is_first_forward
            else torch.where(
                anchor_by_entry < 0, torch.arange(len(anchor_by_entry), device=anchor_by_entry.device), anchor_by_entry
            )
        )
        stream = torch.arange(self.end, device=anchor_by_entry.device) <= last[:, None]
        own = self.owner[self.end :]
        local = (own == anchor_by_entry[:, None]) & self.on_path[self.end :]
        old = self.end + len(own) - len(anchor_by_entry)
        order = torch.arange(len(own), device=anchor_by_entry.device) + self.end
        new = torch.arange(len(anchor_by_entry), device=anchor_by_entry.device) + (0 if is_first_forward else old)
        return torch.cat([stream, local & (order <= new[:, None])], 1)

    def draft_next_block(self, cut_offsets: torch.Tensor, is_guess_right: torch.Tensor) -> None:
        """The next block of every anchor, from offset `cut_offsets [A]` (1..K) of this one. `is_guess_right [B, A, K]`: which places
        were right.
        """
        net, depth, rows = self.net, self.depth, torch.arange(len(cut_offsets), device=cut_offsets.device)
        predictor = self.block.states[:, rows, cut_offsets - 1]
        before_cut = torch.arange(depth, device=cut_offsets.device) < (cut_offsets - 1)[:, None]
        # The text gives the cut's own token, whatever was predicted there
        live = self.block.is_path_right & (is_guess_right | ~before_cut).all(-1)
        places = self.block.token_places + cut_offsets
        # of the block that is cut, the path holds positions 0 .. cut - 1; a first block's position 0 stands in the stream
        width = depth - 1 if len(self.owner) == self.end + len(cut_offsets) * (depth - 1) else depth
        kept = torch.arange(depth - width, depth, device=cut_offsets.device) < cut_offsets[:, None]
        self.on_path[-kept.numel() :] = kept.flatten()
        owner = self.anchors.repeat_interleave(depth)
        self.owner = torch.cat([self.owner, owner])
        self.on_path = torch.cat([self.on_path, torch.ones_like(owner, dtype=torch.bool)])
        x, before = net.block_inputs_and_predecessors(predictor, self.batch.ids[:, places])
        positions = (places[:, None] + torch.arange(depth, device=cut_offsets.device)).flatten()
        out = net(x, before, positions, self.build_rollout_mask(owner), self.past)
        self.block = AnchorBlocks(out.unflatten(1, (len(cut_offsets), depth)), places, live)


def compute_draft_and_rank_losses_and_hits(
    net: SpecBlock, states: torch.Tensor, batch: TrainingBatch, row_indices: torch.Tensor, places: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draft and rank losses and whether the favourite is right, each `[n]`. `states [n, H]` guess behind `places [n]` of
    `row_indices [n]`.
    """
    logits, tokens = net.logits(states), batch.tokens[row_indices, places]
    draft = soft_cross_entropy(logits, tokens, batch.p[row_indices, places])
    plain = logits.detach()
    rank = F.cross_entropy(
        net.rank_head_logits(states, plain.log_softmax(-1)),
        buckets_of_true_ranks(plain, tokens[:, 0]),
        reduction="none",
    )
    return draft, rank, plain.argmax(-1) == batch.ids[row_indices, places + 1]


def block_loss_and_hits(net: SpecBlock, batch: TrainingBatch, block: AnchorBlocks) -> tuple[torch.Tensor, torch.Tensor]:
    """A block's loss `[]` under the valid-prefix mask, and `right [B, A, K]`: the position was on a right path and was right itself.

    A path is right while the drafter's favourites are the text's own tokens, because later labels follow that text.
    """
    live, total = block.is_path_right, torch.zeros((), device=batch.ids.device)
    right = torch.zeros(block.states.shape[:3], dtype=torch.bool, device=batch.ids.device)
    for k in range(block.states.shape[2]):
        rows, anchors = live.nonzero(as_tuple=True)
        if not len(rows):
            break
        places = block.token_places[anchors] + k
        draft, rank, hit = compute_draft_and_rank_losses_and_hits(
            net, block.states[rows, anchors, k], batch, rows, places
        )
        total = total + (DECAY**k * draft.sum() + rank.sum()) / max(len(rows), LEAST_SHARE * live.numel())
        right[rows, anchors, k] = hit
        live = right[:, :, k]
    return total, right


def compute_training_loss(
    net: SpecBlock, batch: TrainingBatch, step_seed: int, block_count: int | None = None, anchor_count: int = ANCHORS
) -> torch.Tensor:
    """Mean over a step's blocks `[]` of their draft and rank losses. The stream's own entries count with the first blocks."""
    block_count = block_count or (BLOCKS if step_seed % THIRD_EVERY == 0 else BLOCKS - 1)
    rng = np.random.default_rng([9, step_seed])
    longest = batch.ids.shape[1] - 1 - BLOCKS * net.config.depth
    start = int(rng.integers(longest - min(anchor_count, longest) + 1))
    drafting = BlockRollout(net, batch, start, start + min(anchor_count, longest))
    total, right = block_loss_and_hits(net, batch, drafting.block)
    if start:
        rows = torch.arange(len(batch.ids), device=batch.ids.device).repeat_interleave(start)
        places = torch.arange(1, start + 1, device=batch.ids.device).repeat(len(batch.ids))
        draft, rank, _ = compute_draft_and_rank_losses_and_hits(
            net, drafting.stream[:, :start].flatten(0, 1), batch, rows, places
        )
        total = total + draft.mean() + rank.mean()
    for _ in range(1, block_count):
        cuts = torch.from_numpy(rng.integers(1, net.config.depth + 1, len(drafting.anchors))).to(batch.ids.device)
        drafting.draft_next_block(cuts, right)
        part, right = block_loss_and_hits(net, batch, drafting.block)
        total = total + part
    return total / block_count


@torch.no_grad()
def measure_accuracy_by_depth(
    net: SpecBlock, batches: Iterable[TrainingBatch], anchors_per_forward: int = 48
) -> dict[str, float]:
    """`accuracy_by_depth`, `chain` and `buckets_of_true_ranks`.

    Only paths that are right so far count. The first depths are a block's from the text, the next a block's that goes on from its end.
    `chain` is how many favourites of the first block are right in a row. `buckets_of_true_ranks` is how often the rank head names the
    right bucket at the first position.
    """
    depth = net.config.depth
    guessed: list[list[torch.Tensor]] = [[] for _ in range(2 * depth)]
    chains, named = [], []
    for batch in batches:
        longest = batch.ids.shape[1] - 1 - BLOCKS * depth
        for start in range(0, longest, anchors_per_forward):
            drafting = BlockRollout(net, batch, start, min(longest, start + anchors_per_forward))
            for number in range(2):
                block = drafting.block
                logits = net.logits(block.states)
                places = block.token_places[:, None] + torch.arange(depth, device=batch.ids.device)
                wanted = batch.tokens[:, places, :1]
                top = logits.topk(3, dim=-1).indices == wanted
                right = logits.argmax(-1) == batch.ids[:, places + 1]
                live = block.is_path_right[..., None] & F.pad(right[..., :-1].cumprod(-1).bool(), (1, 0), value=True)
                for k in range(depth):
                    guessed[number * depth + k].append(top[:, :, k][live[..., k]])
                if number == 0:
                    chains.append(top[..., 0].cumprod(-1).sum(-1).flatten())
                    said = net.rank_head_logits(block.states[:, :, 0], logits[:, :, 0].log_softmax(-1)).argmax(-1)
                    named.append((said == buckets_of_true_ranks(logits[:, :, 0], wanted[:, :, 0, 0])).flatten())
                    drafting.draft_next_block(torch.full_like(block.token_places, depth), right)
    chain, right_bucket = (float(torch.cat(each).float().mean()) for each in (chains, named))
    return accuracy_by_depth(map(torch.cat, guessed)) | {"chain": chain, "bucket": right_bucket}
