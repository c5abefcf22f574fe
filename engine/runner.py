"""Runner and Session: forwards of one causal language model over one KV cache. Knows rows and masks; knows no tree and no drafter.

A `Runner` is shared by every lane; a `Session` is one lane's own cache. Plain Llama in float32 on a CPU takes the lean forward,
every other model the transformers one; both give the same logits.
"""

import torch
from transformers import PreTrainedModel

from engine.cache import KVCache, transformers_cache
from engine.lean import LeanLlama, serves

PREFILL_CHUNK = 512


def tapped_layers(layers: int) -> tuple[int, int, int]:
    """An early, a middle and a late layer of a model with this many (counted from 1), whose outputs learned drafters read."""
    return max(1, layers // 4), max(1, layers // 2), max(1, layers - 1)


def normalised(hidden: torch.Tensor) -> torch.Tensor:
    """Features from hidden states `[..., taps + 1, H]`: all but the last, which is normed already, over their root mean square."""
    hidden = hidden.float()
    taps = hidden[..., :-1, :]
    return torch.cat([taps * (taps.square().mean(-1, keepdim=True) + 1e-12).rsqrt(), hidden[..., -1:, :]], -2)


class Runner:
    """A causal language model ready for forwards with explicit masks and positions."""

    def __init__(self, model: PreTrainedModel, lean: bool | None = None):
        """`lean` forces the choice of forward; None takes the lean one where it serves."""
        self.model = model.eval().requires_grad_(False)
        self.config = model.config
        self.vocab: int = model.config.vocab_size
        self.context: int = model.config.max_position_embeddings
        self.device, self.dtype = model.device, model.dtype
        self.lean = LeanLlama(model) if (serves(model) if lean is None else lean) else None

    def open(self, capacity: int, features: bool = False) -> "Session":
        return Session(self, capacity, features)


class Session:
    """One KV cache over a runner's model.

    A forward writes rows behind `rows` and leaves it to `keep` to say which of them stay. With `features`, forwards also hand out
    what the model thought on the way: `[N, 4, H]` float32, the hidden states behind `tapped_layers`, each divided by its root mean
    square (a few massive activations would drown the rest), and the final norm's output, which the LM head reads.
    """

    def __init__(self, runner: Runner, capacity: int, features: bool = False):
        config = runner.config
        heads = config.num_key_value_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.runner = runner
        self.cache = KVCache(config.num_hidden_layers, heads, width, capacity, runner.dtype, runner.device)
        self.past = None if runner.lean else transformers_cache(self.cache)
        self.taps = tapped_layers(config.num_hidden_layers) if features else ()

    @property
    def rows(self) -> int:
        return self.cache.rows

    def additive(self, visible: torch.Tensor, count: int) -> torch.Tensor:
        """`visible` bool `[N, M]` over the last M columns, as an additive mask `[N, rows + N]`; earlier columns are seen by all."""
        mask = torch.zeros(count, self.rows + count, dtype=self.runner.dtype)
        mask[:, -visible.shape[1] :].masked_fill_(~visible, torch.finfo(self.runner.dtype).min)
        return mask.to(self.runner.device)

    @torch.inference_mode()
    def forward(
        self, ids: list[int], positions: list[int], visible: torch.Tensor | None = None, last_only: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits `[N, V]` (`[1, V]` with `last_only`) of N new tokens, and their features. `visible` None means causal.

        Raises `ValueError` when the cache is full.
        """
        count = len(ids)
        self.cache.room_for(count)
        if visible is None and count > 1:
            visible = torch.ones(count, count, dtype=torch.bool).tril_()
        mask = None if visible is None else self.additive(visible, count)
        tokens, places = torch.tensor(ids), torch.tensor(positions)
        if self.runner.lean:
            logits, hidden = self.runner.lean(self.cache, tokens, places, mask, last_only, self.taps)
            return logits, None if hidden is None else normalised(hidden)
        if mask is None:
            mask = torch.zeros(1, self.rows + 1, dtype=self.runner.dtype, device=self.runner.device)
        output = self.runner.model(
            input_ids=tokens[None].to(self.runner.device),
            position_ids=places[None].to(self.runner.device),
            attention_mask=mask[None, None],
            past_key_values=self.past,
            use_cache=True,
            logits_to_keep=1 if last_only else 0,
            output_hidden_states=bool(self.taps),
        )
        if not self.taps:
            return output.logits[0], None
        return output.logits[0], normalised(torch.stack([output.hidden_states[at][0] for at in (*self.taps, -1)], 1))

    def prefill(self, ids: list[int]) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Write the rows of `ids`, in chunks. Returns the logits `[1, V]` behind the last one, None when there are no ids, and the
        features of all."""
        logits, features = None, []
        for start in range(0, len(ids), PREFILL_CHUNK):
            chunk = ids[start : start + PREFILL_CHUNK]
            logits, seen = self.forward(chunk, list(range(self.rows, self.rows + len(chunk))), last_only=True)
            self.keep(list(range(len(chunk))))
            features.append(seen)
        if not self.taps:
            return logits, None
        empty = torch.zeros(0, len(self.taps) + 1, self.runner.config.hidden_size, device=self.runner.device)
        return logits, torch.cat([empty, *features])

    def keep(self, written: list[int]) -> None:
        """Commit these of the rows just written (offsets, in path order); the others are dropped."""
        self.cache.keep(written)

    def rewind(self, rows: int) -> None:
        """Forget every row behind the first `rows`."""
        self.cache.rows = rows
