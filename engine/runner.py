"""Runner and Session: forwards of one causal language model over one KV cache. Knows rows and masks; knows no tree and no drafter.

A `Runner` is shared by every lane; a `Session` is one lane's own cache. Llama and its kin take the lean forward on a CPU, every other
model the transformers one; both give the same logits.
"""

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from engine.between import normalised
from engine.cache import KVCache, additive, transformers_cache
from engine.graphs import Buckets, Lender, why_eager
from engine.lean import LeanLlama, head_dim_of, lighten, serves
from engine.small import SmallLlama, is_small
from engine.static import rounded

PREFILL_CHUNK = 512


def tapped_layers(layers: int) -> tuple[int, int, int]:
    """An early, a middle and a late layer of a model with this many (counted from 1), whose outputs learned drafters read."""
    return max(1, layers // 4), max(1, layers // 2), max(1, layers - 1)


class Runner:
    """A causal language model ready for forwards with explicit masks and positions."""

    def __init__(self, model: PreTrainedModel, lean: bool | None = None, eight_bit: bool = False):
        """`lean` forces the choice of forward; None takes the lean one where it serves. `eight_bit` rounds a draft's matrices there;
        a target's must stay exact."""
        self.model = model.eval().requires_grad_(False)
        self.config = model.config
        self.vocab: int = model.config.vocab_size
        self.context: int = model.config.max_position_embeddings
        self.device, self.dtype = model.device, model.dtype
        self.lean: LeanLlama | SmallLlama | None = None
        if serves(model) if lean is None else lean:
            small = eight_bit and is_small(model)
            self.lean = SmallLlama(model) if small else LeanLlama(model, eight_bit=eight_bit)
        else:
            lighten(model)
        self.eager = why_eager(self.device)  # a sentence why forwards are no CUDA graphs; "" where they are
        self.lender = Lender()

    def open(self, capacity: int, features: bool = False) -> "Session":
        return Session(self, capacity, features, graphed=self.device.type == "cuda")

    def new_cache(self, capacity: int) -> KVCache:
        heads = self.config.num_key_value_heads
        width = head_dim_of(self.config)
        return KVCache(self.config.num_hidden_layers, heads, width, capacity, self.dtype, self.device)

    def run(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        past: Cache,
        last_only: bool = False,
        taps: tuple[int, ...] = (),
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The transformers forward: logits `[N, V]` (`[1, V]` with `last_only`) and features of `ids [N]` over the cache `past`, under
        an additive mask `[1, 1, rows, M]`."""
        output = self.model(
            input_ids=ids[None],
            position_ids=positions[None],
            attention_mask=mask,
            past_key_values=past,
            use_cache=True,
            logits_to_keep=1 if last_only else 0,
            output_hidden_states=bool(taps),
        )
        if not taps:
            return output.logits[0], None
        return output.logits[0], normalised(torch.stack([output.hidden_states[at][0] for at in (*taps, -1)], 1))


class Session:
    """One KV cache over a runner's model.

    A forward writes rows behind `rows` and leaves it to `keep` to say which of them stay. With `features`, forwards also hand out
    what the model thought on the way: `[N, 4, H]` float32, the hidden states behind `tapped_layers`, each divided by its root mean
    square (a few massive activations would drown the rest), and the final norm's output, which the LM head reads.
    """

    def __init__(self, runner: Runner, capacity: int, features: bool = False, graphed: bool = False):
        """`graphed` takes forwards of few tokens from `engine.graphs`, for GPUs."""
        self.runner = runner
        self.taps = taps = tapped_layers(runner.config.num_hidden_layers) if features else ()
        self.buckets = None
        if graphed:
            key = ("buckets", rounded(capacity), taps)
            self.buckets = runner.lender.lend(key, lambda: Buckets(runner, capacity, taps), borrower=self)
        self.cache = self.buckets.cache if graphed else runner.new_cache(capacity)
        self.cache.clear()
        self.past = None if runner.lean else transformers_cache(self.cache)

    @property
    def rows(self) -> int:
        return self.cache.rows

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
        if self.buckets and (bucket := self.buckets.fitting(count)):
            return bucket(ids, positions, visible, last_only)
        tokens, places = torch.from_numpy(np.array([ids, positions])).unbind()
        if self.runner.lean:
            return self.runner.lean(self.cache, tokens, places, visible, last_only, self.taps)
        if visible is None:
            visible = torch.ones(1, 1, dtype=torch.bool)
        mask = additive(visible, self.rows + count, self.runner.dtype).to(self.runner.device)
        tokens, places = tokens.to(self.runner.device), places.to(self.runner.device)
        return self.runner.run(tokens, places, mask[None, None], self.past, last_only, self.taps)

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
