"""Rows that a target writes by itself, and its features of them, from one forward a token: what a first drafter learns from.

All rows of a shard stand at the same place, so a forward reads one token of each, and what it says there is kept. A shard is complete
or not there: a run that was cut off loses minutes, and writes the same rows when it goes on.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tqdm import tqdm
from transformers import DynamicCache, PreTrainedModel, StaticCache

from engine.forward.session import default_feature_layers
from engine.lab.train.features import SHARD, TrainingBatch, build_training_batch
from engine.lab.train.self_written.conversations import Conversation
from engine.lab.train.writing import ROW, load_or_write_rows
from engine.sampling import build_generator_from_key

ON_A_GPU = 256  # rows at once
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}  # layers whose cache can be made beforehand


class LockstepForward:
    """A target's forwards of one token for each of several rows, all at the same place, by transformers."""

    def __init__(self, target: PreTrainedModel, row_length: int):
        """`row_length` is the number of tokens that a row may have."""
        config, self.target = target.config, target
        self.taps = (*default_feature_layers(config.num_hidden_layers), -1)
        plain = set(getattr(config, "layer_types", None) or ATTENTION) <= ATTENTION
        # A cache that grows is copied at every token
        self.past = StaticCache(config, max_cache_len=row_length) if plain else DynamicCache(config=config)

    @torch.inference_mode()
    def __call__(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states `[B, 4, H]` behind the next token `ids [B]` of every row, and logits `[B, V]`, on the target's device."""
        output = self.target(
            input_ids=ids[:, None].to(self.target.device),
            past_key_values=self.past,
            use_cache=True,
            output_hidden_states=True,
        )
        return torch.stack([output.hidden_states[at][:, 0] for at in self.taps], -2), output.logits[:, 0]


def write_conversations_as_training_batch(
    target: PreTrainedModel,
    conversations: list[Conversation],
    generator: torch.Generator,
    report_token_count: Callable[[int], object],
) -> TrainingBatch:
    """Rows of `ROW` tokens as the conversations go, in the types of shards. `report_token_count` hears of the tokens as they come."""
    forward, places = LockstepForward(target, ROW), []
    tokens = torch.tensor(
        [row.take_forced_or_target_token(-1) for row in conversations]
    )  # a conversation begins with tokens that are given
    for place in range(ROW):
        hidden, logits = forward(tokens)
        places.append(build_training_batch(tokens[:, None], hidden[:, None], logits[:, None]).to_cpu_storage_types())
        report_token_count(len(conversations))
        if place + 1 < ROW:
            drawn = draw_tokens_by_row(
                logits,
                [row.current_temperature if row.is_next_token_from_target else 0.0 for row in conversations],
                generator,
            )
            tokens = torch.tensor(
                [row.take_forced_or_target_token(token) for row, token in zip(conversations, drawn, strict=True)]
            )
    return TrainingBatch(*(torch.cat(each, 1) for each in zip(*places, strict=True)))


def draw_tokens_by_row(logits: torch.Tensor, temperatures: list[float], generator: torch.Generator) -> list[int]:
    """A token for each row of `logits [B, V]` at its own temperature; 0 takes the favourite."""
    tokens, hot = logits.argmax(-1), [row for row, temperature in enumerate(temperatures) if temperature > 0]
    if hot:
        heat = torch.tensor([temperatures[row] for row in hot], device=logits.device)[:, None]
        below = (logits[hot].float() / heat).softmax(-1).cumsum(-1)
        at = torch.rand(len(hot), 1, generator=generator).to(logits.device) * below[:, -1:]
        tokens[hot] = torch.searchsorted(below, at)[:, 0].clamp(max=logits.shape[-1] - 1)
    return tokens.tolist()


def write_conversation_shards(
    target: PreTrainedModel, build_conversations: Callable[[int, int], list[Conversation]], row_count: int, folder: Path
) -> None:
    """Write exactly so many rows into `folder/shard-*.safetensors`, unless they are there.

    `build_conversations(first, count)` makes those of the rows from `first` on, always the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tqdm(total=row_count * ROW, desc=f"text of its own, {folder.name}", unit="token", unit_scale=True) as bar:
        for first in range(0, row_count, SHARD):
            path, count = folder / f"shard-{first // SHARD:05d}.safetensors", min(SHARD, row_count - first)
            if count_shard_rows(path) < count:
                draws = build_generator_from_key("first drafter", folder.name, first)
                batch = write_conversations_as_training_batch(
                    target, build_conversations(first, count), draws, bar.update
                )
                save_file(batch._asdict(), path.with_suffix(".tmp"))
                path.with_suffix(".tmp").replace(path)
            else:
                bar.update(count * ROW)


def load_or_write_conversation_ids(
    target: PreTrainedModel, build_conversations: Callable[[int, int], list[Conversation]], row_count: int, path: Path
) -> np.ndarray:
    """As `write_conversation_shards`, of the ids `[row_count, ROW]` alone, which the file at `path` keeps: a GPU asks for features
    anew.
    """

    def write_more_rows(done: int) -> torch.Tensor:
        made = build_conversations(done, min(ON_A_GPU, row_count - done))
        return write_conversations_as_training_batch(
            target, made, build_generator_from_key("first drafter", path.stem, done), lambda count: None
        ).ids

    return load_or_write_rows(path, row_count, write_more_rows)


def count_shard_rows(shard: Path) -> int:
    """How many rows the file has; 0 where there is none."""
    if not shard.exists():
        return 0
    with safe_open(shard, framework="pt") as stored:
        return stored.get_slice("ids").get_shape()[0]
