"""What learned drafters train on: the frozen target's features and its own distribution.

On a CPU they are cached to disk in shards. A GPU asks the target anew at every step, which costs less than a megabyte and more a row.
Most rows are the target's own writing (self-distillation), the rest real text. At every place the label is what the target itself
would say there, never the text's next token.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.utils.checkpoint import checkpoint
from tqdm import tqdm
from transformers import PreTrainedModel

from engine.forward.layer_ops import normalise_features
from engine.forward.llama_compiled import can_compile_forward
from engine.forward.runner import Runner
from engine.forward.session import default_feature_layers
from engine.lab.train.writing import ROW
from engine.sampling import build_generator_from_key

SHARD, LISTED = 64, 32  # rows a shard, tokens of the target's distribution kept at every place
DRAWS = 4  # tokens a place that tell how often the target writes each
AT_ONCE = 16  # rows that the target is asked about
LOGITS = 1 << 25  # numbers in memory at once


class TrainingBatch(NamedTuple):
    """Rows as the target saw them: `ids [B, T]`, `features [B, T, 4, H]`, and `tokens` and `p`, both `[B, T, LISTED]`.

    `tokens` are the likeliest next tokens behind every place, favourite first. `p` are their probabilities at temperature 1, sum 1.
    `scales [B, T, 4]` are the root mean squares by which the hidden states were divided. At place t the target had seen tokens 0..t.
    """

    ids: torch.Tensor
    features: torch.Tensor
    scales: torch.Tensor
    tokens: torch.Tensor
    p: torch.Tensor

    def to_device_in_full_precision(self, device: torch.device | str) -> "TrainingBatch":
        """The batch on the device, with wide types."""
        ids, features, scales, tokens, p = (each.to(device) for each in self)
        return TrainingBatch(ids.long(), features.float(), scales.float(), tokens.long(), p.float())

    def to_cpu_storage_types(self) -> "TrainingBatch":
        """The batch on a CPU, with the types in which shards keep it."""
        ids, features, scales, tokens, p = (each.cpu() for each in self)
        return TrainingBatch(ids.int(), features.half(), scales, tokens.int(), p.half())

    def rows(self, indices: np.ndarray | slice) -> "TrainingBatch":
        return TrainingBatch(*(each[indices] for each in self))

    def unscaled_hidden_states(self) -> torch.Tensor:
        """The hidden states `[B, T, 4, H]` as they were, which published drafters read."""
        return self.features * self.scales[..., None]


@torch.no_grad()
def compute_training_batch(target: PreTrainedModel, ids: torch.Tensor) -> TrainingBatch:
    """The target's features and next tokens for `ids [B, T]`, by one forward in the target's own type."""
    with torch.autocast(target.device.type, enabled=False):
        output = target(input_ids=ids.long().to(target.device), output_hidden_states=True, use_cache=False)
    taps = (*default_feature_layers(target.config.num_hidden_layers), -1)
    return build_training_batch(ids, torch.stack([output.hidden_states[at] for at in taps], -2), output.logits)


def build_training_batch(ids: torch.Tensor, hidden_states: torch.Tensor, logits: torch.Tensor) -> TrainingBatch:
    """The training batch of hidden states `[B, T, 4, H]` and `logits [B, T, V]` after `ids [B, T]`."""
    features = normalise_features(hidden_states)
    lengths = torch.linalg.vector_norm(features, dim=-1).clamp(min=1e-30)  # a token's embedding may be zero
    scales = torch.linalg.vector_norm(hidden_states.float(), dim=-1) / lengths
    top = logits.float().topk(min(LISTED, logits.shape[-1]), dim=-1)
    return TrainingBatch(ids, features, scales, top.indices, top.values.softmax(-1))


class TrainingBatchBuilder:
    """`compute_training_batch` for one target, by the forward that serves it where that is compiled: the same features, several times
    as fast.
    """

    def __init__(self, target: PreTrainedModel):
        self.target, taps = target, default_feature_layers(target.config.num_hidden_layers)
        compiled = can_compile_forward(target) and sorted(set(taps)) == list(taps)
        self.session = Runner(target).open_session(ROW, taps) if compiled else None

    def __call__(self, ids: torch.Tensor) -> TrainingBatch:
        """The features and next tokens for `ids [B, T]` of at most `ROW` tokens a row."""
        if self.session is None:
            return compute_training_batch(self.target, ids)
        hidden, logits = [], []
        for row in ids.tolist():
            self.session.rewind(0)
            said, seen = self.session.forward(row, list(range(len(row))))
            assert seen is not None  # the session was asked for them
            logits.append(said)
            hidden.append(seen)
        return build_training_batch(ids, torch.stack(hidden), torch.stack(logits))


def write_feature_shards(target: PreTrainedModel, token_rows: np.ndarray, folder: Path) -> None:
    """Write the observed `token_rows [n, T]` into `folder/shard-*.safetensors`. Shards that exist already stay."""
    folder.mkdir(parents=True, exist_ok=True)
    batch_builder = TrainingBatchBuilder(target)
    for start in tqdm(range(0, len(token_rows), SHARD), desc="features", unit="shard"):
        path = folder / f"shard-{start // SHARD:05d}.safetensors"
        if path.exists():
            continue
        seen = [
            batch_builder(ids).to_cpu_storage_types()
            for ids in torch.from_numpy(token_rows[start : start + SHARD]).split(AT_ONCE)
        ]
        whole = TrainingBatch(*map(torch.cat, zip(*seen, strict=True)))
        save_file(whole._asdict(), path.with_suffix(".tmp"))
        path.with_suffix(".tmp").replace(path)


class FeatureShards:
    """Batches from cached shards. Their order depends on the step alone, so that a resumed run goes on where it stopped."""

    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("shard-*.safetensors"))
        if not self.paths:
            raise ValueError(f"No cached features in {folder}. They are made by the training command itself.")
        self.loaded: tuple[int, TrainingBatch] | None = None

    def load_shard(self, index: int) -> TrainingBatch:
        if self.loaded is None or self.loaded[0] != index:
            self.loaded = index, TrainingBatch(**load_file(self.paths[index]))
        return self.loaded[1]

    def shuffled_batch_of_step(self, step: int, row_count: int) -> TrainingBatch:
        """The rows of a step. Every epoch has the shards in a new random order, and the rows in each shard too."""
        a_shard = max(1, SHARD // row_count)
        epoch, place = divmod(step, a_shard * len(self.paths))
        at, part = divmod(place, a_shard)
        shard = self.load_shard(int(np.random.default_rng([4, epoch]).permutation(len(self.paths))[at]))
        order = np.random.default_rng([5, epoch, at]).permutation(len(shard.ids))
        # The last shard may be a short one
        return shard.rows(order[np.arange(part * row_count, (part + 1) * row_count) % len(order)])

    def sample_target_tokens(self) -> torch.Tensor:
        """Token ids `[n]` as often as the target writes them: `DRAWS` at every place of the rows, from its own distribution."""
        draws, found = build_generator_from_key("own vocabulary"), []
        for path in self.paths:
            with safe_open(path, framework="pt") as stored:  # features stay on the disk
                tokens, p = (stored.get_tensor(name).flatten(0, 1) for name in ("tokens", "p"))
            found.append(tokens.gather(1, p.float().multinomial(DRAWS, replacement=True, generator=draws)).flatten())
        return torch.cat(found)

    def iterate_batches(self, row_count: int) -> Iterator[TrainingBatch]:
        for index in range(len(self.paths)):
            shard = self.load_shard(index)
            for start in range(0, len(shard.ids), row_count):
                yield shard.rows(slice(start, start + row_count))


class LiveBatches:
    """Batches as `FeatureShards` gives them. The target computes them from `token_rows [n, T]` when they are drawn."""

    def __init__(self, target: PreTrainedModel, token_rows: np.ndarray):
        self.rows, self.batch_builder = torch.from_numpy(token_rows), TrainingBatchBuilder(target)

    def sample_target_tokens(self) -> torch.Tensor:
        """Token ids `[n]` of the rows, most of which the target wrote."""
        return self.rows.flatten()

    def shuffled_batch_of_step(self, step: int, row_count: int) -> TrainingBatch:
        """The rows of a step. Every epoch has a new random order, which leaves out what does not fill a batch."""
        epoch, place = divmod(step, max(1, len(self.rows) // row_count))
        order = np.random.default_rng([4, epoch]).permutation(len(self.rows))
        return self.batch_builder(self.rows[order[place * row_count : (place + 1) * row_count]])

    def iterate_batches(self, row_count: int) -> Iterator[TrainingBatch]:
        yield from map(self.batch_builder, self.rows.split(row_count))


def accuracy_by_depth(hits_by_depth: Iterable[torch.Tensor]) -> dict[str, float]:
    """How often the favourite (`top1`) or one of three (`top3`) is the target's greedy token, by depth, of `hits_by_depth [..., 3]`
    at each.
    """
    figures = {}
    for depth, each in enumerate(hits_by_depth, 1):
        figures |= {f"depth {depth} top1": float(each[..., 0].float().mean())}
        figures |= {f"depth {depth} top3": float(each.any(-1).float().mean())}
    return figures


def accuracy_and_chain_length(hits: torch.Tensor) -> dict[str, float]:
    """`accuracy_by_depth` of guesses along n texts, `hits [n, depth, 3]`. `chain` is how many favourites in a row are right."""
    return accuracy_by_depth(hits.unbind(1)) | {"chain": float(hits[..., 0].float().cumprod(-1).sum(-1).mean())}


class DrafterVocabularyLabelMapper:
    """The labels of a net that guesses only the tokens `guessed_token_ids [own_vocab]` among the target's `target_vocab_size`."""

    def __init__(self, guessed_token_ids: torch.Tensor, target_vocab_size: int):
        self.own_ids = torch.full((target_vocab_size,), -1, device=guessed_token_ids.device)
        self.own_ids[guessed_token_ids] = torch.arange(len(guessed_token_ids), device=guessed_token_ids.device)

    def __call__(self, tokens: torch.Tensor, p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The net's ids of `tokens [..., LISTED]`, their probabilities within its vocabulary, and the mass `[...]` that lies there."""
        own = self.own_ids[tokens]
        p = p * (own >= 0)
        mass = p.sum(-1, keepdim=True)
        return own.clamp(min=0), p / mass.clamp(min=1e-6), mass[..., 0]


def most_frequent_tokens(token_sample: torch.Tensor, count: int, vocab_size: int) -> torch.Tensor:
    """The `count` most frequent of `vocab_size` token ids in a sample of the target's text, ascending. Ties go to the smaller id."""
    counts = torch.bincount(token_sample.flatten().long().cpu(), minlength=vocab_size)
    return counts.argsort(descending=True, stable=True)[:count].sort().values


def chunked_soft_cross_entropy(
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    vocab_size: int,
    states: torch.Tensor,
    top_tokens: torch.Tensor,
    p: torch.Tensor,
) -> torch.Tensor:
    """`soft_cross_entropy [...]` of `logits_of(states [..., H])`, over `vocab_size` tokens.

    Many logits of a large vocabulary would take gigabytes. They are made piece by piece, and anew for the gradient.
    """
    count = states[..., 0].numel()
    if count * vocab_size <= LOGITS:
        return soft_cross_entropy(logits_of(states), top_tokens, p)

    def piece(*each: torch.Tensor) -> torch.Tensor:
        return soft_cross_entropy(logits_of(each[0]), each[1], each[2])

    flat = [each.flatten(0, -2).split(max(1, LOGITS // vocab_size)) for each in (states, top_tokens, p)]
    found = [checkpoint(piece, *each, use_reentrant=False) for each in zip(*flat, strict=True)]
    return torch.cat(found).view(states.shape[:-1])


def soft_cross_entropy(draft_logits: torch.Tensor, top_tokens: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Cross-entropy `[...]` of draft `draft_logits [..., V]` against the target's listed `top_tokens`, `p` `[..., LISTED]`."""
    return draft_logits.logsumexp(-1) - (p * draft_logits.gather(-1, top_tokens)).sum(-1)
