"""BigramTable: which token follows which, counted once over a text.

Invariant: every row of `log_q` is a whole distribution: it sums to 1 and no token has probability 0.
"""

from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

MIN_REST = 1e-4  # the least share of all unlisted followers; float16 cannot tell a smaller one from rounding


class BigramTable:
    """The k most probable followers of every token: `next_ids [V, k]`, `next_logp [V, k]` (natural log-probabilities).

    The mass that a row does not list is shared evenly by the V - k tokens that it does not list.
    """

    def __init__(self, next_ids: torch.Tensor, next_logp: torch.Tensor):
        """Raises `ValueError` when shapes or ids do not make a table."""
        if next_ids.ndim != 2 or next_ids.shape != next_logp.shape or 0 in next_ids.shape:
            raise ValueError(
                "A bigram table needs next_ids and next_logp of one shape [V, k], "
                f"got {list(next_ids.shape)} and {list(next_logp.shape)}."
            )
        self.vocab, self.k = next_ids.shape
        if not 0 <= int(next_ids.min()) <= int(next_ids.max()) < self.vocab:
            raise ValueError(
                f"A bigram table over {self.vocab} tokens names ids from {next_ids.min()} to {next_ids.max()}."
            )
        self.next_ids, self.next_logp = next_ids.long(), next_logp.float()
        listed = self.next_logp.double().exp()
        rest = (1 - listed.sum(-1)).clamp(min=MIN_REST) if self.vocab > self.k else torch.zeros(self.vocab).double()
        whole = listed.sum(-1) + rest
        self.listed = (listed / whole[:, None]).log().float()  # [V, k]
        self.unlisted = (rest / whole / max(1, self.vocab - self.k)).log().float()  # [V], of one unlisted token

    def log_q(self, token_ids: list[int]) -> torch.Tensor:
        """Log-probabilities `[n, V]` float32 of what follows each of n tokens. Raises `IndexError` for an id beyond the vocabulary."""
        rows = torch.tensor(token_ids, dtype=torch.long)
        spread = self.unlisted.index_select(0, rows)[:, None].repeat(1, self.vocab)
        return spread.scatter_(1, self.next_ids.index_select(0, rows), self.listed.index_select(0, rows))

    @classmethod
    def build_from_token_stream(
        cls, token_stream: np.ndarray | torch.Tensor, vocab_size: int, follower_count: int = 16
    ) -> "BigramTable":
        """Count the token ids of `token_stream [n]`.

        p(y | x) = (count(x, y) + u(y)) / (count(x) + 1) with the add-one unigram u. What was never seen backs off to u.
        A token without followers therefore lists the most frequent tokens of all.
        Raises `ValueError` when k or an id does not fit the vocabulary.
        """
        token_stream = np.asarray(token_stream).astype(np.int64)
        if not 0 < follower_count <= vocab_size:
            raise ValueError(
                f"A bigram table over {vocab_size} tokens can list 1 to {vocab_size} followers, got k={follower_count}."
            )
        if token_stream.ndim != 1 or (
            token_stream.size and not 0 <= token_stream.min() <= token_stream.max() < vocab_size
        ):
            raise ValueError(f"Counting needs one row of token ids from 0 to {vocab_size - 1}.")
        unigram = (np.bincount(token_stream, minlength=vocab_size) + 1) / (token_stream.size + vocab_size)
        # A follower that was not seen can only be listed when it is among the k most frequent tokens of all.
        backoff = (
            np.arange(vocab_size)[:, None] * vocab_size + np.argsort(-unigram, kind="stable")[:follower_count]
        ).ravel()
        seen, counts = np.unique(token_stream[:-1] * vocab_size + token_stream[1:], return_counts=True)
        unseen = np.setdiff1d(backoff, seen)
        pairs = np.concatenate([seen, unseen])
        counts = np.concatenate([counts, np.zeros(unseen.size, dtype=counts.dtype)])
        rows, ids = np.divmod(pairs, vocab_size)
        p = (counts + unigram[ids]) / (np.bincount(token_stream[:-1], minlength=vocab_size)[rows] + 1)
        order = np.lexsort((ids, -p, rows))
        row_starts = np.searchsorted(rows[order], np.arange(vocab_size))
        best = order[row_starts[:, None] + np.arange(follower_count)]  # [V, k]
        return cls(torch.from_numpy(ids[best]), torch.from_numpy(np.log(p[best])))

    def save(self, path: str | Path) -> None:
        """Write safetensors: `next_ids` int16 (int32 beyond 32,768 tokens) `[V, k]`, `next_logp` float16 `[V, k]`."""
        ids = self.next_ids.to(torch.int16 if self.vocab <= 1 << 15 else torch.int32)
        save_file({"next_ids": ids, "next_logp": self.next_logp.half()}, str(path))

    @classmethod
    def load(cls, path: str | Path) -> "BigramTable":
        """Read what `save` wrote. Raises `ValueError` naming the file when it is missing or something else."""
        try:
            tensors = load_file(str(path))
            return cls(tensors["next_ids"], tensors["next_logp"])
        except FileNotFoundError as error:
            raise ValueError(
                f"No bigram table at {path}. Make the embedded one with `python -m engine train pair`."
            ) from error
        except (SafetensorError, KeyError, ValueError) as error:
            raise ValueError(f"{path} is no bigram table: {error}") from error
